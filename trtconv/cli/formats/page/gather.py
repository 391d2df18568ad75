"""What a page is made of: a build's report, and what verify, bench and inspect wrote of the same engine."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.decode import Fault, checked_schema, decoded, json_of
from trtconv.core.documents.bench import BenchReport
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.commands import ErrorReport
from trtconv.core.documents.inspect import EngineInspection
from trtconv.core.documents.quantize import QuantizeReport
from trtconv.core.documents.saved import load_report, saved
from trtconv.core.documents.verify import VerifyReport
from trtconv.core.errors import InputError
from trtconv.core.files import files_below, report_beside
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, open_plain, read_plain, sha256_of

_Shown = VerifyReport | BenchReport | EngineInspection | QuantizeReport
_KINDS: dict[str, type[VerifyReport] | type[BenchReport] | type[EngineInspection] | type[QuantizeReport]] = {
    "verify": VerifyReport,
    "bench": BenchReport,
    "inspect": EngineInspection,
    "quantize": QuantizeReport,
}
"""Command to its document."""
_MEASURED = tuple(f".{kind}.json" for kind in _KINDS)
_MOST_FILES = 10_000


@frozen
class PageSubject:
    """What a page shows.

    Args:
        path: The report.
        report: Its content.
        verify: What verify found; None where it was not run.
        bench: What bench measured; None where it was not run.
        inspect: What inspect saw; None where it was not run.
        notes: What lies beside the engine and is not shown, and why, and which commands failed.
        quantize: How the model was quantised for this build; None where it was not.
    """

    path: Path
    report: BuildReport
    verify: VerifyReport | None = None
    bench: BenchReport | None = None
    inspect: EngineInspection | None = None
    notes: tuple[str, ...] = ()
    quantize: QuantizeReport | None = None


def gather(path: Path, documents: Sequence[Path] = ()) -> PageSubject:
    """Reads the report of an engine, and what was measured of it.

    Args:
        path: An engine with its report beside it, or the report.
        documents: Documents of verify, bench, inspect and quantize. What ENGINE.verify.json, ENGINE.bench.json,
            ENGINE.inspect.json and ENGINE.quantize.json tell is taken where none of the kind is given.

    Raises:
        InputError: A file cannot be read, is none of these, or is of another engine.
    """
    report = report_of(path)
    return with_measured(report, load_report(report).report, documents)


def with_measured(
    path: Path, report: BuildReport, documents: Sequence[Path] = (), unread: dict[str, str] | None = None
) -> PageSubject:
    """Adds to a build's report what was measured; see `gather`.

    Args:
        path: The report.
        report: Its content.
        documents: Documents that are shown instead of those beside the engine.
        unread: Takes what lies beside the engine and cannot be read, with why; None: it is an error.
    """
    measured: dict[str, Any] = {}
    notes = []
    for file in documents:
        kind, document = _measured(file, *_KINDS)
        if isinstance(document, ErrorReport):
            notes.append(f"{kind} failed: {document.error.message}")
            continue
        if not _is_of(document, report):
            raise InputError(f"{file} is of another engine than {path}", f"Run trtconv {kind} again.")
        measured[kind] = document
    for kind, beside in _beside(path):
        if kind in measured:
            continue
        try:
            _, document = _measured(beside, kind)
        except InputError as error:
            if unread is None:
                raise
            unread[str(beside)] = error.message
            notes.append(error.message)
            continue
        if isinstance(document, ErrorReport):
            # It tells of no engine: where it lies is all there is to go by.
            notes.append(f"{kind} failed: {document.error.message}")
        elif _is_of(document, report):
            measured[kind] = document
        else:
            notes.append(f"{beside.name} is of another engine and is not shown")
    return PageSubject(path, report, notes=tuple(dict.fromkeys(notes)), **measured)


def _beside(report: Path) -> list[tuple[str, Path]]:
    """Returns the documents of measurements that lie beside an engine's report, by kind."""
    name = report.name.removesuffix(".json")
    places = [(kind, report.with_name(f"{name}.{kind}.json")) for kind in _KINDS]
    return [(kind, place) for kind, place in places if place.is_file()]


def report_of(path: Path) -> Path:
    """Returns the report of an engine, or the report itself.

    Raises:
        InputError: There is none, or it tells of another engine.
    """
    try:
        with open_plain(path) as file:
            if file.read(1) == b"{":
                return path
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", "Give an engine or its report."
        ) from error
    if path.suffix.lower() == ".onnx":
        raise InputError(
            f"{path} is an ONNX model, where an engine is wanted", f"Build it: trtconv build {shlex.quote(str(path))}"
        )
    beside = report_beside(path)
    if not beside.is_file():
        raise InputError(f"{path} has no report {beside.name}", "Build it with trtconv, or give its report.")
    engine = load_report(beside).report.engine
    if engine is None or engine.sha256 != sha256_of(path):
        raise InputError(f"{path} is not the engine that {beside.name} tells of", "Build it again.")
    return beside


def model_files(subject: PageSubject) -> tuple[Path, Path]:
    """Returns where the model of an engine may be: where the build found it, or beside its report."""
    name = Path(subject.report.model.path)
    return name, subject.path.parent / name.name


def files_shown(subject: PageSubject) -> list[tuple[str, Path]]:
    """Returns the files that a page is made of, or speaks of."""
    engine = subject.path.with_name(subject.path.name.removesuffix(".json"))
    measured = [("what is shown", engine.with_name(f"{engine.name}{ending}")) for ending in _MEASURED]
    models = [("the model", path) for path in model_files(subject)]
    return [("the report", subject.path), ("the engine", engine), *models, *measured]


