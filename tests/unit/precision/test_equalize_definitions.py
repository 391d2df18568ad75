"""Which layers' channels are scaled, and by what, by the definitions."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from support.float_nets import net
from support.onnx_models import wrap
from trtconv.precision.quantize.equalize import equalize, find_links

OPEN = '<ir_version: 8, opset_import: ["": 17, "my": 1]> g '
IMAGE = f"{OPEN} (float[1,4,8,8] x, float[4,4,1,1] k, float n) => (float[a,b,c,d] y"
ROWS = f"{OPEN} (float[3,8] x, float[8,4] k, float[8] n) => (float[a,b] y"
CONV, MATMUL = "a = Conv (x, w_6_4_1_1)", "a = MatMul (x, w_8_6)"

LINKED = [
    # What stands behind a layer; which layers are scaled, and where their channels begin in those that take them.
    (IMAGE, f"{CONV}  y = Conv (a, w_2_6_1_1)", {"a": [0]}),
    (IMAGE, "a = Conv (x, w_6_4_1_1, b_6)  r = Relu (a)  y = Conv (r, w_2_6_1_1)", {"a": [0]}),
    (IMAGE, f"{CONV}  r = LeakyRelu (a)  y = ConvTranspose (r, w_6_2_1_1)", {"a": [0]}),
    (IMAGE, "a = ConvTranspose (x, w_4_6_1_1)  r = Dropout (a)  i = Identity (r)  y = Conv (i, w_2_6_1_1)", {"a": [0]}),
    (IMAGE, f"{CONV}  p = MaxPool <kernel_shape = [2, 2]> (a)  y = Conv (p, w_2_6_1_1)", {"a": [0]}),
    (IMAGE, f"{CONV}  p = AveragePool <kernel_shape = [2, 2]> (a)  y = Conv (p, w_2_6_1_1)", {"a": [0]}),
    (IMAGE, f"{CONV}  p, q = MaxPool <kernel_shape = [2, 2]> (a)  y = Conv (p, w_2_6_1_1)", {}),
    (IMAGE, f"{CONV}  r = Sigmoid (a)  y = Conv (r, w_2_6_1_1)", {}),
    (IMAGE, f"{CONV}  r = Relu (a)  b = Conv (r, w_2_6_1_1)  s = Relu (a)  y = Conv (s, w_3_6_1_1)", {"a": [0, 0]}),
    (IMAGE, f"{CONV}  b = Conv (a, w_2_6_1_1)  y = Sigmoid (a)", {}),
    (IMAGE, f"{CONV}  b = Conv (a, w_2_6_1_1)  y = Conv (x, a)", {}),
    (IMAGE, f"{CONV}  y = Conv (a, a)", {}),
    (IMAGE, "a = Conv (x, k)  y = Conv (a, w_2_4_1_1)", {}),
    (IMAGE, "a = Conv (x, w_4_4_1_1)  y = Conv (a, k)", {}),
    (IMAGE, "a = Conv (x, w_4_4_1_1)  b = Conv (a, w_2_4_1_1)  y = Conv (x, w_4_4_1_1)", {}),
    (IMAGE, "a = Conv (x, w_4_4_1_1, b_4)  b = Conv (a, w_2_4_1_1)  y = Add (b, b_4)", {}),
    (IMAGE, f"{CONV}  y = Conv <group = 6> (a, w_6_1_1_1)", {"a": [0]}),
    (IMAGE, f"{CONV}  y = Conv <group = 2> (a, w_2_3_1_1)", {}),
    (IMAGE, f"{CONV}  j = Concat <axis = 1> (a, x)  y = Conv (j, w_2_10_1_1)", {"a": [0]}),
    (IMAGE, f"{CONV}  j = Concat <axis = 1> (x, a)  y = Conv (j, w_2_10_1_1)", {"a": [4]}),
    (IMAGE, f"{CONV}  j = Concat <axis = 1> (x, x, a)  y = Conv (j, w_2_14_1_1)", {"a": [8]}),
    (IMAGE, f"{CONV}  j = Concat <axis = 1> (a, x)  i = Concat<axis=1> (x, j)  y = Conv (i, w_2_14_1_1)", {"a": [4]}),
    (IMAGE, f"{CONV}  u = my.Strange (x)  j = Concat <axis = 1> (u, a)  y = Conv (j, w_2_10_1_1)", {}),
    (IMAGE, f"{CONV}  j = Concat <axis = 2> (a, a)  y = Conv (j, w_2_6_1_1)", {}),
    (IMAGE, "a = Conv (x, w_4_4_1_1)  j = Concat <axis = 2> (x, a)  y = Conv (j, w_2_4_1_1)", {}),
    (ROWS, f"{MATMUL}  y = MatMul (a, w_6_2)", {"a": [0]}),
    (ROWS, f"{MATMUL}  s = Add (b_6, a)  r = Relu (s)  y = Gemm (r, w_6_2)", {"a": [0]}),
    (ROWS, f"{MATMUL}  s = Add (a, b_1_6)  y = Gemm (s, w_6_2)", {}),
    (ROWS, "a = MatMul (x, w_8_8)  s = Add (a, n)  y = Gemm (s, w_8_2)", {}),
    (ROWS, f"{MATMUL}  s = Add (a, a)  y = Gemm (s, w_6_2)", {}),
    (ROWS, f"{MATMUL}  s = Sub (a, b_6)  y = Gemm (s, w_6_2)", {}),
    (ROWS, "a = MatMul (x, w_8_1)  s = Add (a, b_1)  y = Gemm (s, w_1_2)", {"a": [0]}),
    (ROWS, "a = MatMul (x, w_8_1)  s = Add (a, b_6)  y = Gemm (s, w_6_2)", {}),
    (ROWS, "a = Gemm (x, w_8_6, b_6)  y = Gemm <transB = 1> (a, w_2_6, b_2)", {"a": [0]}),
    (ROWS, "a = Gemm <transB = 1> (x, w_3_8)  y = Gemm <transA = 1> (a, w_3_2)", {}),
    (ROWS, "a = MatMul (x, w_8_8)  p = Transpose (a)  y = MatMul (k, a)", {}),
    (ROWS, "a = MatMul (x, w_8_8)  y = Gemm (x, w_8_8, a)", {}),
    (ROWS, "a = MatMul (x, k)  y = MatMul (a, w_4_2)", {}),
    (ROWS, "a = MatMul (x, w_8_4)  y = MatMul (a, w_3_4_2)", {}),
    (ROWS, "a = MatMul (x, w_3_8_4)  y = MatMul (a, w_4_2)", {}),
    (ROWS, "a = LayerNormalization (x, p_8)  y = MatMul (a, w_8_2)", {"a": [0]}),
    (ROWS, "a = LayerNormalization <axis = -1> (x, p_8, b_8)  y = MatMul (a, w_8_2)", {"a": [0]}),
    (ROWS, "a = LayerNormalization <axis = 1> (x, p_8, b_8)  y = MatMul (a, w_8_2)", {}),
    (ROWS, "a, m, v = LayerNormalization (x, p_8, b_8)  y = MatMul (a, w_8_2)", {}),
    (ROWS, "a = LayerNormalization (x, n, b_8)  y = MatMul (a, w_8_2)", {}),
    (ROWS, "a = Mul (x, p_8)  y = MatMul (a, w_8_2)", {"a": [0]}),
    (ROWS, "a = Mul (p_8, x)  s = Add (a, b_8)  y = MatMul (s, w_8_2)", {"a": [0]}),
    (ROWS, "a = Mul (p_8, p_8a)  y = MatMul (a, w_8_2)", {}),
    (ROWS, "a = Mul (x, n)  y = MatMul (a, w_8_2)", {}),
    (ROWS, "a = Mul (x, p_1_8)  y = MatMul (a, w_8_2)", {}),
    (ROWS, "a = Mul (x, p_8)  b = MatMul (a, w_8_2)  y = Add (x, p_8)", {}),
]  # fmt: skip


@pytest.mark.parametrize(("head", "body", "linked"), LINKED, ids=[body for _, body, _ in LINKED])
@pytest.mark.parametrize("shown", ["", "a"])
def test_which_channels_are_scaled(head: str, body: str, linked: dict[str, list[int]], shown: str) -> None:
    """None of a graph's output: whoever takes it wants its values as they are."""
    more = f", float[{'a,b,c,d' if head is IMAGE else 'a,b'}] a" if shown else ""
    model = wrap(net(f"{head}{more}) {{ {body} }}"))
    nodes = model.main.columns.nodes
    found = {nodes[link.maker].output[0]: [first for _, first in link.takers] for link in find_links(model.main)}
    assert found == ({} if shown else linked)


