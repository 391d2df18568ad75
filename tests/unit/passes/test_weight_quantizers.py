"""int8 constants for TensorRT 8: weights have the same codes, from float ones; others are float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import parse, wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes
from trtconv.passes.weight_quantizers import WriteWeightQuantizers

RTX, EIGHT, TEN = Target("rtx", (1, 7)), Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))
NAME = "write-weight-quantizers"


def model(
    codes: np.ndarray, scale: np.ndarray, axis: int | None, op: str = "MatMul", point: int = 0
) -> onnx.ModelProto:
    """Returns a product of an input with int8 weights."""
    zero = np.full(scale.shape, point, np.int8)
    constants = {"w": codes, "s": scale, "z": zero}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **({} if axis is None else {"axis": axis})),
        helper.make_node(op, ["x", "d"], ["y"]),
    ]
    shape = [1, codes.shape[1], 3, 3] if op == "Conv" else [2, codes.shape[0]]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def names(proto: onnx.ModelProto, target: Target) -> tuple[onnx.ModelProto, list[str]]:
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, target)
    return rewritten.proto, [edit.pass_name for edit in done.edits]


@settings(max_examples=40)
@given(st.sampled_from((None, 0, 1, -1)), st.sampled_from(("MatMul", "Gemm")), st.integers(0, 99))
def test_the_codes_are_the_same(axis: int | None, op: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(-128, 128, (5, 7)).astype(np.int8)
    scale = np.array(2.0 ** random.uniform(-30, 5, () if axis is None else codes.shape[axis]), np.float32)
    proto = model(codes, scale, axis, op)
    rewritten, edits = names(proto, EIGHT)
    assert edits.count(NAME) == 1
    assert [node.op_type for node in rewritten.graph.node] == ["QuantizeLinear", "DequantizeLinear", op]
    assert all(
        t.data_type != TensorProto.INT8 or not any(numpy_helper.to_array(t).ravel())
        for t in rewritten.graph.initializer
    )
    feeds = {"x": random.standard_normal((2, 5)).astype(np.float32)}
    rewritten.graph.output.append(
        helper.make_tensor_value_info(rewritten.graph.node[0].output[0], TensorProto.INT8, None)
    )
    got, written = session(rewritten, sized=False).run(None, feeds)
    np.testing.assert_array_equal(written, codes)
    np.testing.assert_array_equal(got, session(proto, sized=False).run(None, feeds)[0])


@pytest.mark.parametrize("target", [TEN, RTX])
def test_other_targets_take_int8_constants(target: Target) -> None:
    codes = np.arange(1, 5, dtype=np.int8).reshape(2, 2)
    assert NAME not in names(model(codes, np.float32(0.5), None), target)[1]


HEAD = """<ir_version: 10, opset_import: ["": 17]> g (float[1,4,4,4] x) => (float[n,c,h,w] y)
<int8[4,4,1,1] w = {1, -2, 3, 4, 5, -6, 7, 8, 9, 10, -11, 12, 13, 14, 15, -128}, int8[4] b = {3, -4, 5, 127},
 float[4] s = {0.5, 0.25, 0.1, 0.3}, float u = {0.05}, int8[4] zs = {0, 0, 0, 0}, int8 z = {0},
 int64[2] flat = {4, 4}, int64[1] at = {2},
 int64[4] bias = {1, 4, 1, 1}, int64[4] row = {1, 4, 1, 4}>
{ q = QuantizeLinear (x, u, z)  a = DequantizeLinear (q, u, z)
  d = DequantizeLinear <axis = 0> (w, s, zs)  e = DequantizeLinear (b, u, z)
"""
FORMS = [
    ("y = Conv (a, d)", 1),
    ("m = MaxPool <kernel_shape = [1,1]> (a)  r = Relu (m)  y = Conv (r, d)", 1),
    ("g = DequantizeLinear <axis = 1> (w, s, zs)  y = ConvTranspose (a, g)", 1),
    ("y = Conv (a, d, e)", 1),
    ("y = Conv (x, d)", 0),
    ("f = Sigmoid (a)  y = Conv (f, d)", 0),
    ("t = Transpose <perm = [1,0,2,3]> (d)  y = Conv (a, t)", 0),
    ("f = Reshape (d, flat)  t = Transpose <perm = [1,0]> (f)  m = MatMul (a, t)  y = Add (m, e)", 0),
    ("v = Reshape (e, bias)  y = Mul (a, v)", 0),
    ("y = Add (a, e)", 0),
    ("y = LayerNormalization <axis = -1> (a, e, e)", 0),
    ("k = Gather (d, at)  y = Conv (a, k)", 0),
    ("y0 = Conv (a, d)  v = Reshape (d, row)  y = Add (y0, v)", 1),
    ("y0 = Conv (a, d)  y1 = Conv (x, d)  y = Add (y0, y1)", 0),
    ("f = Reshape (d, flat)  m = MatMul (a, f)  v = Reshape (d, row)  y = Add (m, v)", 0),
    (
        "o = ReduceMean <keepdims = 0> (x)  c = Cast <to = 9> (o)"
        " y = If (c) <then_branch = t () => (float[n,c,h,w] p) { p = Conv (a, d, e) },"
        " else_branch = f () => (float[n,c,h,w] r) { r = Add (a, e) }>",
        0,
    ),
]


@pytest.mark.parametrize(("body", "kept"), FORMS)
def test_no_int8_constant_is_left_but_weights_of_int8_convolutions(body: str, kept: int) -> None:
    proto = parse(f"{HEAD} {body} }}")
    rewritten, _ = names(proto, EIGHT)
    left = wrap(rewritten)
    constant = {node.output[0] for node in rewritten.graph.node if left.main.values(node.input[0]) is not None}
    readers = [
        (node.op_type, list(node.input).index(name))
        for scope in left.scopes
        for node in scope.graph.node
        for name in constant.intersection(node.input)
        if left.main.producer(name).op_type == "DequantizeLinear"
    ]
    assert len(readers) == kept and set(readers) <= {("Conv", 1), ("ConvTranspose", 1)}
    feeds = {"x": np.random.default_rng(3).standard_normal((1, 4, 4, 4)).astype(np.float32)}
    np.testing.assert_array_equal(
        session(rewritten, sized=False).run(None, feeds)[0], session(proto, sized=False).run(None, feeds)[0]
    )
    assert not run_passes(wrap(rewritten), (WriteWeightQuantizers(),), EIGHT).edits


@pytest.mark.parametrize(("scale", "point"), [(3e38, 0), (0.5, 3)])
def test_codes_that_would_change_stay(scale: float, point: int) -> None:
    codes = np.array([[-128, 127], [1, 2]], np.int8)
    alone = wrap(model(codes, np.array(scale, np.float32), None, point=point))
    assert not run_passes(alone, (WriteWeightQuantizers(),), EIGHT).edits


@pytest.mark.parametrize("reader", ["Add (x, d)", "Add (d, x)", "MatMul (x, d)", "Gemm (x, t, d)"])
def test_a_float_constant_is_quantised_as_a_weight_alone(reader: str) -> None:
    proto = parse(
        f"""<ir_version: 10, opset_import: ["": 17]> g (float[2,2] x) => (float[2,2] y)
        <float[2,2] w = {{0.26, -0.74, 30, 1}}, float[2,2] t = {{1, 2, 3, 4}}, float s = {{0.1}}, int8 z = {{0}}>
        {{ q = QuantizeLinear (w, s, z)  d = DequantizeLinear (q, s, z)  y = {reader} }}"""
    )
    rewritten, _ = names(proto, EIGHT)
    ops = [node.op_type for node in rewritten.graph.node]
    assert ("QuantizeLinear" in ops) == reader.startswith("MatMul")
    feeds = {"x": np.array([[1, 2], [-3, 0.5]], np.float32)}
    np.testing.assert_array_equal(session(rewritten).run(None, feeds)[0], session(proto).run(None, feeds)[0])
