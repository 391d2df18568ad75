"""Valid models that mutations begin with: the ONNX backend's node tests, hand-made networks, models/."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import broken
import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

TINY = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]> g (float[n,1,4,4] x) => (float[n,1,9,9] y) <float[1,1,3,3] w =
    {1,2,3,4,5,6,7,8,9}> { a = Relu (x) y = ConvTranspose <strides = [2,2]> (a, w) }"""
).SerializeToString()
"""A network that is quantised in a moment."""
ROOT = Path(__file__).resolve().parents[2]
_LARGEST_BYTES = 100_000
_HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1, "com.microsoft": 1]>\n'
_TEXTS = (
    """g (float[1,2,h,w] x) => (float[] y) <float[2,3,3,3] k> {
        a = ConvTranspose <strides = [2,2]> (x, k)  y = Relu (a) }""",
    """g (float[n,4] x) => (float[] y) {
        s = Shape (x)  i = Constant <value_ints = [0]> ()  d = Gather (s, i)  t = Constant <value_ints = [2]> ()
        m = Mul (d, t)  r = Constant <value_ints = [-1]> ()  c = Concat <axis = 0> (m, r)  y = Reshape (x, c) }""",
    """g (float[1,3,h,w] x) => (float[] y) <float[4] sc = {1.0, 1.0, 2.0, 2.0}> {
        u = Resize <mode = "nearest"> (x, , sc)  s = Shape (u)  z = ConstantOfShape (s)  y = Add (u, z) }""",
    """g (float[n] x) => (float[] y) <int64[1] one = {1}, int64[1] zero = {0}> {
        s = Shape (x)  e = Slice (x, zero, s, zero, one)  p = Pad (e, s)  y = Expand (p, s) }""",
    """g (float[a,b] x) => (float[] y) {
        t = Transpose <perm = [1,0]> (x)  m = MatMul (x, t)  k = Constant <value_int = 1> ()  n = TopK (x, k)
        y = Softmax (m) }""",
)


def _function() -> onnx.ModelProto:
    """A function that calls a function, which deconvolves with an attribute of its caller's."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    up = helper.make_node("ConvTranspose", ["a", "k"], ["b"], "up")
    up.attribute.add(name="strides", type=onnx.AttributeProto.INTS, ref_attr_name="strides")
    inner = helper.make_function("my", "inner", ["a", "k"], ["b"], [up], opsets, ["strides"])
    call = helper.make_node("inner", ["a", "k"], ["c"], "call", domain="my", strides=[2, 2])
    relu = helper.make_node("Relu", ["c"], ["b"])
    outer = helper.make_function("my", "outer", ["a", "k"], ["b"], [call, relu], opsets)
    weight = numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), "k")
    node = helper.make_node("outer", ["x", "k"], ["y"], "top", domain="my")
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=opsets, functions=[inner, outer], ir_version=8)


def _loop() -> onnx.ModelProto:
    """A Loop whose body deconvolves, and a Scan beside it."""
    body = onnx.parser.parse_graph(
        "body (int64 i, bool c, float[1,1,p,q] a) => (bool d, float[1,1,r,s] b) "
        "<float[1,1,1,1] k = {1}> { d = Identity (c)  b = ConvTranspose (a, k) }"
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    trips = numpy_helper.from_array(np.int64(3), "trips")
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)
    graph = helper.make_graph([loop], "g", [x], [y], [trips])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _parsed(body: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        model = onnx.parser.parse_model(_HEAD + body)
        for tensor in model.graph.initializer:
            if not tensor.ByteSize() or not any(len(getattr(tensor, n)) for n in ("float_data", "int64_data")):
                tensor.CopyFrom(numpy_helper.from_array(np.ones(tuple(tensor.dims), np.float32), tensor.name))
        return model

    return make


@functools.cache
def seeds() -> tuple[tuple[str, bytes], ...]:
    """Returns the name and the bytes of every seed."""
    made = [*broken.SEEDS, _function, _loop]
    found = [(f"made{index}", make().SerializeToString()) for index, make in enumerate(made)]
    found += [(f"text{index}", _parsed(text)().SerializeToString()) for index, text in enumerate(_TEXTS)]
    found += [(path.stem, _lightened(path)) for path in sorted((ROOT / "models").glob("*.onnx"))]
    # Hand-made ones often: the node tests are 50 times as many.
    return (*found * 20, *_node_tests())


def _lightened(path: Path) -> bytes:
    """Returns a model with its larger weights made inputs: mutations are to hit the graph."""
    model = onnx.load(path)
    for tensor in [t for t in model.graph.initializer if len(t.raw_data) > 4096]:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        model.graph.initializer.remove(tensor)
    data: bytes = model.SerializeToString()
    return data


def _node_tests() -> list[tuple[str, bytes]]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [(case.name, case.model) for case in collect_testcases() if case.model is not None]
    found = [(name, model.SerializeToString()) for name, model in cases]
    return [(name, data) for name, data in found if len(data) <= _LARGEST_BYTES]