_SIZES = st.sampled_from([0.0, *(1.1 * 4.0**power for power in range(-8, 9))])
_WEIGHTS = st.sampled_from([0.0, *(sign * 4.0**power for power in range(-6, 7) for sign in (1, -1))])


def factors_of(sizes: list[float], *weights: np.ndarray) -> list[float]:
    """Returns what each channel is divided by: the root of its size over its part in the sums that it goes into.

    Rounded to a power of two, and no farther than 64 times from that of the others; a channel that holds nothing, or
    goes nowhere, has the factor of the others.
    """
    parts = [np.divide(abs(w), abs(w).max(0), out=np.zeros_like(w), where=w.any(0)).max(1) for w in weights]
    ratios = [
        math.sqrt(size / part) if size and part else None for size, part in zip(sizes, np.max(parts, 0), strict=True)
    ]
    alive = [ratio for ratio in ratios if ratio is not None]
    middle = float(np.median(alive)) if alive else 1.0
    return [2.0 ** round(math.log2(min(max(ratio or middle, middle / 64), middle * 64))) for ratio in ratios]


@given(st.data(), st.integers(1, 5))
def test_channels_are_divided_by_their_sizes_beside_what_they_weigh(data: st.DataObject, channels: int) -> None:
    sizes = data.draw(st.lists(_SIZES, min_size=channels, max_size=channels))
    model = wrap(net(f"""{ROWS}, float[3,2] z) {{ a = Gemm (x, w_8_{channels}, b_{channels})
        y = MatMul (a, w_{channels}_3)  z = Gemm <transB = 1> (a, w_2_{channels}) }}"""))  # fmt: skip
    scope = model.main
    (first, bias, rows, columns) = (f"w_8_{channels}", f"b_{channels}", f"w_{channels}_3", f"w_2_{channels}")
    for name in (rows, columns):
        shape = scope.values(name).shape
        drawn = data.draw(st.lists(_WEIGHTS, min_size=math.prod(shape), max_size=math.prod(shape)))
        scope.initializers[name].CopyFrom(numpy_helper.from_array(np.array(drawn, np.float32).reshape(shape), name))
    model.touch()
    before = {name: model.main.values(name).copy() for name in (first, bias, rows, columns)}
    edits = equalize(model, find_links(model.main), {"a": sizes})
    after = {name: model.main.values(name) for name in before}
    factors = np.array(factors_of(sizes, before[rows], before[columns].T), np.float32)
    for name, scaled in ((first, 1 / factors), (bias, 1 / factors), (rows, factors[:, None]), (columns, factors)):
        np.testing.assert_array_equal(after[name], before[name] * scaled)
    changed = int((factors != 1).sum())
    assert [re.findall(r"\d+", edit.what)[:2] for edit in edits] == [[str(changed), str(channels)]] * bool(changed)
