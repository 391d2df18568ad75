"""What travels in a farm, and lies in its store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


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
        message = self.error.get("message") if isinstance(self.error, dict) else None
        return message if isinstance(message, str) else ""


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
    report: Mapping[str, Any] | None
    error: ErrorRecord | None
    then: Mapping[str, Mapping[str, Any]]
    log: str
    worker: str | None = None


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
