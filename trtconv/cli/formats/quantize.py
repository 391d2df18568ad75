"""What a person reads of `trtconv quantize`."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.cli.formats.mix import judged_text
from trtconv.cli.formats.wording import byte_size, count, table
from trtconv.core.documents.doubts import Doubt, DoubtKind
from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.documents.quantize import (
    BudgetRecord,
    CacheRecord,
    Calibration,
    LayerError,
    Layerwise,
    QuantizeReport,
)
from trtconv.core.findings import Finding
from trtconv.core.text import clean, indented

_LISTED = 12
"""Layers whose error is listed, the worst first; the rest is only counted."""


def quantize_text(report: QuantizeReport) -> str:
    """Renders a quantisation.

    Returns:
        How it was calibrated, the error whole and by layer, what stays in float; the last line is the outcome.
    """
    blocks = [
        _calibration(report.calibration, report.metric)
        if report.cache is None
        else _cache(report.cache, report.calibration),
        _doubts(report.calibration.doubts),
        _metric(report.metric) if report.metric else "",
        _errors(report),
        _layers(report.per_layer, report.kind),
        _budget(report.budget, report.metric) if report.budget else "",
        _float_layers(report),
        "\n".join(map(clean, report.notes)),
        _findings(report.findings),
        _outcome(report),
    ]
    return "\n\n".join(block for block in blocks if block)


def percent(value: float) -> str:
    """Returns a share as text."""
    return f"{100 * value:.2f} %"


def loss(value: float, metric: MetricResult | None) -> str:
    """Returns an error as text: a share, or by how much a metric is worse."""
    return percent(value) if metric is None else f"{value:.4g} worse"


def gain(value: float, metric: MetricResult | None) -> str:
    """Returns by how much an error, or a metric, gets better."""
    return percent(value) if metric is None else f"{value:.4g}"


def _bar(value: float | None) -> str:
    return "" if value is None else f" +- {100 * value:.2g}"


def _calibration(calibration: Calibration, metric: MetricResult | None) -> str:
    sizes = len(calibration.sizes)
    text = f"calibrated with {count(calibration.samples, 'sample')} of {calibration.source}"
    text += f" at {count(sizes, 'size')}, by {calibration.method}"
    text += ", channels equalised" if calibration.equalized else ""
    text += ", biases corrected" if calibration.biases_corrected else ""
    text += ", kept before" if calibration.cached else ""
    errors = calibration.methods
    texts = ", ".join(f"{name} {loss(errors[name], metric)}" for name in sorted(errors, key=lambda name: errors[name]))
    what = "error" if metric is None else clean(metric.metric)
    return clean(text) + (f"\n{what} by method: {texts}" if texts else "")


def _doubts(doubts: Sequence[Doubt]) -> str:
    """Says which samples mislead; of outlying ones, which may be many, the first."""
    lines = [line for doubt in doubts[:_LISTED] for line in indented(doubt.message, "  ")]
    more = [f"  ... and {len(doubts) - _LISTED} more"] if len(doubts) > _LISTED else []
    return "\n".join(["the samples may mislead:", *lines, *more]) if doubts else ""


def _cache(cache: CacheRecord, calibration: Calibration) -> str:
    lines = [f"{cache.file}, {calibration.method}: {cache.used} of its {count(cache.scales, 'scale')} are used"]
    if cache.unknown:
        names = ", ".join(cache.unknown[:_LISTED]) + (", ..." if len(cache.unknown) > _LISTED else "")
        lines.append(f"{count(len(cache.unknown), 'name')} that no tensor of the model has: {names}")
    if cache.other:
        first = cache.other[0]
        case = f"first {first.tensor}: {first.written:.6g} in place of {first.cached:.6g}"
        lines.append(f"{count(len(cache.other), 'scale')} written otherwise, as tensors share one or must not: {case}")
    return "\n".join(map(clean, lines))


def _metric(metric: MetricResult) -> str:
    unseen = f"{count(metric.samples, 'sample')} that calibration did not see"
    return f"{clean(metric.metric)} {judged_text(metric)} on {unseen}; {metric.goal} is asked for"


def _errors(report: QuantizeReport) -> str:
    if not report.error:
        return "the error was not measured: no samples were given (--data)"
    rows = [
        (clean(name), f"rms {percent(error.rms)}{_bar(error.standard_error)}", f"cosine {error.cosine:.6f}")
        for name, error in report.error.items()
    ]
    return "\n".join(["error against the float model, on samples that calibration did not see:", *table(rows, "  ")])


def _layers(layers: Sequence[LayerError], kind: str) -> str:
    if not layers:
        return ""
    worst = sorted(layers, key=lambda layer: -layer.rms)[:_LISTED]
    rows = [(clean(layer.node), layer.op, f"rms {percent(layer.rms)}", f"cosine {layer.cosine:.6f}") for layer in worst]
    more = len(layers) - len(worst)
    lines = [f"{count(len(layers), 'layer')} in {kind}, by the error of their results, the largest first:"]
    return "\n".join([*lines, *table(rows, "  "), *([f"  ... and {more} more"] if more else [])])


def _budget(budget: BudgetRecord, metric: MetricResult | None) -> str:
    limit = percent(budget.asked) if metric is None else f"{clean(metric.metric)} {budget.asked:g}"
    what = "the error" if metric is None else "it"
    lines = [f"budget: {limit}; with every layer quantised {what} is {loss(budget.error_of_all, metric)}"]
    rows = [
        (clean(step.node), f"to {loss(step.error, metric)}", f"gains {gain(step.gain, metric)}")
        for step in budget.left_in_float
    ]
    lines += table(rows, "  left in float: ") if rows else []
    lines += [] if budget.met else ["  the budget is not met by leaving out any more"]
    if budget.alone:
        gains = {name: budget.error_of_all - error for name, error in budget.alone.items()}
        first = sorted(gains, key=lambda name: -gains[name])[:_LISTED]
        lines += ["what each layer alone would gain in float, the most first:"]
        lines += table([(clean(name), gain(gains[name], metric)) for name in first], "  ")
        lines += [f"  ... and {len(gains) - len(first)} more"] if len(gains) > len(first) else []
    return "\n".join(lines)


def _float_layers(report: QuantizeReport) -> str:
    share = report.int8_share
    lines = [] if share is None else [f"{100 * share:.1f} % of the multiply-adds are in {report.kind}"]
    layers = report.left_in_float
    if layers:
        total = sum(layer.multiply_adds or 0 for layer in (*report.quantized, *layers))
        rows = [(clean(layer.node), layer.op, part_of(layer, total), clean(layer.reason)) for layer in layers]
        lines += [f"{count(len(layers), 'layer')} in float:", *table(rows, "  ")]
    return "\n".join(lines)


def part_of(layer: Layerwise, total: int) -> str:
    """Returns how much of all multiply-adds a layer takes."""
    return "" if layer.multiply_adds is None or not total else f"{100 * layer.multiply_adds / total:.1f} %"


def _findings(findings: Sequence[Finding]) -> str:
    lines: list[str] = []
    for finding in findings:
        lines += indented(f"{finding.severity.value} {finding.code} {finding.location.node}: {finding.message}", "  ")
    return "\n".join(["check says of the result:", *lines]) if lines else ""


def _outcome(report: QuantizeReport) -> str:
    worst = max((error.rms for error in report.error.values()), default=0.0)
    output, metric = report.output, report.metric
    if output:
        error = f", error {percent(worst)}" if report.error else ""
        error += f", {metric.metric} {metric.value:.5g}" if metric else ""
        return clean(f"wrote {output.path}: {byte_size(output.bytes)}{error}")
    if report.budget and not report.quantized:
        why = f"NOT WRITTEN: the budget leaves no layer in {report.kind}."
        return f"{why}\nBuild the float model, or allow a larger error."
    if metric is None:
        why = f"the error of {percent(worst)} is above the tolerance of {percent(report.tolerance)}"
    else:
        why = f"{clean(metric.metric)} is {metric.value:.5g}, and {metric.goal} is asked for"
    first = "Give more samples"
    if any(doubt.kind is DoubtKind.OUTLYING for doubt in report.calibration.doubts):
        first = "Leave out the outlying samples above"
    return (
        f"NOT WRITTEN: {why}.\n"
        f"{first}, leave layers in float with --error-budget or --float, or allow more with --tolerance."
    )
