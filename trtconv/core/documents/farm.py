"""What travels in a farm, and lies in its store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trtconv.core.decode import Fault, decoded
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.core.text import clean


@frozen
class FileSum(Document):
    """A file of a job, which is called by what is in it."""

    sha256: str
    bytes: int


@frozen
class ErrorRecord(Document):
    """Why something failed: class, message and hint of the exception, and the exit code that it stands for."""

    type: str
    message: str
    hint: str
    exit_code: int


@frozen
class Followed(Document, keys="exit_code error-"):
    """What every document of verify and bench tells, also where they failed.

    Args:
        error: Class, message and hint of the exception where there was one. Where it ran and was not right, what is
            called so may be a number.
    """

    exit_code: int
    error: Any = None

    @property
    def why(self) -> str:
        """The exception's message; empty where there was none."""
        try:
            return decoded(_Message, self.error).message
        except Fault:
            return ""


@frozen
class _Message:
    """What of an exception is for people."""

    message: str


@frozen
class JobResult(Document, keys="schema job report error then log worker-"):
    """What became of a job.

    Args:
        job: Its name.
        report: The JSON of the report of the build, as it was signed; None where there is none.
        error: Why there is none.
        then: What verify and bench found, as JSON.
        log: The end of what was written where the build broke down.
        worker: Name of the machine that did it; None where nobody says.
    """

    job: str
    report: Mapping[str, Any] | None = None
    error: ErrorRecord | None = None
    then: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    log: str = ""
    worker: str | None = None

    @property
    def engine(self) -> FileIdentity | None:
        """The engine that the report tells of; None where there is none.

        Raises:
            Fault: The report tells of it as no report does.
        """
        return None if self.report is None else decoded(_Built, self.report).engine


@frozen
class _Built:
    """What of the report of a build says whether there is an engine."""

    engine: FileIdentity | None = None


@frozen
class _Signed:
    """What of a result says who did the job."""

    worker: str | None = None


def worker_of(document: object) -> str | None:
    """Returns who did a job, as the JSON of a result says, whatever else is wrong with it; None where nobody does."""
    try:
        name = decoded(_Signed, document).worker
    except Fault:
        return None
    return None if name is None else clean(name)


@frozen
class OfferedRuntime(Document):
    """A TensorRT that works on a machine; capabilities by name, of which another trtconv may have others."""

    family: str
    version: str
    gpu: str | None
    capabilities: Mapping[str, object]


@frozen
class Offer(Document, keys="trtconv source driver runtimes labels cast_by"):
    """What a machine says of itself; fields as of `Machine`."""

    trtconv: str  # type: ignore[misc]
    source: str
    driver: str | None
    runtimes: tuple[OfferedRuntime, ...]
    labels: tuple[str, ...]
    cast_by: Mapping[str, str]


@frozen
@frozen
class WorkerStatus(Document):
    """What a worker does.

    Args:
        state: "starting", "idle", "building", "silent" (nothing is heard of it) or "aside" (it failed for a reason of
            its own, and gets jobs that nobody else can do).
        why: Why it was set aside.
        job: What it is at; None: nothing.
        seconds: Since when.
        waiting: Jobs that are its next.
        done: Jobs that it did since it joined.
        failed: Jobs that it could not do for reasons of its own.
        gpus: What its GPU answers to.
        runtimes: Each TensorRT that works there, with its version.
        driver: Newest CUDA version that its driver knows.
        version: Of its trtconv; None while it starts.
        source: Checksum of that one's code.
    """

    name: str
    state: str
    why: str
    job: str | None
    seconds: float | None
    waiting: int
    done: int
    failed: int
    gpus: tuple[str, ...]
    runtimes: tuple[str, ...]
    driver: str | None
    version: str | None
    source: str | None


@frozen
class QueuedStatus(Document):
    """A job that waits, since how many seconds, and for how many clients."""

    job: str
    seconds: float
    clients: int


@frozen
class FarmStatus(Document, keys="schema workers queue waiting clients log"):
    """What a farm does.

    Args:
        queue: The first jobs that wait.
        waiting: How many do.
        clients: How many wait for jobs; whoever asks for the status is none.
        log: The last of what the workers wrote into their logs, with the ends of builds that broke down.
    """

    workers: tuple[WorkerStatus, ...]
    queue: tuple[QueuedStatus, ...]
    waiting: int
    clients: int
    log: tuple[str, ...] = ()


@frozen
class StoreEntry(Document):
    """A file that was removed from a store, and why."""

    file: str
    why: str
    bytes: int


@frozen
class StorePruned(Document, keys="schema removed files bytes"):
    """What was removed from a store, and what is left there: files and their bytes."""

    removed: tuple[StoreEntry, ...]
    files: int
    bytes: int
