"""`trtconv upgrade`: models on two TensorRTs, as text and as what CI formats are made of."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.cli.formats.wording import count, table
from trtconv.core.documents.check import CheckReport, FailedRun, ParserVerdict
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.upgrade import Effect, Fate, ModelUpgrade, TrialSummary, UpgradeReport
from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.core.text import indented, leading

_HEADINGS = ("model", "from", "to", "error", "build, s", "layers", "verdict")
_SHOWN = 5


def upgrade_text(report: UpgradeReport, verbose: bool = False) -> str:
    """Renders the report; the last line is the verdict.

    Args:
        report: What was found.
        verbose: List every node that is parsed otherwise.
    """
    rows = [(leading(upgrade.model), *cells(upgrade)) for upgrade in report.models]
    details = (line for upgrade in report.models for line in _details(upgrade, verbose))
    title = f"from {report.before} to {report.after}"
    return "\n".join([title, "", *table([_HEADINGS, *rows], ""), *details, "", verdict(report)])


def cells(upgrade: ModelUpgrade) -> tuple[str, ...]:
    """Returns what a table shows of a model behind its name."""
    one, other = upgrade.before, upgrade.after
    return (
        fate_text(one),
        fate_text(other),
        _pair(_error(one), _error(other)),
        _pair(_seconds(one), _seconds(other)),
        f"{len(upgrade.layers)} otherwise" if upgrade.layers else str(other.layers or "-"),
        upgrade.change.value,
    )


def fate_text(side: TrialSummary) -> str:
    """Returns what became of a model on a side, with the codes of errors."""
    return f"{side.fate.value} ({', '.join(side.codes)})" if side.codes else side.fate.value


def verdict(report: UpgradeReport) -> str:
    """Returns how many models the upgrade means what for."""
    counts = [f"{number} {name}" for name, number in report.summary().items() if number]
    return f"{count(len(report.models), 'model')}: {', '.join(counts)}"


def _pair(one: str, other: str) -> str:
    return one if one == other else f"{one} -> {other}"


def _error(side: TrialSummary) -> str:
    return "-" if side.error is None else f"{side.error:.1e}"


def _seconds(side: TrialSummary) -> str:
    return "-" if side.build_s is None else f"{side.build_s:.1f}"


def _details(upgrade: ModelUpgrade, verbose: bool) -> Iterator[str]:
    findings = upgrade.findings if verbose else (*upgrade.regressions, *_notes(upgrade)[:_SHOWN])
    lines = [line for finding in findings for line in indented(_line(finding), "    ", "  ")]
    for side in _untried(upgrade)[:1]:
        lines += [*indented(side.why, "  "), *indented(side.hint, "    ", "  hint: ")]
    more = len(upgrade.findings) - len(findings)
    if more:
        lines.append(f"  and {count(more, 'more node')} parsed otherwise: -v")
    if lines:
        yield from ("", leading(upgrade.model), *lines)


def _notes(upgrade: ModelUpgrade) -> tuple[Finding, ...]:
    return tuple(finding for finding in upgrade.findings if finding not in upgrade.regressions)


def _untried(upgrade: ModelUpgrade) -> list[TrialSummary]:
    return [side for side in (upgrade.before, upgrade.after) if side.fate is Fate.NOT_TRIED]


def _line(finding: Finding) -> str:
    node = finding.location.node
    return f"{finding.code} {finding.severity.value}: {f'{node}: ' if node else ''}{finding.message}"


def as_results(report: UpgradeReport) -> list[CheckReport | FailedRun]:
    """Returns the models as checks against the new version: CI formats are made of these."""
    runtime = report.after
    target = Target.of(runtime.family, runtime.version)
    return [_as_result(upgrade, target, report) for upgrade in report.models]


def _as_result(upgrade: ModelUpgrade, target: Target, report: UpgradeReport) -> CheckReport | FailedRun:
    if upgrade.change is Effect.NOT_TRIED:
        side = _untried(upgrade)[0]
        return FailedRun(upgrade.model, str(target), "NotTried", side.why, side.hint, side.exit_code)
    runtime = report.after
    parser = ParserVerdict(runtime.family, runtime.version, upgrade.after.layers > 0, upgrade.after.fate.good)
    code = 1 if upgrade.regressions else 0
    return CheckReport(FileIdentity(upgrade.model), target, upgrade.findings, parser, code)
