"""The places of all elements of a tensor that has no zero: the same numbers as before, and what is left alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.onnx_models import wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

RTX = Target("rtx", (1, 7))
NAME = "list-places"
FILLED = "o = ConstantOfShape <value = int64[1] {3}> (n)"
WAYS = {
    "filled": f"{FILLED}  c = Identity (o)",
    "as a mask": f"{FILLED}  c = Cast <to = 9> (o)",
    "expanded": "c = Expand (seven, n)",
    "turned": f"{FILLED}  c = Transpose (o)",
    "doubled": f"{FILLED}  r = Shape (n)  t = Expand (two, r)  c = Tile (o, t)",
}
UNKNOWN = {
    "zeros": "c = ConstantOfShape <value = int64[1] {0}> (n)",
    "zeros by default": "c = ConstantOfShape (n)",
    "any numbers": "c = Identity (x)",
    "a cast that cuts off": "o = ConstantOfShape <value = float[1] {0.5}> (n)  c = Cast <to = 7> (o)",
    "a difference": f"{FILLED}  c = Sub (o, x_)",
}


def text(axes: int, way: str, opset: int = 17) -> onnx.ModelProto:
    """Returns the places of what a way makes of a shape."""
    sizes = ",".join(f"n{axis}" for axis in range(axes))
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[{sizes}] x) => (int64[{axes},m] y) <float seven = {{7}}, int64 two = {{2}}>
        {{ n = Shape (x)  x_ = Cast <to = 7> (x)  {way}  y = NonZero (c) }}"""
    )


def edits(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    model = wrap(proto)
    done = run_passes(model, PASSES, RTX)
    return model.proto, sum(edit.pass_name == NAME for edit in done.edits)


@given(
    st.sampled_from(sorted(WAYS)),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.sampled_from([11, 13, 17, 18]),
)
def test_all_places_are_those_that_non_zero_finds(way: str, shape: list[int], opset: int) -> None:
    proto = text(len(shape), WAYS[way], opset)
    after, count = edits(proto)
    assert count == 1
    assert "NonZero" not in {node.op_type for node in after.graph.node}
    feeds = {"x": np.zeros(shape, np.float32)}
    (wanted,), (got,) = (run(each, feeds) for each in (proto, after))
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("way", sorted(UNKNOWN))
def test_what_may_have_a_zero_is_left_alone(way: str) -> None:
    after, count = edits(text(2, UNKNOWN[way]))
    assert not count
    assert "NonZero" in {node.op_type for node in after.graph.node}


def test_axes_of_known_sizes_stay_numbers() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[n,3] x) => (int64[2,m] y)
        <float seven = {7}, int64[1] first = {0}, int64[1] one = {1}, int64[1] three = {3}>
        { s = Shape (x)  b = Slice (s, first, one)  n = Concat <axis = 0> (b, three)
          c = Expand (seven, n)  y = NonZero (c) }"""
    )
    after, count = edits(proto)
    assert count == 1
    assert [node.op_type for node in after.graph.node].count("Range") == 1
    feeds = {"x": np.zeros((5, 3), np.float32)}
    (wanted,), (got,) = (run(each, feeds) for each in (proto, after))
    np.testing.assert_array_equal(got, wanted)


def test_of_a_scalar_nothing_is_said() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float x) => (int64[a,b] y)
        { n = Shape (x)  c = ConstantOfShape <value = int64[1] {1}> (n)  y = NonZero (c) }"""
    )
    assert edits(proto)[1] == 0


@pytest.mark.parametrize("op", ["ConstantOfShape", "Identity"])
def test_an_operator_of_another_domain_may_make_a_zero(op: str) -> None:
    made = "c = own.ConstantOfShape <value = int64[1] {1}> (n)"
    if op != "ConstantOfShape":
        made = f"o = ConstantOfShape <value = int64[1] {{1}}> (n)  c = own.{op} (o)"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[n] x) => (int64[1,m] y) <int64[n] c> {{ n = Shape (x)  {made}  y = NonZero (c) }}"""
    )
    assert edits(proto)[1] == 0
