"""What an export reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from trtconv.core.dims import Range
from trtconv.core.documents.export import Branch, ExportReport, SizeRule
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.findings import worst
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.exporter.file.write import has_data_beside
from trtconv.exporter.job import Draft, Job, interface_of
from trtconv.exporter.request import ExportOptions


def report_of(job: Job, spec: str, draft: Draft) -> ExportReport:
    """Returns the report of an export whose draft was taken."""
    inputs, outputs = interface_of(job, job.rules)
    notes = [*job.subject.notes, *draft.notes]
    notes += _notes_on(job.rules)
    branches = (*job.branches, *job.branches_on_sizes.values())
    notes += [_branch_text(branch) for branch in branches]
    unmet = [place for place in job.options.accepted if not any(branch.is_at(place) for branch in branches)]
    notes += [f"--accept-branch {place}: there is no branch to accept" for place in unmet]
    if job.trials.exhausted:
        notes.append("trying sizes took too long and was cut short: what is said of them may be too lenient")
    return ExportReport(
        spec=spec,
        output=None,
        exporter=draft.exporter,
        opset=max(o.version for o in draft.proto.opset_import if o.domain in ("", "ai.onnx")),
        ir_version=draft.proto.ir_version,
        inputs=inputs,
        outputs=outputs,
        sizes=job.rules,
        joint=job.joint,
        attempts=tuple(job.attempts),
        branches=tuple(branch for branch in branches if not branch.check),
        notes=tuple(notes),
        proof=draft.proof,
        seconds=job.clock.seconds,
    )


def joined(reports: Sequence[ExportReport]) -> ExportReport:
    """Returns the reports of all files of an export as one: that of the first, with the others as its sides."""
    first, *others = reports
    return dataclasses.replace(first, sides=tuple(others), exit_code=max(report.exit_code for report in reports))


def _branch_text(branch: Branch) -> str:
    """Says what of a branch is in the file."""
    if branch.check:
        return f"not in the file: the check {branch.blame}"
    return f"accepted: {branch.sentence()}"


def _notes_on(rules: Sequence[SizeRule]) -> list[str]:
    """Says what there is to say of the rules, once for dimensions that are alike."""
    remarks: dict[str, list[str]] = {}
    ranges: dict[str, list[str]] = {}
    for rule in rules:
        for text, notes in ((rule.remark, remarks), (_range_note(rule), ranges)):
            if text:
                notes.setdefault(text, []).append(rule.name)
    return [
        *(f"{' and '.join(names)}: {text}" for text, names in remarks.items()),
        *(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} {text}" for text, names in ranges.items()),
    ]


def _range_note(rule: SizeRule) -> str:
    """Says so where the bounds asked for have no valid size at their ends."""
    bounds = rule.asked
    if bounds is None or rule.max is None or (bounds.min == rule.min and bounds.max == rule.max):
        return ""
    why = f", from {rule.narrowed}" if rule.narrowed else ""
    return f"valid from {rule.min} to {rule.max} of {bounds.min}:{bounds.max}{why}"


def written_report(report: ExportReport, output: Path, options: ExportOptions, clock: Stopwatch) -> ExportReport:
    """Returns the report with the file that was written, checked where that was asked for."""
    report = dataclasses.replace(report, output=FileIdentity.of(output))
    return _checked(report, output, options, clock) if options.check else report


def _checked(report: ExportReport, output: Path, options: ExportOptions, clock: Stopwatch) -> ExportReport:
    """Runs `trtconv check` on the file; a machine without a runtime is no failure of the export.

    Weights beside the file are too large for one: to prove what TensorRT parses would take two copies of them, beside
    the module, and as long as the export.
    """
    from trtconv import pipeline
    from trtconv.core.requests.check import CheckRequest

    with clock.stage(Stage.CHECK):
        try:
            dims = bounds_of(report)
            request = CheckRequest(output, dims, target=options.target, fail_on=options.fail_on)
            request = dataclasses.replace(request, plugins=options.plugins, references=options.references)
            if has_data_beside(output):
                request = dataclasses.replace(request, prove="none")
                report = dataclasses.replace(report, notes=(*report.notes, f"{_UNPROVEN}: trtconv check {output}"))
            check = pipeline.check(request)
        except EnvironmentMissing as error:
            return dataclasses.replace(report, notes=(*report.notes, f"not checked: {error.message}"))
    if worst(check.findings) is None:
        return dataclasses.replace(report, check=check)
    return dataclasses.replace(report, check=check, exit_code=check.exit_code)


_UNPROVEN = "what TensorRT parses is left to be proven, since the weights are above 2 GB"


def bounds_of(report: ExportReport) -> dict[str, Range]:
    """Returns the bounds that were asked for, where they are valid, and the example's size for other dimensions."""
    rules = {rule.name: rule for rule in report.sizes}
    dynamic = {dim for dims in report.inputs.values() for dim in dims if isinstance(dim, str)}
    if not dynamic <= rules.keys():
        return {}
    return {
        name: Range(rule.min, rule.example, rule.max)
        if rule.asked is not None and rule.max is not None
        else Range(rule.example, rule.example, rule.example)
        for name, rule in rules.items()
        if name in dynamic
    }
