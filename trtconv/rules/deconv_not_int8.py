"""TC311."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from trtconv.core.findings import Finding, Severity
from trtconv.core.target import Target
from trtconv.graph.deconv import INT8_CHANNELS, Geometry
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import UINT8_MIDDLE
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv, deconvs
from trtconv.rules.base import DeconvRule

_DEQUANTIZERS = ("DequantizeLinear",)
_FLOAT8 = "TRT_FP8DequantizeLinear"
"""TensorRT's own operator, which ModelOpt writes."""


class DeconvNotInt8(DeconvRule):
    """A deconvolution between Q/DQ nodes will not run in int8.

    What it checks:
        ConvTranspose nodes whose weight is dequantised: what their input and weight are quantised to, channels per
        group, rank, and the QuantizeLinear behind. Those whose weight is float, in a network whose other layers are
        quantised: some quantisers leave the last deconvolution, or all of them, as they were.
    Why TensorRT cares:
        It then runs the layer in float on dequantised values: right, within rounding, but not faster than float.
    Versions:
        8.6 (measured: group > 1, and 3-D without a quantiser behind); others by the documented limits of int8 kernels.
        The rule of 4 channels is one of those, and was not measured. What float8 deconvolutions run in is not known.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <float[2,3,1,1] w = {1,2,3,4,5,6}>
        { y = ConvTranspose (x, w) }
    Fix:
        Give the layer what the message names, or leave it in float.
    Source:
        Measured, see docs/quantization.md; TensorRT developer guide, working with INT8.
    """

    code = "TC311"
    name = "deconv-not-int8"
    severity = Severity.INFO
    fix = "Give the layer what the message names, or leave it in float."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        kind, why = weight_type(deconv), why_in_float(deconv)
        if not why:
            return None
        if kind is None:
            return f"its weight is not quantised, in a network whose layers are: {why}"
        return f"its weight is {kind}: {why}" if _is_float8(kind) else f"will not run in int8: {why}"


def with_first_reasons(before: Sequence[Finding], after: Sequence[Finding], model: OnnxModel) -> tuple[Finding, ...]:
    """Returns what is left after the passes, with why a deconvolution runs in float told of the model as it was.

    A pass that computes quantisers or weights in float takes the traces of the reason away, but not the reason.

    Args:
        before: Findings of all rules about the model as it was.
        after: Those about the model after the passes.
        model: The model after the passes.
    """
    code = DeconvNotInt8.code
    quantized = {node.node.name for node in deconvs(model) if is_quantized(node)}
    computed = {node.node.name for node in deconvs(model) if may_be_computed(node)}
    earlier = {f.fault: f for f in before if f.code == code}
    later = {f.fault: f for f in after if f.code == code}
    rest = [earlier.get(key, f) if f.location.node in computed else f for key, f in later.items()]
    folded = [f for key, f in earlier.items() if key not in later and f.location.node not in quantized]
    return (*(f for f in after if f.code != code), *rest, *folded)


def why_in_float(deconv: Deconv) -> str:
    """Returns why a deconvolution among quantised layers runs in float; empty where it does not, or is not known to."""
    kind = weight_type(deconv)
    if not isinstance(deconv.geometry, Geometry):
        return ""
    if kind is None:
        return "it runs in float" if _among_quantized(deconv) else ""
    if _is_float8(kind):
        return "TensorRT has no float8 deconvolution that was ever measured, and may run float"
    return "; ".join(_reasons(deconv, deconv.geometry))


def may_be_computed(deconv: Deconv) -> bool:
    """Whether what quantised a deconvolution may have been computed in float by a pass: then the reason for which it
    runs in float is another than the one that is seen now."""
    kind = weight_type(deconv)
    if kind is None:
        return _among_quantized(deconv)
    return not _is_float8(kind) and deconv.dequantizer(0) is None


def _is_float8(kind: str) -> bool:
    return kind.startswith("float8")


def is_quantized(deconv: Deconv) -> bool:
    """Whether a deconvolution's weight is dequantised."""
    return weight_type(deconv) is not None


def weight_type(deconv: Deconv) -> str | None:
    """Returns the type that a deconvolution's weight is dequantised from, "int8" where that is not known; or None."""
    weight = deconv.scope.producer(deconv.node.input[1]) if len(deconv.node.input) > 1 else None
    if weight is None or weight.op_type not in (*_DEQUANTIZERS, _FLOAT8):
        return None
    return "float8e4m3fn" if weight.op_type == _FLOAT8 else _type_of(deconv.scope, weight) or "int8"


def _type_of(scope: Scope, dequantizer: onnx.NodeProto) -> str | None:
    """Returns the type on the integer side of a DequantizeLinear, as ONNX names it in lower case."""
    point = dequantizer.input[2] if len(dequantizer.input) > 2 else ""
    dtype = scope.dtype(point) if point else scope.dtype(dequantizer.input[0])
    return None if dtype is None else dtype.replace("_", "")


def _among_quantized(deconv: Deconv) -> bool:
    """Whether a deconvolution with a constant float weight stands in a network whose layers are quantised."""
    scope, node = deconv.scope, deconv.node
    if len(node.input) < 2 or scope.initializer(node.input[1]) is None or "DequantizeLinear" not in scope.by_op:
        return False
    layers = (scope.columns.nodes[i] for op in ("Conv", "ConvTranspose") for i in scope.by_op.get(op, ()))
    makers = (scope.producer(layer.input[1]) for layer in layers if len(layer.input) > 1)
    return any(maker is not None and maker.op_type in _DEQUANTIZERS for maker in makers)


def _reasons(deconv: Deconv, geometry: Geometry) -> list[str]:
    reasons = []
    scope = deconv.scope
    for slot, what in enumerate(("input", "weight")):
        source = scope.producer(deconv.node.input[slot])
        if source is not None and source.op_type == "DequantizeLinear":
            reasons += _foreign(scope, source, what)
        elif what == "input":
            reasons.append("its input is not dequantised")
    shape = deconv.weight_shape
    if shape is not None and shape[0] is not None and shape[1] is not None:
        ins, outs = shape[0] // geometry.group, shape[1]
        if ins % INT8_CHANNELS or outs % INT8_CHANNELS:
            reasons.append(f"{ins} input and {outs} output channels a group are not multiples of {INT8_CHANNELS}")
    if geometry.group > 1:
        reasons.append(f"it has {geometry.group} groups")
    if geometry.rank == 3 and not deconv.is_quantized_behind:
        reasons.append("it is 3-D and its output is not quantised")
    return reasons


def _foreign(scope: Scope, source: onnx.NodeProto, what: str) -> list[str]:
    """Says in what an input or weight differs from int8 around 0; nothing where it does not, or is moved there."""
    kind = _type_of(scope, source)
    points = scope.values(source.input[2]) if len(source.input) > 2 and source.input[2] else None
    if kind in ("int16", "uint16"):
        return [f"its {what} is quantised to 16 bits ({kind})"]
    # Of empty ones TC302 and TC312 say that they do not fit, of others TC313 that they are of another type.
    if points is None or not points.size or points.dtype.kind not in "iu":
        return []
    zero_points = sorted({int(point) for point in points.reshape(-1)})
    if kind == "uint8" and zero_points != [UINT8_MIDDLE]:
        return [f"its {what} is quantised to uint8 around {zero_points[0]}, and int8 around 0 has not that range"]
    if kind == "int8" and zero_points != [0]:
        return [f"its {what} is quantised asymmetrically"]
    return []
