"""What commands print that have no report of their own: lists, and what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.documents.extension import InstalledExtension
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen


@frozen
class DoctorReport(Document, keys="schema python executable platform packages runtimes gpu extensions exit_code"):
    """What `trtconv doctor` found.

    Args:
        python: Version of Python.
        executable: Its path.
        platform: The system, as Python names it.
        packages: Package to its version; None where it is not installed.
        runtimes: The TensorRTs, each as its `to_json` has it.
        gpu: Name of the GPU; None without one.
        extensions: Packages that extend trtconv here.
        exit_code: 4 where no TensorRT works here.
    """

    python: str
    executable: str
    platform: str
    packages: Mapping[str, str | None]
    runtimes: Sequence[Document]
    gpu: str | None
    extensions: Sequence[InstalledExtension]
    exit_code: int


@frozen
class RuleEntry(Document):
    """A rule with its page."""

    code: str
    name: str
    summary: str
    page: str


@frozen
class RuleList(Document, keys="schema rules exit_code"):
    """What `trtconv rule` shows."""

    rules: tuple[RuleEntry, ...]
    exit_code: int = 0


@frozen
class PassEntry(Document):
    """A pass with its page; `safety` says how it keeps the numbers, `fixes` which rules' findings it mends."""

    name: str
    fixes: tuple[str, ...]
    safety: str
    on_request: bool
    summary: str
    page: str


@frozen
class PassList(Document, keys="schema passes exit_code"):
    """What `trtconv passes` shows."""

    passes: tuple[PassEntry, ...]
    exit_code: int = 0


@frozen
class InitModel(Document):
    """A model of a new configuration, and the bounds of its dimensions."""

    path: str
    dims: Mapping[str, str]


@frozen
class LeftOut(Document):
    """A file that cannot be read, and why."""

    path: str
    why: str


@frozen
class InitReport(Document, keys="schema config models left_out exit_code"):
    """What `trtconv init` wrote.

    Args:
        config: Path of the configuration.
        models: What it lists.
        left_out: What it does not.
    """

    config: str
    models: tuple[InitModel, ...]
    left_out: tuple[LeftOut, ...]
    exit_code: int = 0


@frozen
class PlannedBuild(Document):
    """A build of a plan.

    Args:
        model: Path of the model.
        target: What it is built for.
        state: "up-to-date", "to-build", "nobody" or "error".
        key: Name of its job; None where none was made.
        engine: Path of the engine.
        error: Why it cannot be built; None where it can.
        hint: What to do then.
        version: Full version of the TensorRT that builds; None where nobody is known to.
    """

    model: str
    target: str
    state: str
    key: str | None
    engine: str
    error: str | None
    hint: str | None
    version: str | None = None


@frozen
class PlanReport(Document, keys="schema jobs exit_code"):
    """What `trtconv plan` found."""

    jobs: tuple[PlannedBuild, ...]
    exit_code: int


@frozen
class PageFile(Document):
    """The file of a page."""

    path: str
    bytes: int


@frozen
class PageReport(Document, keys="schema page engines left_out exit_code"):
    """What `trtconv report` wrote.

    Args:
        page: The file.
        engines: How many engines it shows.
        left_out: File to why it is not shown.
    """

    page: PageFile
    engines: int
    left_out: Mapping[str, str]
    exit_code: int = 0


@frozen
class TritonModel(Document, keys="name folder max_batch_size why_no_batches? plugins-"):
    """An engine in a model repository of Triton.

    Args:
        name: Of the model.
        folder: Where it lies.
        max_batch_size: Largest batch that Triton may make of requests.
        why_no_batches: Why it makes none; empty where it does.
        plugins: Libraries of plugins that lie beside it; None where it needs none.
    """

    name: str
    folder: str
    max_batch_size: int
    why_no_batches: str
    plugins: tuple[str, ...] | None = None


@frozen
class TritonReport(Document, keys="schema models exit_code"):
    """What `trtconv triton` wrote."""

    models: tuple[TritonModel, ...]
    exit_code: int = 0


@frozen
class ErrorText(Document):
    """An exception: its class, what is wrong, and what to do."""

    type: str
    message: str
    hint: str


@frozen
class ErrorReport(Document, keys="schema error findings exit_code"):
    """What stands for a command that failed.

    Args:
        error: The exception.
        findings: What was found in the model before.
        exit_code: As the command ends.
    """

    error: ErrorText
    findings: tuple[Finding, ...]
    exit_code: int


@frozen
class RunCounts(Document):
    """How several builds or checks ended."""

    runs: int
    ok: int
    up_to_date: int
    failed: int
    exit_code: int


@frozen
class RunsReport(Document, keys="schema config runs summary exit_code"):
    """What `build` or `check` of several models did.

    Args:
        config: Path of the configuration; None without one.
        runs: The report of each, or why there is none.
        summary: How many ended in which way.
    """

    config: str | None
    runs: Sequence[object]
    summary: RunCounts

    @property
    def exit_code(self) -> int:
        """The worst of all."""
        return self.summary.exit_code
