"""The cast of a graph: everything of one type inside a node, names and interface as before, numbers close to the
original's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

from support.onnx_models import parse
from trtconv.graph.interface import cast_floats
from trtconv.graph.model import OnnxModel
from trtconv.precision import casting
from trtconv.precision.casting import WhyKept
from trtconv.precision.schemas import BFLOAT, HALF, Kind
from trtconv.runtimes import onnxruntime

KINDS = pytest.mark.parametrize("kind", [HALF, BFLOAT], ids=lambda kind: kind.name)


def model(text: str, path: Path = Path("m.onnx"), **values: np.ndarray) -> OnnxModel:
    """Reads a model; `values` become initializers."""
    proto = parse(text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    return OnnxModel(proto, path)


def types(made: OnnxModel) -> dict[str, int]:
    """Returns the element type of every tensor of the main graph, by strict inference."""
    inferred = onnx.shape_inference.infer_shapes(made.proto, check_type=True, strict_mode=True)
    graph = inferred.graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    return found | {tensor.name: tensor.data_type for tensor in graph.initializer}


def node(made: OnnxModel, op: str) -> onnx.NodeProto:
    (found,) = [each for each in made.proto.graph.node if each.op_type == op]
    return found


def inputs_of(made: OnnxModel, op: str) -> list[int]:
    known = types(made)
    return [known[name] for name in node(made, op).input if name]


def error(original: OnnxModel, made: OnnxModel) -> float:
    found = onnxruntime.compare_models(original, made)
    assert found.why is None, found.why
    return float(found.max_relative_error)


DECONV = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8] x) => (float[1,4,17,17] y)
    { a = Relu (x)  [up] c = ConvTranspose <strides=[2,2]> (a, w, b)  y = Tanh (c) }"""


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"w": random.standard_normal((4, 4, 3, 3)).astype("f"), "b": random.standard_normal(4).astype("f")}


@KINDS
def test_activations_kernel_and_bias_have_one_type(kind: Kind) -> None:
    made = model(DECONV.replace("17]", "22]", 1), **weights())
    done = casting.cast(made, kind)
    assert done.cast == 3
    assert inputs_of(made, "ConvTranspose") == [kind.code] * 3
    onnx.checker.check_model(made.proto, full_check=True)


def test_the_interface_and_its_numbers_stay() -> None:
    original, made = model(DECONV, **weights()), model(DECONV, **weights())
    casting.cast(made, HALF)
    assert [(v.name, v.type.tensor_type.elem_type) for v in (*made.proto.graph.input, *made.proto.graph.output)] == [
        ("x", TensorProto.FLOAT),
        ("y", TensorProto.FLOAT),
    ]
    assert 0 < error(original, made) < 2e-3


def test_the_interface_can_be_cast_too() -> None:
    made = model(DECONV, **weights())
    casting.cast(made, HALF)
    cast_floats(made, HALF.code)
    known = types(made)
    assert (known["x"], known["y"]) == (HALF.code, HALF.code)
    onnx.checker.check_model(made.proto, full_check=True)
    session = onnxruntime.session(made)
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype("f")
    (got,) = session.run(None, {"x": x.astype(np.float16)})
    (wanted,) = onnxruntime.session(model(DECONV, **weights())).run(None, {"x": x})
    assert got.dtype == np.float16
    assert np.abs(got - wanted).max() < 5e-3


def test_a_weight_that_is_returned_keeps_its_type() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y, float[4] w)
        <float[4] w = {1,2,3,4}> { y = Mul (x, w) }"""
    made = model(text)
    casting.cast(made, HALF)
    cast_floats(made, HALF.code)
    onnx.checker.check_model(made.proto, full_check=True)
    got = onnxruntime.session(made).run(None, {"x": np.ones(4, np.float16)})
    assert [each.dtype for each in got] == [np.float16, np.float32]


def test_float32_weights_go() -> None:
    made = model(DECONV, **weights())
    casting.cast(made, HALF)
    assert {tensor.data_type for tensor in made.proto.graph.initializer} == {HALF.code}
    assert made.proto.ByteSize() < model(DECONV, **weights()).proto.ByteSize()


def test_weights_can_stay_in_their_file() -> None:
    made = model(DECONV, **weights())
    casting.cast(made, HALF, stored=False)
    assert {tensor.data_type for tensor in made.proto.graph.initializer} == {TensorProto.FLOAT}
    assert inputs_of(made, "ConvTranspose") == [HALF.code] * 3
    assert error(model(DECONV, **weights()), made) < 2e-3


def test_hot_tensors_keep_their_nodes_in_float32() -> None:
    made = model(DECONV, **weights())
    done = casting.cast(made, HALF, frozenset({"c"}))
    assert done.hot == ("up", "y")
    assert inputs_of(made, "ConvTranspose") == [TensorProto.FLOAT] * 3
    assert inputs_of(made, "Relu") == [HALF.code]


def test_a_constant_that_does_not_fit_keeps_its_node() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y)
        <float m = {-3.0e38}, float one = {1}> { a = Mul (x, one)  b = Add (a, m)  y = Softmax (b) }"""
    made = model(text)
    casting.cast(made, HALF)
    assert inputs_of(made, "Add") == [TensorProto.FLOAT] * 2
    assert inputs_of(made, "Mul") == [HALF.code] * 2
    assert error(model(text), made) < 2e-3


