"""What is assigned to the places of a mask: ONNX's own numbers before and after, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from support.onnx_models import wrap
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

RTX = Target("rtx", (1, 7))
NAME = "assign-by-where"
COUNT = "sizes = Shape (at)  n = Slice (sizes, zero, one_)"
ONE_VALUE = {
    "expanded": f"{COUNT}  e = Expand (v, n)  u = Reshape (e, flat)",
    "tiled": f"{COUNT}  one = Reshape (v, flat)  u = Tile (one, n)",
    "filled": f"{COUNT}  u = ConstantOfShape <value = float[1] {{0.5}}> (n)",
    "cut": f"{COUNT}  u = Slice (same, first, n)",
}


def text(
    data: str, mask: str, updates: str, *, condition: str = "c = Identity (m)", kind: str = "bool", opset: int = 18
) -> onnx.ModelProto:
    """Returns y = x, but for the places of a mask."""
    same = ",".join(["0.5"] * 64)
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[{data}] x, {kind}[{mask}] m, float v, float[4] row) => (float[{data}] y)
        <int64[1] flat = {{-1}}, int64[1] first = {{0}}, int64[1] two = {{2}}, int64[1] last = {{-1}},
         int64[1] four = {{4}}, float[64] same = {{{same}}}, int64[1] zero = {{0}}, int64[3] wide = {{2,3,4}}>
        {{
          {condition}
          found = NonZero (c)  at = Transpose <perm = [1, 0]> (found)
          {updates}
          y = ScatterND (x, at, u)
        }}"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "one_"))
    return proto


def edits(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    model = wrap(proto)
    done = run_passes(model, PASSES, RTX)
    return model.proto, sum(edit.pass_name == NAME for edit in done.edits)


def assert_same(proto: onnx.ModelProto, x: NDArray[Any], mask: NDArray[Any]) -> None:
    after, count = edits(proto)
    assert count == 1
    assert not {"NonZero", "ScatterND"} & {node.op_type for node in after.graph.node}, "what nobody reads is left out"
    feeds = {"x": x, "m": mask, "v": np.float32(0.25), "row": np.arange(4, dtype=np.float32)}
    wanted, got = (ReferenceEvaluator(each).run(None, feeds)[0] for each in (proto, after))
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@given(
    st.sampled_from(sorted(ONE_VALUE)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([np.bool_, np.float32, np.int64]),
    st.integers(0, 2**16),
)
def test_one_value_for_all_places(updates: str, shape: list[int], kind: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, mask = random.standard_normal(shape).astype(np.float32), random.integers(0, 2, shape).astype(kind)
    sizes = ",".join(map(str, shape))
    names = {np.bool_: "bool", np.float32: "float", np.int64: "int64"}
    proto = text(sizes, sizes, ONE_VALUE[updates], kind=names[kind])
    assert_same(proto, x, mask)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_whole_slices_get_one_row(axes: int, opset: int) -> None:
    shape = (2, 3, 4)[2 - axes :]
    random = np.random.default_rng(0)
    x, mask = random.standard_normal(shape).astype(np.float32), random.integers(0, 2, shape[:-1]).astype(np.bool_)
    sizes = ",".join(map(str, shape))
    updates = f"{COUNT}  k = Concat <axis = 0> (n, four)  u = Expand (row, k)"
    proto = text(sizes, sizes.rpartition(",")[0], updates, condition="c = Cast <to = 9> (m)", opset=opset)
    assert_same(proto, x, mask)


def test_a_mask_that_is_repeated_in_front_of_whole_slices() -> None:
    x, mask = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32), np.array([True, False, True])
    updates = f"{COUNT}  k = Concat <axis = 0> (n, four)  u = Expand (row, k)"
    condition = "pair = Slice (wide, zero, two)  c = Expand (m, pair)"
    assert_same(text("2,3,4", "3", updates, condition=condition), x, mask)


@pytest.mark.parametrize("value", ["row", "v"])
def test_a_mask_that_is_spread_along_the_last_axis(value: str) -> None:
    random = np.random.default_rng(1)
    x, mask = random.standard_normal((2, 3, 4)).astype(np.float32), random.integers(0, 2, (2, 3)).astype(np.bool_)
    condition = (
        "w = Unsqueeze (m, last)  c = Expand (w, wide)  o = Reshape (m, flat)  i = Cast <to = 7> (o)"
        f"  rows = ReduceSum (i, zero)  k = Concat <axis = 0> (rows, four)  e = Expand ({value}, k)"
    )
    assert_same(text("2,3,4", "2,3", "u = Reshape (e, flat)", condition=condition), x, mask)


@pytest.mark.parametrize("condition", ["c = Greater (x, v)", "g = Abs (x)  h = Less (v, g)  c = Not (h)"])
def test_a_mask_of_the_tensor_itself_at_any_size(condition: str) -> None:
    x = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    assert_same(text("a,b", "q", ONE_VALUE["expanded"], condition=condition), x, np.ones(1, np.bool_))


def test_dynamic_sizes_of_one_name() -> None:
    random = np.random.default_rng(3)
    x, mask = random.standard_normal((3, 5)).astype(np.float32), random.integers(0, 2, (3, 5)).astype(np.bool_)
    assert_same(text("n_,h", "n_,h", ONE_VALUE["expanded"], condition="c = Not (m)"), x, mask)


@pytest.mark.parametrize("whole", ["", " <start = 0>"])
def test_a_mask_that_is_expanded_to_the_shape_of_the_tensor(whole: str) -> None:
    random = np.random.default_rng(4)
    x, mask = random.standard_normal((2, 3, 4)).astype(np.float32), random.integers(0, 2, (2, 3)).astype(np.bool_)
    condition = f"w = Unsqueeze (m, last)  s = Shape{whole} (x)  c = Expand (w, s)"
    proto = text("n_,h,4", "n_,h", ONE_VALUE["expanded"], condition=condition)
    shape = ["n_", "h", 1]
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.BOOL, shape))
    assert_same(proto, x, mask)
    proto.graph.value_info[-1].type.tensor_type.shape.dim[1].dim_param = "other"
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "other"
    assert edits(proto)[1] == 0


SPREAD = f"{COUNT}  k = Concat <axis = 0> (n, four)  r = Expand (row, k)  u = Reshape (r, flat)"


@pytest.mark.parametrize(
    ("data", "mask", "updates", "condition"),
    [
        # Of these NonZero finds no place in the second row, or none beyond the first.
        ("2,3", "1,3", ONE_VALUE["expanded"], "c = Identity (m)"),
        ("2,3", "2,2", ONE_VALUE["expanded"], "c = Identity (m)"),
        ("a,b", "a,z", ONE_VALUE["expanded"], "c = Identity (m)"),
        ("a,b", "1", ONE_VALUE["expanded"], "c = Greater (x, row)"),
        # Another value for each place.
        ("2,3", "2,3", f"{COUNT}  u = Slice (row, first, n)", "c = Identity (m)"),
        ("2,3,4", "2,3,4", SPREAD, "c = Identity (m)"),
        (
            "2,3,4",
            "2,3",
            f"{COUNT}  r = Expand (v, n)  h = Unsqueeze (r, last)  u = Concat <axis = 1> (h, h, h, h)",
            "c = Not (m)",
        ),
    ],
)
def test_what_is_left(data: str, mask: str, updates: str, condition: str) -> None:
    assert edits(text(data, mask, updates, condition=condition))[1] == 0


def test_a_scatter_that_adds_is_left() -> None:
    proto = text("2,3", "2,3", ONE_VALUE["expanded"])
    proto.graph.node[-1].attribute.append(onnx.helper.make_attribute("reduction", "add"))
    assert edits(proto)[1] == 0
