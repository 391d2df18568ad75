"""Negative indices into an axis of dynamic size: the same elements by indices that TensorRT defines."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes

NAME = "count-from-start"


def model(
    op: str, indices: NDArray[Any], dims: list[Any], updates: list[int] | None = None, opset: int = 17, **attrs: int
) -> onnx.ModelProto:
    names = ["x", "i", *(["u"] if updates is not None else [])]
    node = helper.make_node(op, names, ["y"], **attrs)
    shapes = {"x": dims} if updates is None else {"x": dims, "u": updates}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output], [numpy_helper.from_array(indices, "i")])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def written(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, RTX)
    return rewritten.proto, [edit.pass_name for edit in done.edits]


def assert_counted(proto: onnx.ModelProto, sizes: list[int], updates: list[int] | None = None) -> None:
    """The pass acts, what reads its indices gets none below zero, and the result is the same to the bit."""
    after, passes = written(proto)
    assert passes == [NAME]
    (reader,) = (node for node in after.graph.node if node.output[0] == "y")
    after.graph.output.append(helper.make_tensor_value_info(reader.input[1], TensorProto.INT64, None))
    feeds = {"x": np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)}
    if updates is not None:
        feeds["u"] = -1 - np.arange(np.prod(updates), dtype=np.float32).reshape(updates)
    (expected,), (got, indices) = run(proto, feeds), run(after, feeds)
    assert indices.min() >= 0
    np.testing.assert_array_equal(got, expected)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[Any], int, NDArray[Any]]:
    """Sizes, dimensions of which one is a name, its axis, and indices into it, one of them negative."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(sizes) - 1))
    shape = draw(st.lists(st.integers(1, 2), max_size=2))
    count = int(np.prod(shape))
    values = draw(st.lists(st.integers(-sizes[axis], sizes[axis] - 1), min_size=count, max_size=count))
    values[draw(st.integers(0, count - 1))] = draw(st.integers(-sizes[axis], -1))
    dims = [("T" if place == axis else draw(st.sampled_from([size, f"d{place}"]))) for place, size in enumerate(sizes)]
    kind = draw(st.sampled_from([np.int32, np.int64]))
    return sizes, dims, axis - draw(st.sampled_from([0, len(sizes)])), np.array(values, kind).reshape(shape)


@given(cases())
def test_gather_takes_the_same(case: tuple[list[int], list[Any], int, NDArray[Any]]) -> None:
    sizes, dims, axis, indices = case
    assert_counted(model("Gather", indices, dims, axis=axis), sizes)


@given(cases(), st.booleans())
def test_elements_are_the_same(case: tuple[list[int], list[Any], int, NDArray[Any]], is_scatter: bool) -> None:
    sizes, dims, axis, indices = case
    # As many axes as the data; no place twice.
    shape = [1] * len(sizes)
    single = indices.reshape(-1)[indices.argmin()].reshape(shape)
    if is_scatter:
        assert_counted(model("ScatterElements", single, dims, shape, opset=18, axis=axis), sizes, shape)
    else:
        assert_counted(model("GatherElements", single, dims, axis=axis), sizes)


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.data(),
    st.booleans(),
    st.sampled_from([["N", "T"], ["N", 0], [0, "T"]]),
)
def test_indices_of_several_axes_are_the_same(
    pair: tuple[int, int], data: st.DataObject, is_scatter: bool, names: list[Any]
) -> None:
    sizes = [*pair, 2]
    dims = [name or size for name, size in zip(names, pair, strict=True)] + [2]
    # One of an axis that is dynamic counts from its end.
    place = names.index(next(filter(None, names)))
    row = [data.draw(st.integers(-size, size - 1)) for size in pair]
    row[place] = data.draw(st.integers(-pair[place], -1))
    indices = np.array([row], np.int64)
    if is_scatter:
        assert_counted(model("ScatterND", indices, dims, [1, 2]), sizes, [1, 2])
    else:
        assert_counted(model("GatherND", indices, dims), sizes)


def test_batches_are_no_part_of_an_index() -> None:
    assert_counted(model("GatherND", np.array([[-1], [0]], np.int64), [2, "T", 3], batch_dims=1), [2, 4, 3])


@pytest.mark.parametrize(
    ("indices", "dims", "axis"),
    [([-1], [2, 3], 1), ([-1], ["N", 3], 1), ([0, 1], ["N", "T"], 1)],
    ids=["static", "other axis", "from the start"],
)
def test_what_has_a_meaning_is_left(indices: list[int], dims: list[Any], axis: int) -> None:
    assert written(model("Gather", np.array(indices, np.int64), dims, axis=axis))[1] == []


def test_a_rank_counts_from_the_end_as_it_did() -> None:
    text = "g (float[N,T] x) => (int64 y) <int64 last = {-1}> { s = Shape (x)  y = Gather <axis = 0> (s, last) }"
    assert written(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'))[1] == []


def test_a_body_of_a_loop_is_looked_at() -> None:
    text = """g (float[N,T] x, int64 n) => (float[M,N] y) <bool go = {1}> {
      y = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[N] last)
        <int64 end = {-1}> { d = Identity (c)  last = Gather <axis = 1> (x, end) }>
    }"""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    after, passes = written(proto)
    assert NAME in passes
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(2, np.int64)}
    for expected, got in zip(run(proto, feeds), run(after, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)