def test_an_epsilon_does_not_become_zero() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y)
        <float zero = {0}, float e = {1e-12}> { a = Mul (x, zero)  b = Add (a, e)  y = Div (a, b) }"""
    made = model(text)
    casting.cast(made, HALF)
    assert inputs_of(made, "Div") == [HALF.code] * 2
    (y,) = onnxruntime.session(made).run(None, {"x": np.ones(4, np.float32)})
    assert y.tolist() == [0, 0, 0, 0]


def test_what_onnx_defines_in_float32_stays_so() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[a,b,c,d] y)
        <float[4] s = {1,1,2,2}> { a = Relu (x)  y = Resize <mode="nearest"> (a, , s) }"""
    made = model(text)
    casting.cast(made, HALF)
    assert inputs_of(made, "Resize") == [HALF.code, TensorProto.FLOAT]
    assert error(model(text), made) < 2e-3


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("i = Constant <value = int64[1] {0}> ()  y = CumSum (x, i)", "CumSum"),
        ("n = Shape (x)  m = Cast <to = 1> (n)  y = ReduceSum (m)", "ReduceSum"),
        ("y = Celu (x)", "Celu"),
        ("y = Bernoulli (x)", "Bernoulli"),
    ],
)
def test_operators_that_are_kept(body: str, op: str) -> None:
    made = model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[a] y) {{ {body} }}""")
    assert casting.cast(made, HALF).cast == 0
    assert inputs_of(made, op)[0] == TensorProto.FLOAT


def test_integers_are_converted_in_float32_and_masks_are_not() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (int64[4] i, bool[4] m, float[4] x) => (float[4] y)
        { a = Cast <to = 1> (i)  b = Cast <to = 1> (m)  c = Mul (a, x)  y = Mul (b, c) }"""
    made = model(text)
    casting.cast(made, HALF)
    casts = {each.input[0]: each.attribute[0].i for _, _, each in made.nodes("Cast")}
    assert (casts["i"], casts["m"]) == (TensorProto.FLOAT, HALF.code)
    assert error(model(text), made) < 2e-3


def test_a_comparison_reads_what_is_there() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (bool[4] y, bool[4] z)
        <float c = {0.5}> { a = Relu (x)  y = Greater (a, c)  z = Less (x, c) }"""
    made = model(text)
    casting.cast(made, HALF)
    assert inputs_of(made, "Greater") == [HALF.code] * 2
    assert inputs_of(made, "Less") == [TensorProto.FLOAT] * 2


QUANTIZED = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float s = {0.05}, int8 z = {0}>
    { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
      wq = QuantizeLinear (w, s, z)  wd = DequantizeLinear (wq, s, z)
      a = ConvTranspose (d, wd)  r = Relu (a)  rq = QuantizeLinear (r, s, z)  rd = DequantizeLinear (rq, s, z)
      f = Conv (rd, v)  y = Sigmoid (f) }"""


@KINDS
def test_quantised_layers_are_left_to_int8(kind: Kind) -> None:
    text = QUANTIZED.replace("17]", "22]", 1)
    values = {name: weights()["w"][:, :, :1, :1].copy() for name in "wv"}
    made = model(text, **values)
    done = casting.cast(made, kind)
    assert done.floats[WhyKept.INT8] == 2
    known = types(made)
    assert [known[name] for name in node(made, "ConvTranspose").input] == [TensorProto.FLOAT] * 2
    assert known[node(made, "Relu").input[0]] == TensorProto.FLOAT
    assert [known[name] for name in node(made, "Conv").input] == [kind.code] * 2
    assert known[node(made, "Sigmoid").input[0]] == kind.code


def test_weight_only_quantisation_is_cast_behind_its_scale() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)
        <float s = {0.05}, int8 z = {0}>
        { wd = DequantizeLinear (w, s, z)  y = ConvTranspose (x, wd) }"""
    values = {"w": np.arange(16, dtype=np.int8).reshape(4, 4, 1, 1)}
    made = model(text, **values)
    casting.cast(made, HALF)
    assert inputs_of(made, "ConvTranspose") == [HALF.code] * 2
    assert error(model(text, **values), made) < 2e-3


BRANCHES = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x, bool c) => (float[4] y)
    <float two = {2}>
    { a = Relu (x)
      b = If (c) <then_branch = t () => (float[4] u) { u = Mul (a, two) },
                  else_branch = e () => (float[4] v) { v = Neg (x) }>
      y = Tanh (b) }"""


def test_branches_read_from_outside() -> None:
    made = model(BRANCHES)
    assert casting.cast(made, HALF).cast == 4
    onnx.checker.check_model(made.proto, full_check=True)
    for condition in (True, False):
        feeds = {"x": np.array([-1, 0, 1, 2], "f"), "c": np.array(condition)}
        (wanted,) = onnxruntime.session(model(BRANCHES)).run(None, feeds)
        (got,) = onnxruntime.session(made).run(None, feeds)
        assert np.abs(wanted - got).max() < 2e-3


