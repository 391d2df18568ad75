"""SARIF 2.1.0, as code scanning reads it.

A result lies in the line of Python that its node was exported from where the model tells, else in the model's file;
which node is meant is a logical location. Source: OASIS, SARIF Version 2.1.0, 27 March 2020.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from trtconv.cli.formats.json import safe
from trtconv.cli.formats.pages import markdown
from trtconv.core.documents.check import CheckReport, FailedRun
from trtconv.core.findings import Finding, Ignored, Location, Severity
from trtconv.core.version import __version__

if TYPE_CHECKING:
    from trtconv.rules import Page

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_ROOT = "SRCROOT"


def check_sarif(
    reports: Sequence[CheckReport], pages: Sequence[Page], root: Path | None = None, failures: Sequence[FailedRun] = ()
) -> str:
    """Renders checks as one SARIF log, one run.

    Args:
        reports: One check or more.
        pages: Every rule there is.
        root: Files under this folder get relative addresses, which code scanning takes to be in the repository.
        failures: Models that could not be checked.
    """
    codes = [report.exit_code for report in reports] + [failure.exit_code for failure in failures]
    rules = {page.code: index for index, page in enumerate(pages)}
    rows = [(report.model.path, str(report.target), item) for report in reports for item in _items(report)]
    rows += [(failure.model, failure.target, finding) for failure in failures for finding in failure.findings]
    results = [_result(path, target, item, rules, root) for path, target, item in rows]
    driver = {
        "name": "trtconv",
        "semanticVersion": __version__,
        "version": __version__,
        "rules": [_rule(page) for page in pages],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "trtconv/check/"},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": _artifact(report.model.path, root)} for report in reports],
        "invocations": [
            {
                "executionSuccessful": not failures,
                "exitCode": max(codes, default=0),
                "toolExecutionNotifications": [_notification(failure, root) for failure in failures],
            }
        ],
        "results": results,
    }
    return safe(json.dumps({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2))


def _notification(failure: FailedRun, root: Path | None) -> dict[str, object]:
    place = {"physicalLocation": {"artifactLocation": _artifact(failure.model, root)}}
    return {"level": "error", "message": {"text": f"{failure.message}\n{failure.advice}".strip()}, "locations": [place]}


def _items(report: CheckReport) -> list[Finding | Ignored]:
    return [*report.findings, *report.ignored]


def _rule(page: Page) -> dict[str, object]:
    text = page.page.strip()
    return {
        "id": page.code,
        "name": "".join(word.capitalize() for word in page.name.split("-")),
        "shortDescription": {"text": page.summary},
        "fullDescription": {"text": page.summary},
        "help": {"text": text, "markdown": markdown(page)},
        "properties": {"tags": ["onnx", "tensorrt"]},
    }


def _result(
    path: str, target: str, item: Finding | Ignored, rules: dict[str, int], root: Path | None
) -> dict[str, object]:
    finding = item.finding if isinstance(item, Ignored) else item
    model = _artifact(path, root)
    place = finding.location
    fix = f"\n{finding.fix}" if finding.fix else ""
    result: dict[str, object] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{place}: {finding.message}{fix}"},
        "analysisTarget": model,
        "partialFingerprints": {"trtconv/v1": _fingerprint(path, finding)},
        "properties": {"target": target, "mendedBy": finding.mended_by},
    }
    # Version 2.1.0 wants ruleIndex to be there only where it is known.
    if finding.code in rules:
        result["ruleIndex"] = rules[finding.code]
    location: dict[str, object] = {
        "physicalLocation": {"artifactLocation": model},
        "logicalLocations": [_logical(place)],
    }
    line = _line(place, root)
    if line is not None:
        result["relatedLocations"] = [{**location, "message": {"text": "the model"}}]
        location = {**location, "physicalLocation": line}
    result["locations"] = [location]
    if isinstance(item, Ignored):
        result["suppressions"] = [{"kind": "external", "justification": item.reason}]
    return result


def _fingerprint(path: str, finding: Finding) -> str:
    """Returns what stays the same where other nodes come and go: a node is known by its name if it has one."""
    place = finding.location
    node = place.node or f"{place.op}[{place.index}]"
    what = "\0".join((Path(path).name, finding.code, place.graph, node, place.tensor))
    return hashlib.sha256(what.encode(errors="surrogatepass")).hexdigest()[:32]


def _logical(place: Location) -> dict[str, str]:
    node = "" if place.index is None else f"node[{place.index}]"
    name = place.node or place.tensor or node or place.graph or "graph"
    kind = "function" if place.op or node else "variable" if place.tensor else "module"
    path = "/".join(part for part in (place.graph or "graph", node, place.node, place.tensor) if part)
    return {"name": name, "fullyQualifiedName": path, "kind": kind}


def _line(place: Location, root: Path | None) -> dict[str, object] | None:
    file, _, line = place.source.rpartition(":")
    if not file or not line.isdigit() or int(line) < 1:
        return None
    return {"artifactLocation": _artifact(file, root), "region": {"startLine": int(line)}}


def _artifact(path: str, root: Path | None) -> dict[str, str]:
    """Returns a relative address for what lies under the root, else one that stands for itself."""
    relative = relative_path(path, root)
    if relative is not None:
        return {"uri": _address(relative), "uriBaseId": _ROOT}
    return {"uri": "file:///" + _address(path.lstrip("/\\"))}


def relative_path(path: str, root: Path | None) -> str | None:
    """Returns the path of a file under a folder, with slashes; None for one elsewhere."""
    plain = path.replace("\\", "/")
    if not plain.startswith("/") and not re.match(r"[A-Za-z]:/", plain):
        plain = re.sub(r"^(\./)+", "", plain)
        return None if plain.startswith("../") else plain
    if root is None:
        return None
    prefix = root.as_posix().rstrip("/") + "/"
    return plain.removeprefix(prefix) if plain.startswith(prefix) else None


def _address(path: str) -> str:
    return quote(path.replace("\\", "/").encode(errors="surrogateescape"))
