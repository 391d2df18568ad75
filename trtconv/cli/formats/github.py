"""Annotations for GitHub Actions: workflow commands on stdout, one a finding.

Source: GitHub Docs, Workflow commands for GitHub Actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtconv.cli.formats.sarif import relative_path
from trtconv.cli.formats.text import ignored_lines, run_summary
from trtconv.core.documents.check import CheckReport, FailedRun
from trtconv.core.findings import Finding, Severity
from trtconv.core.text import annotation, clean

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def check_github(reports: Sequence[CheckReport], root: Path | None = None, failures: Sequence[FailedRun] = ()) -> str:
    """Renders checks as annotations, then one line a model that the log shows as it is.

    Args:
        reports: One check or more.
        root: The checkout; files under it are named relative to it, as GitHub wants them.
        failures: Models that could not be checked.
    """
    # A model that is checked for two targets mostly has the same findings for both: each is said once.
    findings = [(report.model.path, finding) for report in reports for finding in report.findings]
    findings += [(failure.model, finding) for failure in failures for finding in failure.findings]
    lines = list(dict.fromkeys(_annotation(model, finding, root) for model, finding in findings))
    for failure in failures:
        if failure.findings:
            continue
        file = relative_path(failure.model, root) or failure.model
        text = f"{failure.message}\n{failure.advice}".strip()
        lines.append(annotation("error", {"file": file, "title": f"trtconv {failure.kind}"}, text))
    for report in reports:
        # In one line: what a reason says in another could be read as a command.
        ignored = " ".join(line.strip() for line in ignored_lines(report.ignored))
        lines.append("; ".join(part for part in (run_summary(report), ignored) if part))
    return "\n".join(lines)


def _annotation(model: str, finding: Finding, root: Path | None) -> str:
    file, _, line = finding.location.source.rpartition(":")
    path = file or model
    properties = {"file": relative_path(path, root) or path}
    if file:
        properties["line"] = line
    properties["title"] = f"{finding.code} {finding.name}"
    message = f"{clean(model)}: {clean(str(finding.location))}: {finding.message}"
    if finding.fix:
        message += f"\n{finding.fix}"
    return annotation(_COMMANDS[finding.severity], properties, message)
