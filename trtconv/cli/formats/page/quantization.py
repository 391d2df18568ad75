"""What the page of an engine shows of how its model was quantised: each layer, and what it costs."""

from __future__ import annotations

from trtconv.cli.formats.quantize import gain, part_of, percent
from trtconv.cli.formats.wording import count
from trtconv.core.documents.quantize import Layerwise, QuantizeReport
from trtconv.core.frozen import frozen

_MOST_LAYERS = 300


@frozen
class LayerRow:
    """A layer with weights, in words.

    Args:
        node: Its name.
        op: Its operator.
        runs: What it is quantised to, or "float".
        part: How much of all multiply-adds it takes.
        error: How far its result is from that of the float model; empty of those in float.
        alone: By how much the network gets better where it alone is left in float; empty where that was not tried.
        reason: Why it is in float.
    """

    node: str
    op: str
    runs: str
    part: str
    error: str
    alone: str
    reason: str


def quantization(report: QuantizeReport | None) -> dict[str, object] | None:
    """Returns the errors of the outputs and a row a layer, the largest error first; None where nothing is known."""
    if report is None:
        return None
    rows = _rows(report)
    share = report.int8_share
    calibration = report.calibration
    return {
        "kind": report.kind,
        "share": "" if share is None else percent(share),
        "how": f"{count(calibration.samples, 'sample')} of {calibration.source}, by {calibration.method}",
        "errors": [(name, percent(error.rms), f"{error.cosine:.6f}") for name, error in report.error.items()],
        "metric": None if report.metric is None else f"{report.metric.metric} {report.metric.value:.5g}",
        "rows": rows[:_MOST_LAYERS],
        "left": max(0, len(rows) - _MOST_LAYERS),
        "tried": report.budget is not None,
        "doubts": [doubt.message for doubt in calibration.doubts],
    }


def _rows(report: QuantizeReport) -> list[LayerRow]:
    errors = {layer.node: layer.rms for layer in report.per_layer}
    layers = [(layer, report.kind) for layer in report.quantized] + [(layer, "float") for layer in report.left_in_float]
    total = sum(layer.multiply_adds or 0 for layer, _ in layers)

    def row(layer: Layerwise, runs: str) -> LayerRow:
        error = errors.get(layer.node)
        share = "" if error is None else percent(error)
        return LayerRow(
            layer.node, layer.op, runs, part_of(layer, total), share, _alone(report, layer.node), layer.reason
        )

    # Those without an error come last; of a sort that is stable, in the order of the graph.
    return [row(*pair) for pair in sorted(layers, key=lambda pair: -errors.get(pair[0].node, -1.0))]


def _alone(report: QuantizeReport, node: str) -> str:
    budget = report.budget
    if budget is None or node not in budget.alone:
        return ""
    return gain(budget.error_of_all - budget.alone[node], report.metric)
