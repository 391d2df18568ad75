"""What a page is made of: a build's report, and what verify, bench and inspect wrote of the same engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.documents.saved import load_report
from trtconv.core.errors import InputError
from trtconv.core.files import files_below, report_beside
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, open_plain, read_plain, sha256_of

Document = Mapping[str, Any]

_KINDS = {
    "verify": ("cases", "ran", "tolerance", "engine"),
    "bench": ("engines", "rows"),
    "inspect": ("kind", "file", "layers"),
}
"""Command to the keys that tell its document."""
_MOST_FILES = 10_000


@frozen
class PageSubject:
    """What a page shows.

    Args:
        path: The report.
        report: Its content.
        measured: "verify", "bench", "inspect" to their documents, as far as there are any.
        notes: What lies beside the engine and is not shown, and why.
    """

    path: Path
    report: Document
    measured: Mapping[str, Document]
    notes: tuple[str, ...] = ()


def gather(path: Path, given: Sequence[Path] = ()) -> PageSubject:
    """Reads the report of an engine, and what was measured of it.

    Args:
        path: An engine with its report beside it, or the report.
        given: Documents of verify, bench and inspect. What ENGINE.verify.json, ENGINE.bench.json and
            ENGINE.inspect.json tell is taken where none of the kind is given.

    Raises:
        InputError: A file cannot be read, is none of these, or is of another engine.
    """
    report = report_of(path)
    document = load_report(report).document
    return with_measured(report, document, given)


def with_measured(report: Path, document: Document, given: Sequence[Path] = ()) -> PageSubject:
    """Adds to a build's report what was measured; see `gather`."""
    known = (document.get("engine") or {}).get("sha256")
    measured, notes = {}, []
    for file in given:
        kind, found = _measured(file)
        if _engine_of(kind, found) != known:
            raise InputError(f"{file} is of another engine than {report}", f"Run trtconv {kind} again.")
        measured[kind] = found
    for kind in _KINDS:
        beside = report.with_name(f"{report.name.removesuffix('.json')}.{kind}.json")
        if kind in measured or not beside.is_file():
            continue
        kind, found = _measured(beside)
        if _engine_of(kind, found) == known:
            measured[kind] = found
        else:
            notes.append(f"{beside.name} is of another engine and is not shown")
    return PageSubject(report, document, measured, tuple(notes))


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
            f"{path} is an ONNX model, where an engine is wanted",
            f"Build it: trtconv build {shlex.quote(str(path))}",
        )
    beside = report_beside(path)
    if not beside.is_file():
        raise InputError(f"{path} has no report {beside.name}", "Build it with trtconv, or give its report.")
    if (load_report(beside).document.get("engine") or {}).get("sha256") != sha256_of(path):
        raise InputError(f"{path} is not the engine that {beside.name} tells of", "Build it again.")
    return beside


def gather_all(folder: Path) -> tuple[list[PageSubject], int]:
    """Reads every report of a build below a folder.

    Returns:
        The reports by path, and how many other .json files there are.

    Raises:
        InputError: There is none.
    """
    found, others = [], 0
    for path in _json_files(folder):
        try:
            document = load_report(path).document
            if "plan" not in document or "edits" not in document:
                raise InputError(f"{path} is no report of a build")
            found.append(with_measured(path, document))
        except InputError:
            others += 1
    if not found:
        raise InputError(f"{folder} has no report of a build", "Build a model into it: trtconv build MODEL -o ENGINE.")
    return found, others


def _json_files(folder: Path) -> Iterator[Path]:
    for number, path in enumerate(files_below(folder, ".json")):
        if number >= _MOST_FILES:
            raise InputError(f"{folder} has more than {_MOST_FILES} .json files", "Give the folder of the engines.")
        yield path


def _measured(path: Path) -> tuple[str, Document]:
    hint = "Write one with --format json: trtconv verify, bench or inspect."
    try:
        document = json.loads(read_plain(path, DOCUMENT_BYTES))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}", hint) from error
    for kind, keys in _KINDS.items():
        if isinstance(document, dict) and document.keys() >= set(keys):
            return kind, document
    raise InputError(f"{path} is no document of verify, bench or inspect", hint)


def _engine_of(kind: str, document: Document) -> str | None:
    """Returns the SHA-256 of the engine that a document is of; None where it does not say."""
    try:
        told = document["engines"][0] if kind == "bench" else document["file" if kind == "inspect" else "engine"]
        return str((told or {}).get("sha256"))
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