def test_loops_stay_in_float32() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y)
        <int64 n = {3}, bool t = {1}>
        { a = Relu (x)
          b = Loop (n, t, a) <body = l (int64 i, bool go, float[4] s) => (bool on, float[4] r)
              { on = Identity (go)  r = Add (s, a) }>
          y = Tanh (b) }"""
    made = model(text)
    done = casting.cast(made, HALF)
    assert (done.cast, done.floats[WhyKept.IN_LOOP]) == (2, 1)
    onnx.checker.check_model(made.proto, full_check=True)
    assert error(model(text), made) < 2e-3


def test_nodes_in_any_order() -> None:
    made = model(DECONV, **weights())
    nodes = list(made.proto.graph.node)[::-1]
    del made.proto.graph.node[:]
    made.proto.graph.node.extend(nodes)
    made.touch()
    casting.cast(made, HALF)
    assert inputs_of(made, "ConvTranspose") == [HALF.code] * 3
    assert error(model(DECONV, **weights()), made) < 2e-3


def test_an_unknown_operator_reads_and_returns_float32() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[4] x) => (float[4] y)
        { a = Relu (x)  b = my.Twice (a)  y = Tanh (b) }"""
    made = model(text)
    done = casting.cast(made, HALF)
    assert node(made, "Twice").input[0] == "a"
    assert [each.op_type for each in made.proto.graph.node][:3] == ["Cast", "Relu", "Cast"]
    assert done.cast == 1


def test_a_weight_that_callers_may_replace_keeps_its_type() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x, float[4] w) => (float[4] y)
        <float[4] w = {1,2,3,4}> { y = Mul (x, w) }"""
    made = model(text)
    casting.cast(made, HALF)
    assert types(made)["w"] == TensorProto.FLOAT
    assert inputs_of(made, "Mul") == [HALF.code] * 2


def test_emulated_the_numbers_are_those_of_the_type() -> None:
    made = model(DECONV, **weights())
    casting.cast(made, HALF, emulated=True)
    real = model(DECONV, **weights())
    casting.cast(real, HALF)
    assert set(inputs_of(made, "ConvTranspose")) == {TensorProto.FLOAT}
    x = {"x": np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype("f")}
    (emulated,), (cast,) = (onnxruntime.session(each).run(None, x) for each in (made, real))
    assert np.abs(emulated - cast).max() < 2e-3
    (exact,) = onnxruntime.session(model(DECONV, **weights())).run(None, x)
    assert (emulated != exact).any()


def test_emulated_every_graph_is_in_order() -> None:
    # ONNX Runtime sorts the main graph itself, and refuses a branch that is not in order.
    made = model(BRANCHES)
    casting.cast(made, HALF, emulated=True)
    onnx.checker.check_model(made.proto, full_check=True)
    feeds = {"x": np.array([-1, 0, 1, 2], "f"), "c": np.array(True)}
    (wanted,) = onnxruntime.session(model(BRANCHES)).run(None, feeds)
    (got,) = onnxruntime.session(made).run(None, feeds)
    assert np.abs(wanted - got).max() < 2e-3


OPS = ["Relu", "Tanh", "Neg", "Sigmoid", "Softplus", "Identity"]


@given(
    ops=st.lists(st.sampled_from([*OPS, "Add", "Mul", "Sub"]), min_size=1, max_size=8),
    hot=st.sets(st.integers(0, 8)),
    data=st.data(),
)
def test_any_graph_stays_valid_and_close(ops: list[str], hot: set[int], data: st.DataObject) -> None:
    names = ["x"]
    lines = []
    for index, op in enumerate(ops):
        count = 2 if op in ("Add", "Mul", "Sub") else 1
        read = [data.draw(st.sampled_from([*names, "k"] if count == 2 else names)) for _ in range(count)]
        lines.append(f"t{index} = {op} ({', '.join(read)})")
        names.append(f"t{index}")
    outputs = sorted(data.draw(st.sets(st.sampled_from(names[1:]), min_size=1)))
    returns = ", ".join(f"float[4] {name}" for name in outputs)
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => ({returns})
        <float[4] k = {{0.5, -1, 2, 0.25}}> {{ {"  ".join(lines)} }}"""
    made = model(text)
    casting.cast(made, HALF, frozenset(f"t{index}" for index in hot))
    onnx.checker.check_model(made.proto, full_check=True)
    for index in hot & set(range(len(ops))):
        assert types(made)[f"t{index}"] == TensorProto.FLOAT
    feeds = {"x": np.array([-0.5, 0.0, 0.75, 1.0], "f")}
    for wanted, got in zip(
        onnxruntime.session(model(text)).run(None, feeds), onnxruntime.session(made).run(None, feeds), strict=True
    ):
        assert np.abs(wanted - got).max() <= 1e-2 * max(1.0, float(np.abs(wanted).max()))
