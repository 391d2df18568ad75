"""The quantisers around a transposed convolution, in words."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.core.codes import CodeFamily
from trtconv.core.documents.explain import Quantization
from trtconv.core.findings import Finding
from trtconv.graph.views import Deconv, Linear
from trtconv.rules.deconv_not_int8 import why_in_float


def quantization_of(node: Deconv, findings: Sequence[Finding], result: Deconv | None) -> Quantization | None:
    """Says what is quantised, and what the passes did to it.

    Args:
        node: The node as it is.
        findings: What the rules have against it and its quantisers.
        result: The node after the passes; None where it is gone.

    Returns:
        None where neither weight nor input is quantised.
    """
    weight, source = node.dequantizer(1), node.dequantizer(0)
    if weight is None and source is None:
        return None
    scales, axis = _scales(node, weight)
    why_not = _why_not(node, weight, result)
    return Quantization(
        layout=_layout(node),
        scales=scales,
        axis=axis,
        weight="not quantised" if weight is None else _weight_text(weight, scales, axis),
        input="not dequantised" if source is None else f"dequantised, {_zero_point(source)}",
        output="goes to a QuantizeLinear" if node.is_quantized_behind else "not quantised",
        int8=not why_not,
        why_not=why_not,
        findings=tuple(finding for finding in findings if CodeFamily.of(finding.code) is CodeFamily.QUANTIZATION),
    )


def _layout(node: Deconv) -> str:
    shape = node.weight_shape or ()
    names = ("C_in", "C_out/group", *["k"] * max(0, len(shape) - 2))
    sizes = ("?" if size is None else str(size) for size in shape)
    return f"({', '.join(f'{name} {size}' for name, size in zip(names, sizes, strict=False))})"


def _scales(node: Deconv, weight: Linear | None) -> tuple[int | None, int | None]:
    """Returns how many scales a weight has, and the axis of several."""
    if weight is None or weight.scale is None:
        return None, None
    count = int(weight.scale.size)
    rank = len(node.weight_shape or (0, 0))
    return count, int(weight.attributes.get("axis", 1)) % max(1, rank) if count > 1 else None


def _weight_text(weight: Linear, scales: int | None, axis: int | None) -> str:
    if scales is None:
        return "dequantised with scales that are computed at run time"
    point = _zero_point(weight)
    if axis is None:
        return f"one scale for all channels, {point}"
    whose = {
        0: "the input channels: TensorRT applies them to the output channels",
        1: "the output channels of each group, as TensorRT takes them",
    }
    return f"{scales} scales on axis {axis}, {whose.get(axis, 'a spatial axis, which TensorRT does not take')}; {point}"


def _zero_point(linear: Linear) -> str:
    if not linear.has_zero_point:
        return "no zero point"
    values = linear.zero_point
    if values is None:
        return "a computed zero point"
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    return f"{values.dtype} with zero point {low if low == high else f'{low} to {high}'}"


def _why_not(node: Deconv, weight: Linear | None, result: Deconv | None) -> str:
    """Returns why the node will not run in int8, or an empty string."""
    reasons = why_in_float(node)
    if result is not None and result.dequantizer(1) is not None:
        # The passes may have taken the traces of the reason away: what they compute in float is no longer a quantiser.
        return why_in_float(result) and (reasons or why_in_float(result))
    if weight is not None:
        return "; ".join(filter(None, [reasons, "the passes compute its weight in float"]))
    return "its weight is not quantised"
