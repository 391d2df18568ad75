"""Whether ONNX's inference may follow values: it writes down every element of the vectors that it computes on."""

from __future__ import annotations

import math

import onnx
import pytest

from trtconv.graph.propagation import data_can_be_propagated

LONG = 3_000_000_000
TEXT = (
    """<ir_version: 8, opset_import: ["": 17]> g (float[n,{length}] x, float[{length}] v) => (float y) {{ {nodes} }}"""
)


@pytest.mark.parametrize("length", [300, LONG])
@pytest.mark.parametrize(
    "nodes",
    [
        "a = Relu(v) y = Add(a, a)",
        "a = Add(v, v) b = ReduceMax<axes=[0], keepdims=1>(a) y = Add(a, b)",
        "a = ReduceMax<axes=[0], keepdims=0>(x) y = Sub(x, a)",
        "a = ReduceMax<axes=[0], keepdims=7>(x) y = Sub(x, a)",
        "a = Squeeze(x) y = Mul(a, a)",
        "i = Constant<value_int=0>() a = Gather(x, i) y = Mul(a, a)",
        "a = Relu(v) b = Concat<axis=0>(a, a) y = Identity(b)",
        "w = Constant<value_floats=[1.0, 1.0]>() a = MatMul(w, x) y = Add(a, a)",
        "one = Constant<value_float=1.0>() a = Div(one, v) y = Add(a, a)",
        "one = Constant<value_float=1.0>() c = Greater(v, one) a = Where(c, v, v) y = Add(a, a)",
        "one = Constant<value_float=1.0>() a = Max(one, v) y = Add(a, a)",
        "i = Constant<value_ints=[0]>() a = GatherND(x, i) y = Add(a, a)",
    ],
)
def test_long_vectors_are_not_followed(nodes: str, length: int) -> None:
    rows = "2" if "MatMul" in nodes else "1" if "Squeeze" in nodes else "n"
    model = onnx.parser.parse_model(TEXT.format(length=length, nodes=nodes).replace("[n,", f"[{rows},"))
    assert data_can_be_propagated(model.graph, model) == (length != LONG)


@pytest.mark.parametrize("length", [300, LONG])
@pytest.mark.parametrize(
    "nodes",
    [
        "a = Neg(c) y = Add(a, a)",
        "a = Identity(c) y = Add(a, a)",
        "a = Mul(v, c) y = Add(a, a)",
        "a = Mul(c, v) y = Add(a, a)",
        "a = Max(c, v) y = Add(a, a)",
        "s = Constant<value_float=2.0>() a = Add(c, s) y = Add(a, a)",
        "s = Constant<value_float=2.0>() a = Max(s, c) y = Add(a, a)",
        "a = Mul(s0, c) y = Add(a, a)",
        "a = Pow(c, s1) y = Add(a, a)",
        "a = Concat<axis=0>(c, v) y = Add(a, a)",
        "i = Constant<value_ints=[0]>() j = Constant<value_ints=[9]>() a = Slice(c, i, j, , i) y = Add(a, a)",
        "m = Constant<value_float=0.0>() a = Clip(c, m) y = Add(a, a)",
        "p = Constant<value_ints=[0, {length}]>() a = Pad(one, p) y = Add(a, a)",
        "p = Constant<value_ints=[0, {length}]>() z = Constant<value_float=0.0>() a = Pad(one, p, z) y = Add(a, a)",
        "p = Constant<value_ints=[0, {length}]>() o = Constant<value_floats=[1.0]>() a = Pad(o, p) y = Add(a, a)",
    ],
)
def test_long_vectors_of_float_constants_are_not_followed(nodes: str, length: int) -> None:
    text = TEXT.replace("float[{length}] v", "float[1] v, float s0").format(length=2, nodes=nodes.format(length=length))
    model = onnx.parser.parse_model(text)
    for name, size in (("c", length), ("one", 1)):
        model.graph.initializer.append(onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[size]))
    model.graph.initializer.append(onnx.TensorProto(name="s1", data_type=onnx.TensorProto.FLOAT))
    assert data_can_be_propagated(model.graph, model) == (length != LONG)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Add(c, x) y = Add(a, a)",
        "a = Div(c, x) y = Add(a, a)",
        "i = Shape(v) a = Gather(c, i) y = Add(a, a)",
    ],
)
def test_long_float_constants_do_no_harm_where_no_vector_is_made_of_them(nodes: str) -> None:
    model = onnx.parser.parse_model(TEXT.format(length=2, nodes=nodes))
    model.graph.initializer.append(onnx.TensorProto(name="c", data_type=onnx.TensorProto.FLOAT, dims=[LONG]))
    assert data_can_be_propagated(model.graph, model)


def test_random_vectors_are_not_followed() -> None:
    text = f"a = RandomUniform<shape=[{LONG}]>() y = Add(a, a)"
    model = onnx.parser.parse_model(TEXT.format(length=2, nodes=text))
    assert not data_can_be_propagated(model.graph, model)


def test_networks_with_wide_layers_are_followed() -> None:
    layers = " ".join(f"c{n} = Conv(x{n}, w, b) d{n} = Mul(c{n}, b) x{n + 1} = Add(d{n}, b)" for n in range(2000))
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,2048,8,8] x0) => (float y) '
        f"<float[2048,2048,1,1] w, float[2048] b> {{ {layers} y = Relu(x2000) }}"
    )
    model = onnx.parser.parse_model(text.replace("<float[2048,2048,1,1] w, float[2048] b>", ""))
    for name, shape in (("w", (4, 4, 1, 1)), ("b", (2048,))):
        model.graph.initializer.append(onnx.helper.make_tensor(name, 1, shape, bytes(4 * math.prod(shape)), raw=True))
    assert data_can_be_propagated(model.graph, model)


def test_wide_tensors_are_no_vectors() -> None:
    model = onnx.parser.parse_model(
        TEXT.format(length=LONG, nodes="a = ReduceMax<axes=[0]>(x) b = Sub(x, a) y = Relu(b)")
    )
    assert data_can_be_propagated(model.graph, model)


@pytest.mark.parametrize(("steps", "fine"), [(3, True), (40, False)])
def test_sums_that_a_concat_doubles_are_as_long_as_what_they_add(steps: int, fine: bool) -> None:
    nodes = "s0 = Shape(x) " + " ".join(
        f"a{n} = Add(s{n}, s{n}) s{n + 1} = Concat<axis=0>(a{n}, a{n})" for n in range(steps)
    )
    model = onnx.parser.parse_model(TEXT.format(length=3, nodes=f"{nodes} y = Relu(v)"))
    assert data_can_be_propagated(model.graph, model) == fine
