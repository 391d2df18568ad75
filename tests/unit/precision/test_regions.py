"""Which parts of a graph a cast leaves alone."""

from __future__ import annotations

import pytest

from support.sizes import parse
from trtconv.precision.regions import quantized_nodes

NET = """g (float[1,4] x, bool c) => (float[1,4] y, float[1,4] z) <float s = {{0.1}}, int8 p = {{0}}>
    {{ q = QuantizeLinear (x, s, p)  d = DequantizeLinear (q, s, p)  r = Relu (d)
       e = QuantizeLinear (r, s, p)  y = DequantizeLinear (e, s, p)
       z = If (c) <then_branch = t () => (float[1,4] u) {{ u = Neg ({used}) }},
                   else_branch = f () => (float[1,4] v) {{ v = Neg (x) }}> }}"""


@pytest.mark.parametrize(("used", "quantized"), [("x", True), ("r", False)])
def test_what_a_branch_uses_in_float_is_not_part_of_an_int8_layer(used: str, quantized: bool) -> None:
    relu = (0, 2)
    assert (relu in quantized_nodes(parse(NET.format(used=used)))) is quantized
