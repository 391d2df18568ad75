"""The remainder of a difference of sizes is written by those of its terms, and is the same at every size."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

DIFFERENCES = {
    "n = Neg (h)": "-h",
    "n = Mul (h, minus)": "-h",
    "n = Mul (minus, h)": "-h",
    "n = Sub (c, h)": "c-h",
    "n = Sub (w, h)": "w-h",
    "m = Neg (h)  n = Add (m, c)": "c-h",
    "m = Neg (h)  n = Add (w, m)": "w-h",
    "a = Div (w, two)  m = Cast <to = 6> (a)  b = Cast <to = 6> (h)  r = Sub (m, b)  n = Cast <to = 7> (r)": "cast",
}
OTHERS = (
    "n = Sub (h, c)",
    "n = Add (h, c)",
    "n = Mul (h, two)",
    "n = Abs (h)",
    "m = Mod (h, two)  n = Sub (c, m)",
    "m = ReduceMax <keepdims = 0> (x)  e = Cast <to = 7> (m)  g = Reshape (e, one)  n = Neg (g)",
)


def rewritten(made: str, c: int, by: int, fmod: int = 0) -> tuple[onnx.ModelProto, onnx.ModelProto, set[str]]:
    proto = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,height,width] x) => (int64[1] y)
        <int64[1] minus = {{-1}}, int64[1] c = {{{c}}}, int64[1] by = {{{by}}}, int64[1] two = {{2}},
         int64[1] three = {{3}},         int64[1] one = {{1}}>
        {{ s = Shape (x)  h = Gather (s, two)  w = Gather (s, three)  {made}  y = Mod <fmod = {fmod}> (n, by) }}""")
    other = wrap(proto)
    edits = run_passes(other, PASSES, RTX).edits
    return proto, other.proto, {edit.pass_name for edit in edits}


@given(
    st.sampled_from([made for made in DIFFERENCES if DIFFERENCES[made] != "cast"]),
    st.integers(-99, 99),
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=5),
)
def test_it_is_the_same_at_every_size(made: str, c: int, by: int, sizes: list[tuple[int, int]]) -> None:
    proto, other, edits = rewritten(made, c, by)
    assert edits == {"subtract-remainders"}
    for height, width in sizes:
        feeds = {"x": np.zeros((1, 1, height, width), np.float32)}
        assert np.array_equal(run(proto, feeds)[0], run(other, feeds)[0])


@pytest.mark.parametrize("made", OTHERS)
def test_what_is_no_difference_of_sizes_is_left(made: str) -> None:
    assert "subtract-remainders" not in rewritten(made, 5, 8)[2]


@pytest.mark.parametrize(("by", "fmod"), [(8, 1), (-8, 0), (1 << 31, 0)])
def test_another_remainder_is_left(by: int, fmod: int) -> None:
    assert rewritten("n = Neg (h)", 5, by, fmod)[2] == set()


def test_a_divisor_of_the_run_time_is_left() -> None:
    assert rewritten("n = Neg (h)  by2 = Mul (w, two)", 5, 8)[2] == {"subtract-remainders"}
    proto = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[h,w] x) => (int64[2] y) { s = Shape (x)  n = Neg (s)  y = Mod (n, s) }""")
    assert run_passes(wrap(proto), PASSES, RTX).edits == ()


def test_several_at_once_and_each_by_its_own() -> None:
    proto = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[h,w] x) => (int64[2] y) <int64[2] by = {8, 3}> { s = Shape (x)  n = Neg (s)  y = Mod (n, by) }""")
    other = wrap(proto)
    assert [edit.pass_name for edit in run_passes(other, PASSES, RTX).edits] == ["subtract-remainders"]
    for h, w in ((1, 1), (8, 3), (9, 7), (15, 29)):
        feeds = {"x": np.zeros((h, w), np.float32)}
        assert run(other.proto, feeds)[0].tolist() == [-h % 8, -w % 3] == run(proto, feeds)[0].tolist()


def test_tensorrt_8_is_given_it_as_it_is() -> None:
    proto = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[h,w] x) => (int64[2] y) <int64[2] by = {8, 3}> { s = Shape (x)  n = Neg (s)  y = Mod (n, by) }""")
    assert run_passes(wrap(proto), PASSES, Target("tensorrt", (8, 6))).edits == ()
