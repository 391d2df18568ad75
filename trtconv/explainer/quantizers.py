"""The quantisers around a transposed convolution, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx import NodeProto

from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.requests.explain import Quantization
from trtconv.explainer.place import weight_shape
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv

if TYPE_CHECKING:
    from trtconv.explainer.context import After, Before

_FLOAT_INPUT = "not dequantised"


@frozen
class Quantizers:
    """The quantisers around a node, in words and numbers."""

    has_weight: bool
    layout: str
    scales: int | None
    axis: int | None
    weight: str
    input: str
    output: str

    @classmethod
    def of(cls, node: Deconv) -> Quantizers:
        """Looks at the quantisers around a node."""
        scope, shape = node.scope, weight_shape(node)
        source = scope.producer(node.node.input[1]) if len(node.node.input) > 1 else None
        has_weight = source is not None and source.op_type == "DequantizeLinear"
        names = ("C_in", "C_out/group", *["k"] * max(0, len(shape or ()) - 2))
        layout = ", ".join(f"{name} {_known(size)}" for name, size in zip(names, shape or (), strict=False))
        scale = scope.values(source.input[1]) if source is not None and has_weight else None
        scales = None if scale is None else int(scale.size)
        axis = None
        if source is not None and scales is not None and scales > 1:
            axis = next((a.i for a in source.attribute if a.name == "axis"), 1) % max(1, len(shape or (0, 0)))
        users = scope.consumers.get(node.node.output[0], ())
        return cls(
            has_weight,
            f"({layout})",
            scales,
            axis,
            _weight_text(scope, source, scales, axis) if source is not None and has_weight else "not quantised",
            _input_text(scope, scope.producer(node.node.input[0])),
            "goes to a QuantizeLinear" if any(n.op_type == "QuantizeLinear" for n in users) else "not quantised",
        )


def _known(size: int | None) -> str:
    return "?" if size is None else str(size)


def _weight_text(scope: Scope, source: NodeProto, scales: int | None, axis: int | None) -> str:
    if scales is None:
        return "dequantised with scales that are computed at run time"
    point = _zero_point(scope, source)
    if axis is None:
        return f"one scale for all channels, {point}"
    whose = {
        0: "the input channels: TensorRT applies them to the output channels",
        1: "the output channels of each group, as TensorRT takes them",
    }
    return f"{scales} scales on axis {axis}, {whose.get(axis, 'a spatial axis, which TensorRT does not take')}; {point}"


def _zero_point(scope: Scope, node: NodeProto) -> str:
    if len(node.input) < 3 or not node.input[2]:
        return "no zero point"
    values = scope.values(node.input[2])
    if values is None:
        return "a computed zero point"
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    return f"{values.dtype} with zero point {low if low == high else f'{low} to {high}'}"


def _input_text(scope: Scope, source: NodeProto | None) -> str:
    if source is None or source.op_type != "DequantizeLinear":
        return _FLOAT_INPUT
    return f"dequantised, {_zero_point(scope, source)}"


def _in_float(findings: Sequence[Finding]) -> str:
    """Returns why a deconvolution runs in float, or an empty string."""
    return next((f.message.partition(": ")[2] for f in findings if f.code == "TC311"), "")


def quantization_of(before: Before, after: After) -> Quantization | None:
    """Says what is quantised, and what the passes did to it; None where nothing is."""
    old = before.quantizers
    if not old.has_weight and old.input == _FLOAT_INPUT:
        return None
    findings = tuple(f for f in before.findings if f.code.startswith("TC3"))
    reasons = _in_float(before.findings)
    if after.node is not None and Quantizers.of(after.node).has_weight:
        # The passes may have taken the traces of the reason away: what they compute in float is no longer a quantiser.
        why_not = _in_float(after.findings) and (reasons or _in_float(after.findings))
    elif old.has_weight:
        why_not = "; ".join(filter(None, [reasons, "the passes compute its weight in float"]))
    else:
        why_not = "its weight is not quantised"
    return Quantization(
        old.layout, old.scales, old.axis, old.weight, old.input, old.output, not why_not, why_not, findings
    )
