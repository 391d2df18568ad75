"""Rounding without Round: every float32 near a tie, and the limits."""

from __future__ import annotations

import numpy as np
import pytest

from support.onnx_models import RTX, parse, rewritten
from support.session import Array, run
from trtconv.passes import PASSES

IN_FLOAT = tuple(p for p in PASSES if p.name in ("normalize-quantizers", "compute-asymmetric-in-float"))


def near_ties() -> Array:
    """Multiples of a half within the range of 16 bits and beyond, and the float32 next to each on both sides."""
    middles = np.arange(-70000, 70000, 0.5, dtype=np.float32)
    tiny = np.array([0.0, -0.0, 1e-30, -1e-30, 1e-10, -1e-10, np.inf, -np.inf, 1e30, -1e30], np.float32)
    low, high = (np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf))
    return np.concatenate([middles, low, high, tiny])


@pytest.mark.parametrize("opset", [10, 11])
@pytest.mark.parametrize(("dtype", "point"), [("uint8", 99), ("int8", -3), ("uint16", 500), ("int16", 7)])
def test_every_tie_is_rounded_to_the_even_number(opset: int, dtype: str, point: int) -> None:
    domain = "com.microsoft." if dtype.endswith("16") else ""
    proto = parse(
        f"""<ir_version: 5, opset_import: ["": {opset}, "com.microsoft": 1]>
        g (float[n] x) => (float[n] y) <float s = {{1}}, {dtype} z = {{{point}}}>
        {{ q = {domain}QuantizeLinear (x, s, z)
          y = {domain}DequantizeLinear (q, s, z) }}"""
    )
    model, result = rewritten(proto, RTX, IN_FLOAT)
    assert not result.skipped
    operators = {node.op_type for node in model.proto.graph.node}
    assert "QuantizeLinear" not in operators
    assert ("Round" in operators) == (opset >= 11)
    x = near_ties()
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(x.astype(np.float64)), limits.min - point, limits.max - point)
    assert np.array_equal(run(model.proto, {"x": x})[0], expected.astype(np.float32))
