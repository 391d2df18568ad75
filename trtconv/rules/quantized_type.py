"""TC315."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule

_NOWHERE = frozenset({"FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E4M3FNUZ", "FLOAT8E8M0", "UINT4", "INT2", "UINT2"})
_NEWER = frozenset({"FLOAT8E4M3FN", "INT4", "FLOAT4E2M1"})
"""Types that TensorRT 8 has not."""


class QuantizedType(LinearRule):
    """Values are quantised to a type that TensorRT does not quantise to.

    What it checks:
        The type that QuantizeLinear makes, by its zero point or output_dtype: the float8 types beside FLOAT8E4M3FN,
        uint4, int2 and uint2; for TensorRT 8 also FLOAT8E4M3FN, float4 and int4.
    Why TensorRT cares:
        Of float8 types it has FLOAT8E4M3FN alone. It refuses the zero point of another type by its name, or the
        attribute as one of float32, and names no node.
    Versions:
        All; FLOAT8E4M3FN, float4 and int4: 8.
    Before:
        <ir_version: 10, opset_import: ["": 21]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}>
        { q = QuantizeLinear <output_dtype = 19> (x, s)
          y = DequantizeLinear (q, s) }
    After:
        <ir_version: 10, opset_import: ["": 21]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}>
        { q = QuantizeLinear <output_dtype = 3> (x, s)
          y = DequantizeLinear (q, s) }
    Fix:
        Quantise in FLOAT8E4M3FN, or in int8 around 0, which TensorRT 8 has too. Both have other scales and other
        numbers, so that no pass does it.
    Source:
        Parser of RTX 1.7.
    """

    code = "TC315"
    name = "quantized-type"
    fix = "Quantise the float model in FLOAT8E4M3FN (trtconv quantize --kind fp8) or int8, for TensorRT 8 in int8."

    def fault(self, linear: Linear, target: Target) -> str | None:
        kind = _kind(linear) if linear.quantizes else None
        if kind not in _NOWHERE and not (target.before(9) and kind in _NEWER):
            return None
        takes = "int8" if target.before(9) else "FLOAT8E4M3FN of the float8 types, and int8"
        return f"it quantises to {kind}, which {target} does not have: it takes {takes}"


def _kind(linear: Linear) -> str | None:
    """Returns the type that a QuantizeLinear makes, as ONNX calls it; None where nothing says."""
    point = linear.zero_point
    code = linear.asked_type if point is None else onnx.helper.np_dtype_to_tensor_dtype(point.dtype)
    return onnx.TensorProto.DataType.Name(code) if code else None
