"""Integers that TensorRT lacks are computed in wider ones, bits by arithmetic: the same numbers, wrapped around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from support.onnx_models import wrap
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.passes import PASSES, run_passes
from trtconv.passes.spelling.int8_constants import CastInt8Constants
from trtconv.passes.spelling.writer import is_held

RTX = Target("rtx", (1, 7))


def model(op: str, feeds: dict[str, NDArray[Any]], output: Any, opset: int = 18, **attrs: Any) -> onnx.ModelProto:
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    made = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(output)), None)
    graph = helper.make_graph([helper.make_node(op, list(feeds), ["y"], **attrs)], "g", values, [made])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


def rewritten(proto: onnx.ModelProto, target: Target = RTX) -> onnx.ModelProto:
    copy = wrap(proto)
    run_passes(copy, PASSES, target)
    return copy.proto


def computed(proto: onnx.ModelProto, feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(reference_evaluator(proto).run(None, feeds)[0])


@st.composite
def pairs(draw: st.DrawFn, dtypes: tuple[str, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    limits = np.iinfo(dtype)
    values = st.integers(int(limits.min), int(limits.max))
    shapes = draw(st.sampled_from([((3,), (3,)), ((2, 3), (3,)), ((1, 2), (3, 1))]))
    first, second = (
        np.array(draw(st.lists(values, min_size=int(np.prod(s)), max_size=int(np.prod(s)))), dtype).reshape(s)
        for s in shapes
    )
    return first, second


@given(pairs(("uint8", "int16", "uint16", "uint32")), st.sampled_from(("Add", "Sub", "Mul", "Max", "Min")))
def test_arithmetic_wraps_around(pair: tuple[NDArray[Any], NDArray[Any]], op: str) -> None:
    feeds = dict(zip("xz", pair, strict=True))
    proto = model(op, feeds, pair[0].dtype)
    after = rewritten(proto)
    assert {node.op_type for node in after.graph.node} > {"Cast"}
    np.testing.assert_array_equal(computed(after, feeds), computed(proto, feeds))


@given(pairs(("uint8", "int16", "uint16", "uint32")), st.sampled_from(("Less", "Equal", "GreaterOrEqual")))
def test_comparisons(pair: tuple[NDArray[Any], NDArray[Any]], op: str) -> None:
    feeds = dict(zip("xz", pair, strict=True))
    proto = model(op, feeds, np.bool_)
    np.testing.assert_array_equal(computed(rewritten(proto), feeds), computed(proto, feeds))


@given(
    pairs(("uint8", "int8", "int16", "uint16", "uint32", "int32", "int64")),
    st.sampled_from(("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
)
def test_bits_are_combined(pair: tuple[NDArray[Any], NDArray[Any]], op: str) -> None:
    feeds = dict(zip("xz", pair, strict=True))
    proto = model(op, feeds, pair[0].dtype)
    after = rewritten(proto)
    assert not any("Bitwise" in node.op_type for node in after.graph.node)
    np.testing.assert_array_equal(computed(after, feeds), computed(proto, feeds))


@given(
    pairs(("uint8", "int8", "int16", "uint16", "uint32", "int32", "int64")),
    st.sampled_from(("LEFT", "RIGHT")),
    st.integers(0, 70),
)
def test_bits_are_shifted(pair: tuple[NDArray[Any], NDArray[Any]], direction: str, step: int) -> None:
    x = pair[0]
    width = 8 * x.dtype.itemsize
    steps = np.full(x.shape, min(step, np.iinfo(x.dtype).max), x.dtype)
    feeds = {"x": x, "z": steps}
    after = rewritten(model("BitShift", feeds, x.dtype, opset=11, direction=direction))
    assert "BitShift" not in {node.op_type for node in after.graph.node}
    for value, made, by in zip(x.ravel(), computed(after, feeds).ravel(), steps.ravel(), strict=True):
        moved = int(value) >> int(by) if direction == "RIGHT" else int(value) << int(by) & (1 << width) - 1
        if direction == "LEFT" and x.dtype.kind == "i" and moved >= 1 << (width - 1):
            moved -= 1 << width
        assert int(made) == moved


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "uint32"])
def test_only_casts_at_the_edges_have_the_narrow_type(dtype: str) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (helper.make_tensor_value_info(name, code, [4]) for name in "xy")
    nodes = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Mul", ["a", "x"], ["b"])]
    nodes.append(helper.make_node("Max", ["b", "a"], ["y"]))
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 14)])
    after = rewritten(proto)
    held = [node for node in after.graph.node if is_held(node)]
    assert [node.output[0] for node in held] == ["y"]
    feeds = {"x": np.array([0, 1, 200, np.iinfo(dtype).max], dtype)}
    np.testing.assert_array_equal(computed(after, feeds), computed(proto, feeds))


def test_what_no_type_holds_is_left() -> None:
    feeds = {"x": np.array([1], np.uint64), "z": np.array([1], np.uint64)}
    model_ = wrap(model("Add", feeds, np.uint64))
    done = run_passes(model_, PASSES, RTX)
    assert not done.edits
    assert any("uint64" in skip.reason for skip in done.skipped)


@given(pairs(("int8", "int16")), st.booleans())
def test_remainders_of_floats(pair: tuple[NDArray[Any], NDArray[Any]], half: bool) -> None:
    dtype = np.float16 if half else np.float32
    x, z = (each.astype(np.float32).astype(dtype) / 8 for each in pair)
    z = np.where(np.isfinite(z) & (z != 0), z, 1).astype(dtype)
    feeds = {"x": np.where(np.isfinite(x), x, 0).astype(dtype), "z": z}
    after = rewritten(model("Mod", feeds, dtype, opset=28))
    assert all(
        any(each.name == "fmod" and each.i for each in n.attribute) for n in after.graph.node if n.op_type == "Mod"
    )
    expected = np.mod(feeds["x"].astype(np.float64), feeds["z"].astype(np.float64))
    np.testing.assert_allclose(computed(after, feeds), expected, rtol=1e-2, atol=1e-6)


@given(pairs(("int8",)), st.sampled_from(("Add", "Sub", "Mul", "Max", "Min", "Less", "Equal")))
def test_int8_constants_are_cast(pair: tuple[NDArray[Any], NDArray[Any]], op: str) -> None:
    proto = model(op, {"a": pair[0], "b": pair[1]}, "bool" if op in ("Less", "Equal") else "int8")
    constant = proto.graph.input.pop()
    proto.graph.initializer.append(numpy_helper.from_array(pair[1], constant.name))
    done = rewritten(proto)
    np.testing.assert_array_equal(computed(proto, {"a": pair[0]}), computed(done, {"a": pair[0]}))
    assert not any(each.data_type == each.INT8 for each in done.graph.initializer)
    assert not any(each.op_type == "Cast" for each in rewritten(proto, Target("tensorrt", (8, 6))).graph.node)


@pytest.mark.parametrize("op", ["Add", "Max", "Less", "Neg"])
def test_infinite_constants_of_float64_are_cast_from_float32(op: str) -> None:
    feeds = {"a": np.array([0.5, -3.0, 7.0]), "b": np.array([-np.inf, 1.5, np.inf])}
    if op == "Neg":
        del feeds["a"]
    proto = model(op, feeds, "bool" if op == "Less" else "float64")
    proto.graph.input.pop()
    proto.graph.initializer.append(numpy_helper.from_array(feeds.pop("b"), "b"))
    done = rewritten(proto)
    np.testing.assert_array_equal(computed(proto, feeds), computed(done, feeds))
    assert [each.data_type for each in done.graph.initializer] == [onnx.TensorProto.FLOAT]


def test_a_finite_constant_beside_an_infinite_one_stays_finite() -> None:
    """Beyond float32 it is the largest number there, as parsers take it."""
    feeds = {"a": np.array([0.5, -3.0, 7.0]), "b": np.array([-np.inf, 1e300, -1e300])}
    proto = model("Max", feeds, np.float64)
    held = numpy_helper.from_array(feeds["b"], "b")
    proto.graph.initializer.append(held)
    del proto.graph.input[1]
    most = float(np.finfo(np.float32).max)
    stored = [numpy_helper.to_array(each) for each in rewritten(proto).graph.initializer]
    assert [each.tolist() for each in stored if each.dtype == np.float32] == [[-np.inf, most, -most]]


def test_finite_constants_of_float64_stay() -> None:
    proto = model("Add", {"a": np.zeros(2), "b": np.array([1e300, -2.0])}, "float64")
    proto.graph.input.pop()
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1e300, -2.0]), "b"))
    assert rewritten(proto).SerializeToString() == proto.SerializeToString()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16"])
def test_the_largest_values_keep_their_type_and_their_places_stay_int64(dtype: str) -> None:
    x = np.array([[3, 9, 1], [7, 2, 8]], dtype)
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in (dtype, np.int64)]
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["y", "i"])],
        "g",
        [helper.make_tensor_value_info("x", kinds[0], x.shape)],
        [helper.make_tensor_value_info(name, kind, [2, 2]) for name, kind in zip("yi", kinds, strict=True)],
        [numpy_helper.from_array(np.array([2]), "k")],
    )
    # The operator takes such types from opset 24 on.
    opset = 24 if onnx.defs.onnx_opset_version() >= 24 else 11
    after = rewritten(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)]))
    assert {node.op_type for node in after.graph.node} == {"Cast", "TopK"}
    y, i = reference_evaluator(after).run(None, {"x": x})
    assert (y.dtype, i.dtype) == (np.dtype(dtype), np.int64)
    assert y.tolist() == [[9, 3], [8, 7]] and i.tolist() == [[1, 0], [2, 0]]


X = "x"
"""Where the value in question goes in `OPERATORS`: of the type under test, of shape (2, 3)."""
OPERATORS: dict[str, tuple[list[Any], dict[str, Any], str | None]] = {
    "Where": ([np.array([[True, False, True]]), X, X], {}, None),
    "Concat": ([X, X], {"axis": 1}, None),
    "Clip": ([X, np.array(3), np.array(90)], {}, None),
    "Pad": ([X, np.array([0, 1, 1, 0]), np.array(7)], {}, None),
    "ScatterElements": ([X, np.array([[1, 0, 1]]), np.array([[5, 6, 7]])], {}, None),
    "ScatterND": ([X, np.array([[1]]), np.array([[5, 6, 7]])], {}, None),
    "Gather": ([X, np.array([1, 0])], {}, None),
    "GatherElements": ([X, np.array([[1, 0, 1]])], {}, None),
    "Slice": ([X, np.array([1]), np.array([3]), np.array([1])], {}, None),
    "Expand": ([X, np.array([2, 2, 3])], {}, None),
    "Tile": ([X, np.array([2, 1])], {}, None),
    "Reshape": ([X, np.array([3, 2])], {}, None),
    "Transpose": ([X], {}, None),
    "Trilu": ([X], {}, None),
    "ReduceMax": ([X, np.array([1])], {}, None),
    "ReduceMin": ([X, np.array([0])], {}, None),
    "ReduceSum": ([X, np.array([1])], {}, None),
    "ArgMax": ([X], {"axis": 1}, "int64"),
    "Sign": ([X], {}, None),
    "Abs": ([X], {}, None),
    "CumSum": ([X, np.array(1)], {}, None),
    "Greater": ([X, np.array(4)], {}, "bool"),
}
"""Operators to their inputs, attributes and type of result; numbers that are not indices have the type under test."""
_INDICES = {"Pad": (1,), "ScatterElements": (1,), "ScatterND": (1,)}


def _taken(op: str, dtype: str) -> bool:
    schema = onnx.defs.get_schema(op, 18)
    kinds = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    slots = [min(at, len(schema.inputs) - 1) for at, each in enumerate(OPERATORS[op][0]) if each is X]
    return all(f"tensor({dtype})" in kinds[schema.inputs[slot].type_str] for slot in slots)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "uint32"])
@pytest.mark.parametrize("op", OPERATORS)
def test_every_input_that_has_the_type_is_computed_in_the_wider_one(op: str, dtype: str) -> None:
    if not _taken(op, dtype):
        pytest.skip(f"{op} takes no {dtype}")
    inputs, attrs, output = OPERATORS[op]
    draw = np.random.default_rng(0)
    feeds: dict[str, NDArray[Any]] = {}
    for number, each in enumerate(inputs):
        if each is X:
            feeds[f"x{number}"] = draw.integers(0, 9, (2, 3)).astype(dtype)
        elif each.dtype == bool or number in _INDICES.get(op, (1, 2, 3) if op not in ("Clip", "Greater") else ()):
            feeds[f"x{number}"] = each
        else:
            feeds[f"x{number}"] = each.astype(dtype)
    proto = model(op, feeds, output or dtype, **attrs)
    after = rewritten(proto)
    assert any(node.op_type == "Cast" for node in after.graph.node)
    # Types that do not go together are none that TensorRT, or the checker, takes.
    onnx.shape_inference.infer_shapes(after, check_type=True, strict_mode=True)
    made = computed(after, feeds)
    assert made.dtype == np.dtype(output or dtype)
    np.testing.assert_array_equal(made, computed(proto, feeds))


@pytest.mark.parametrize("outer", [True, False])
def test_bytes_that_a_branch_reads_are_cast_wherever_they_are_held(outer: bool) -> None:
    held = "c = Constant <value = int8[2] {1, -2}> ()"
    branches = [f"t () => (int8[2] {name}) {{ {'' if outer else held} {name} = Add (x, c) }}" for name in "pq"]
    text = f"""<ir_version: 8, opset_import: ["": 14]> g (int8[2] x, bool k) => (int8[2] y)
    {{ {held if outer else ""} y = If (k) <then_branch = {branches[0]}, else_branch = {branches[1]}> }}"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    result = CastInt8Constants().run(model, Target("rtx", (1, 7)))
    assert len(result.edits) == 2
