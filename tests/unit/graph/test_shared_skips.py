"""Skip connections whose scale is that of the Concat that takes them: which are, and with which quantisers."""

from __future__ import annotations

import pytest

from support.onnx_models import parse, wrap
from trtconv.graph.shared_skips import SharedSkip, shared_skips

HEAD = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,8,8] x, float[1,2,8,8] w, int8[1,2,8,8] k) => (float[1,4,8,8] y, float[1,2,8,8] r)
    <float s = {0.5}, float t = {0.25}, float u = {0.75}, float[2] many = {0.5, 0.5}, int8 z = {0}, int8 odd = {1}> {"""
JOIN = """c = Concat <axis = 1> (d, w)
    cq = QuantizeLinear (c, s, z)
    y = DequantizeLinear (cq, s, z)"""
QUANTISED = """q = QuantizeLinear (x, s, z)
    d = DequantizeLinear (q, s, z)"""
SHARED = f"{QUANTISED} {JOIN} r = Relu (x) }}"
OF_X = SharedSkip("x", 2, 0.5, (0, 1))


def skips(text: str) -> list[SharedSkip]:
    return list(shared_skips(wrap(parse(HEAD + text)).main))


@pytest.mark.parametrize("reader", ["x", "d"])
def test_a_skip_that_others_read_too(reader: str) -> None:
    assert skips(f"{QUANTISED} {JOIN} r = Relu ({reader}) }}") == [OF_X]


def test_a_skip_whose_codes_others_read() -> None:
    (skip,) = skips(f"{QUANTISED} {JOIN} r = DequantizeLinear (q, t, z) }}")
    assert skip == SharedSkip("x", 2, 0.5, (0, 1, 5))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r = Relu (x)", "r = Relu (w)"),
        ("QuantizeLinear (c, s, z)", "QuantizeLinear (c, t, z)"),
        ("QuantizeLinear (x, s, z)", "QuantizeLinear (x, t, z)"),
        ("DequantizeLinear (q, s, z)", "DequantizeLinear (q, t, z)"),
        ("DequantizeLinear (q, s, z)", "DequantizeLinear (q, u, z)"),
        ("QuantizeLinear (c, s, z)", "QuantizeLinear (c, s, odd)"),
        ("QuantizeLinear (x, s, z)", "QuantizeLinear (x, s, odd)"),
        ("QuantizeLinear (c, s, z)", "QuantizeLinear (c, s)"),
        ("QuantizeLinear (c, s, z)", "QuantizeLinear <axis = 1> (c, many, z)"),
        ("q = QuantizeLinear (x, s, z)", "q = Identity (k)"),
        ("q = QuantizeLinear (x, s, z)", ""),
        ("d = DequantizeLinear (q, s, z)", "d = Cast <to = 1> (q)"),
        ("cq = QuantizeLinear (c, s, z)", "o = Neg (c) cq = QuantizeLinear (o, s, z)"),
        ("cq = QuantizeLinear (c, s, z)", "o = AveragePool <kernel_shape = [1,1]> (c) cq = QuantizeLinear (o, s, z)"),
    ],
)
def test_what_is_no_shared_skip(old: str, new: str) -> None:
    text = SHARED.replace(old, new)
    assert text != SHARED
    if "q =" not in text:
        text = text.replace("(q,", "(k,")
    assert skips(text) == []


def test_the_scale_may_be_behind_a_max_pool_of_the_concat() -> None:
    pooled = "o = MaxPool <kernel_shape = [1,1]> (c) cq = QuantizeLinear (o, s, z)"
    assert skips(SHARED.replace("cq = QuantizeLinear (c, s, z)", pooled)) == [OF_X]


def test_what_max_pool_makes_of_a_skip_has_its_quantisers_too() -> None:
    of_values = """r, places = MaxPool <kernel_shape = [1,1]> (x)
        rq = QuantizeLinear (r, s, z)
        rd = DequantizeLinear (rq, s, z)
        ro = QuantizeLinear (r, t, z)
        n = MaxPool <kernel_shape = [1,1]> (d)
        nt = QuantizeLinear (n, t, z)
        nq = QuantizeLinear (n, s, z) }"""
    assert skips(f"{QUANTISED} {JOIN} {of_values}") == [SharedSkip("x", 2, 0.5, (0, 1, 6, 7, 11))]


FLOAT = """d = Relu (x)
    q = QuantizeLinear (d, s, z)
    r = DequantizeLinear (q, s, z)"""


def test_a_skip_that_is_joined_in_float() -> None:
    assert skips(f"{FLOAT} {JOIN} }}") == [SharedSkip("d", 3, 0.5, (1, 2), (3,))]
    both = f"{FLOAT} {JOIN} o = Concat <axis = 1> (w, d) p = Concat <axis = 1> (w, w) }}"
    assert skips(both) == [SharedSkip("d", 3, 0.5, (1, 2), (3, 6))]
    assert skips(f"{FLOAT.replace('(d, s, z)', '(d, t, z)')} {JOIN} }}") == []
    # Of what MaxPool makes of it alone nothing is known to be wrong.
    pooled = FLOAT.replace("q = QuantizeLinear (d,", "m = MaxPool <kernel_shape = [1,1]> (d) q = QuantizeLinear (m,")
    assert skips(f"{pooled} {JOIN} }}") == []


def test_a_skip_of_two_concats_is_one() -> None:
    again = "e = Concat <axis = 1> (d, w) eq = QuantizeLinear (e, s, z) }"
    assert skips(f"{QUANTISED} {JOIN} r = Relu (x) {again}") == [OF_X]


def test_every_input_of_a_concat_is_looked_at() -> None:
    text = f"""{QUANTISED}
        wq = QuantizeLinear (w, s, z)
        wd = DequantizeLinear (wq, s, z)
        c = Concat <axis = 1> (wd, d)
        cq = QuantizeLinear (c, s, z)
        y = DequantizeLinear (cq, s, z)
        r = Add (x, w) }}"""
    assert [(skip.tensor, skip.nodes) for skip in skips(text)] == [("w", (2, 3)), ("x", (0, 1))]
