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
    rows = [(leading(each.model), *cells(each)) for each in report.models]
    details = (line for each in report.models for line in _details(each, verbose))
    title = f"from {report.before} to {report.after}"
    return "\n".join([title, "", *table([_HEADINGS, *rows], ""), *details, "", verdict(report)])


def cells(each: ModelUpgrade) -> tuple[str, ...]:
    """Returns what a table shows of a model behind its name."""
    one, other = each.before, each.after
    return (
        fate_text(one),
        fate_text(other),
        _pair(_error(one), _error(other)),
        _pair(_seconds(one), _seconds(other)),
        f"{len(each.layers)} otherwise" if each.layers else str(other.layers or "-"),
        each.change.value,
    )


def fate_text(side: TrialSummary) -> str:
    """Returns what became of a model on a side, with the codes of errors."""
    return f"{side.fate.value} ({', '.join(side.codes)})" if side.codes else side.fate.value


def verdict(report: UpgradeReport) -> str:
    """Returns how many models the upgrade means what for."""
    told = [f"{number} {name}" for name, number in report.summary().items() if number]
    return f"{count(len(report.models), 'model')}: {', '.join(told)}"


def _pair(one: str, other: str) -> str:
    return one if one == other else f"{one} -> {other}"


def _error(side: TrialSummary) -> str:
    return "-" if side.error is None else f"{side.error:.1e}"


def _seconds(side: TrialSummary) -> str:
    return "-" if side.build_s is None else f"{side.build_s:.1f}"


def _details(each: ModelUpgrade, verbose: bool) -> Iterator[str]:
    found = each.findings if verbose else (*each.regressions, *_notes(each)[:_SHOWN])
    lines = [line for finding in found for line in indented(_line(finding), "    ", "  ")]
    for side in _untried(each)[:1]:
        lines += [*indented(side.why, "  "), *indented(side.hint, "    ", "  hint: ")]
    more = len(each.findings) - len(found)
    if more:
        lines.append(f"  and {count(more, 'more node')} parsed otherwise: -v")
    if lines:
        yield from ("", leading(each.model), *lines)


def _notes(each: ModelUpgrade) -> tuple[Finding, ...]:
    return tuple(finding for finding in each.findings if finding not in each.regressions)


def _untried(each: ModelUpgrade) -> list[TrialSummary]:
    return [side for side in (each.before, each.after) if side.fate is Fate.NOT_TRIED]


def _line(finding: Finding) -> str:
    node = finding.location.node
    return f"{finding.code} {finding.severity.value}: {f'{node}: ' if node else ''}{finding.message}"


def as_results(report: UpgradeReport) -> list[CheckReport | FailedRun]:
    """Returns the models as checks against the new version: CI formats are made of these."""
    runtime = report.after
    target = Target.of(runtime.family, runtime.version)
    return [_as_result(each, target, report) for each in report.models]


def _as_result(each: ModelUpgrade, target: Target, report: UpgradeReport) -> CheckReport | FailedRun:
    if each.change is Effect.NOT_TRIED:
        side = _untried(each)[0]
        return FailedRun(each.model, str(target), "NotTried", side.why, side.hint, side.exit_code)
    runtime = report.after
    parser = ParserVerdict(runtime.family, runtime.version, each.after.layers > 0, each.after.fate.good)
    code = 1 if each.regressions else 0
    return CheckReport(FileIdentity(each.model), target, each.findings, parser, code)