@frozen
class FailedEngine:
    """A build that made no engine.

    Args:
        model: Name of the model's file.
        target: What it was for.
        codes: Codes of what was found.
        why: What was wrong, in words.
        fix: What helps; may be empty.
    """

    model: str
    target: str
    codes: tuple[str, ...]
    why: str
    fix: str


@frozen
class Folder:
    """The reports below a folder.

    Args:
        subjects: Those that can be shown, by path.
        others: How many other .json files there are.
        left_out: Files that cannot be, since they have other values than trtconv writes: path to why.
        failures: Builds that made no engine, as documents of `build` of several models tell.
    """

    subjects: tuple[PageSubject, ...]
    others: int
    left_out: Mapping[str, str]
    failures: tuple[FailedEngine, ...] = ()


def gather_all(folder: Path) -> Folder:
    """Reads every report of a build below a folder.

    Raises:
        InputError: There is none.
    """
    subjects: list[PageSubject] = []
    left_out: dict[str, str] = {}
    failures: list[FailedEngine] = []
    others = 0
    for path in _json_files(folder):
        try:
            document = json_of(read_plain(path, DOCUMENT_BYTES))
        except (OSError, Fault):
            document = None
        if isinstance(document, dict) and {"runs", "summary"} <= document.keys():
            try:
                failures += _failures(document)
            except Fault as error:
                left_out[str(path)] = str(error)
            continue
        # What inspect tells has all that a report must have.
        if path.name.endswith(_MEASURED):
            continue
        if not isinstance(document, dict) or not {"plan", "edits"} <= document.keys():
            others += 1
            continue
        try:
            report = saved(path, document).report
        except Fault as error:
            left_out[str(path)] = str(error)
            continue
        subjects.append(with_measured(path, report, unread=left_out))
    if not subjects and not left_out and not failures:
        raise InputError(f"{folder} has no report of a build", "Build a model into it: trtconv build MODEL -o ENGINE.")
    # Two documents may tell of one build.
    return Folder(tuple(subjects), others, left_out, tuple(dict.fromkeys(failures)))


@frozen
class _ListedRuns:
    """A document of several models."""

    runs: tuple[Mapping[str, Any], ...]


@frozen
class _Refusal:
    """Why work could not be done."""

    message: str = ""
    hint: str = ""


@frozen
class _ListedRun:
    """What a document of several models has of one: a report of its own where it has an engine or findings."""

    error: _Refusal | None = None
    exit_code: int = 0
    model: Any = None
    target: str = ""


def _failures(document: Mapping[str, Any]) -> Iterator[FailedEngine]:
    """Yields the builds of a document of several models that made no engine."""
    for entry in decoded(_ListedRuns, document).runs:
        run = decoded(_ListedRun, entry)
        if run.error is not None:
            yield FailedEngine(Path(str(run.model)).name, run.target, (), run.error.message, run.error.hint)
        elif run.exit_code and {"plan", "edits"} <= entry.keys():
            yield _failed_build(decoded(BuildReport, entry))


def _failed_build(report: BuildReport) -> FailedEngine:
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR] or list(report.findings)
    codes = tuple(dict.fromkeys(error.code for error in errors))
    first = errors[0] if errors else None
    why = "no engine was made" if first is None else first.message
    name, target = Path(report.model.path).name, str(report.plan.target)
    return FailedEngine(name, target, codes, why, "" if first is None else first.fix)


def _json_files(folder: Path) -> Iterator[Path]:
    for number, path in enumerate(files_below(folder, ".json")):
        if number >= _MOST_FILES:
            raise InputError(f"{folder} has more than {_MOST_FILES} .json files", "Give the folder of the engines.")
        yield path


def _measured(path: Path, *kinds: str) -> tuple[str, Any]:
    """Reads a document of one of some kinds; returns which, and the document, or what the command failed on."""
    hint = f"Write it again with --format json: trtconv {' or '.join(kinds)}."
    try:
        document = checked_schema(json_of(read_plain(path, DOCUMENT_BYTES)))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint) from error
    except Fault as fault:
        raise InputError(f"{path}: {fault}", hint) from fault
    with contextlib.suppress(Fault):
        failed = decoded(ErrorReport, document)
        return next((kind for kind in kinds if path.name.endswith(f".{kind}.json")), "a command"), failed
    faults = []
    for kind in kinds:
        try:
            return kind, decoded(_KINDS[kind], document)
        except Fault as fault:
            faults.append((len(fault.place), f"{path} is not a document of {kind}: {fault}"))
    # The one that goes wrong deepest inside is what was meant.
    raise InputError(max(faults)[1], hint)


def _is_of(document: _Shown, report: BuildReport) -> bool:
    """Whether a document is of the engine of a report, or of the quantised model that it was built from."""
    if isinstance(document, QuantizeReport):
        return document.output is not None and document.output.sha256 == report.model.sha256
    return _engine_of(document) == (None if report.engine is None else report.engine.sha256)


def _engine_of(document: VerifyReport | BenchReport | EngineInspection) -> str | None:
    """Returns the SHA-256 of the engine that a document is of; None where it does not say."""
    if isinstance(document, BenchReport):
        return document.engines[0].sha256 if document.engines else None
    file = document.engine if isinstance(document, VerifyReport) else document.file
    return None if file is None else file.sha256
