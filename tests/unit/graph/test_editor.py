"""A field of nodes: which it opens, what it knows of them, and what is in the graph when it closes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper

from support.onnx_models import parse, wrap
from support.session import run
from trtconv.graph.editor import _MAX_CONE, Field, close_all, label
from trtconv.graph.model import OnnxModel

HEAD = '<ir_version: 3, opset_import: ["": 17, "my": 1, "com.microsoft": 1]>'
CHAIN = """g (float[2,4] x) => (float[2,4] y, float[2,4] side)
    <float[4] w = {1,2,3,4}, float[1] one = {1}> {
    [a] a = Abs (x)  [b] b = Relu (a)  [v] v = Neg (w)  [u] u = Add (v, one)  [c] c = Mul (b, u)  [d] d = Sub (c, w)
    [e] e = Exp (d)  [y] y = Tanh (e)  [side] side = Sin (b) }"""


def model_of(graph: str = CHAIN) -> OnnxModel:
    return wrap(parse(HEAD + graph))


def opened(field: Field) -> list[str]:
    return [node.name for node in field.graph.nodes]


def names(model: OnnxModel) -> list[str]:
    return [node.name for node in model.proto.graph.node]


def initializers(model: OnnxModel) -> list[str]:
    return [tensor.name for tensor in model.proto.graph.initializer]


def find(field: Field, name: str) -> gs.Node:
    return next(node for node in field.graph.nodes if node.name == name)


@pytest.mark.parametrize(
    ("op", "around", "expected"),
    [
        # What it reads first, where its further inputs come from, and who reads it.
        ("Mul", True, ["b", "v", "u", "c", "d"]),
        ("Mul", False, ["v", "u", "c"]),
        ("Relu", True, ["a", "b", "c", "side"]),
        ("Relu", False, ["b"]),
        ("Abs", True, ["a", "b"]),
        ("Tanh", True, ["e", "y"]),
        ("Cos", True, []),
    ],
)
def test_a_field_holds_nodes_and_what_is_beside_them(op: str, around: bool, expected: list[str]) -> None:
    field = Field(model_of(), model_of().main, {op}, looks_around=around)
    assert opened(field) == expected
    assert [node.op for node in field.candidates] == [op] * bool(expected)
    assert all(field.index(node) == names(model_of()).index(node.name) for node in field.graph.nodes)
    assert all(field.location(node).node == node.name for node in field.graph.nodes)


@pytest.mark.parametrize("count", [_MAX_CONE - 1, _MAX_CONE, _MAX_CONE + 1, _MAX_CONE + 5])
def test_sources_are_followed_a_number_of_nodes_far(count: int) -> None:
    steps = " ".join(f"[r{n}] w{n + 1} = Neg (w{n})" for n in range(count))
    field = Field(
        *of(f"g (float[2] x) => (float[2] y) <float[2] w0 = {{1,2}}> {{ {steps} [y] y = Mul (x, w{count}) }}"), {"Mul"}
    )
    nearest = [f"r{n}" for n in range(max(0, count - _MAX_CONE), count)]
    assert opened(field) == [*nearest, "y"]


def of(graph: str) -> tuple[OnnxModel, onnx.Any]:
    model = model_of(graph)
    return model, model.main


def test_only_nodes_of_known_domains_that_are_asked_for() -> None:
    model = model_of("""g (float[2] x) => (float[2] y) {
        [p] p = my.Gelu (x) [q] q = com.microsoft.Gelu (p) [r] r = com.microsoft.Gelu (q) y = Neg (r) }""")
    assert [node.name for node in Field(model, model.main, {"Gelu"}).candidates] == ["q", "r"]
    assert [node.name for node in Field(model, model.main, {"Gelu"}, lambda index: index == 2).candidates] == ["r"]


def test_nodes_that_graph_surgeon_would_change_are_left_out() -> None:
    """An empty list loses its type, a text that is none its bytes; a graph and a tensor are not edited."""
    model = model_of("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    attributes = {
        "ints": helper.make_attribute("v", [1]),
        "floats": helper.make_attribute("v", [1.5]),
        "int": helper.make_attribute("v", 0),
        "float": helper.make_attribute("v", 0.0),
        "text": helper.make_attribute("v", "ä"),
        "bytes": helper.make_attribute("v", b"\xff\xfe"),
        "no ints": onnx.AttributeProto(name="v", type=onnx.AttributeProto.INTS),
        "no floats": onnx.AttributeProto(name="v", type=onnx.AttributeProto.FLOATS),
        "texts": helper.make_attribute("v", ["a"]),
        "tensor": helper.make_attribute("v", helper.make_tensor("t", 1, [1], [1.0])),
        "graph": helper.make_attribute("v", onnx.GraphProto(name="g")),
    }
    graph = model.proto.graph
    del graph.node[:]
    for name, attribute in attributes.items():
        graph.node.append(onnx.NodeProto(op_type="Neg", name=name, input=["x"], output=[name], attribute=[attribute]))
    model.touch()
    assert opened(Field(model, model.main, {"Neg"})) == ["ints", "floats", "int", "float", "text"]


def test_what_is_known_of_tensors() -> None:
    model = model_of("""g (float[2,k] x) => (float[2,k] y)
        <int64[1] n = {7}, int64[2] two = {1,2}, float[1] f = {0.5}, uint8 b = {3}> {
        [t] t = Tile (x, two) [s] s = Mul (t, f) [z] z = my.F (s, n, b, t, t) [y] y = Neg (t) }""")
    field = Field(model, model.main, {"Mul", "F", "Tile", "Neg"})
    tensor = field.tensor
    assert [field.number(tensor(name)) for name in ("n", "b", "two", "f", "x")] == [7, 3, None, None, None]
    own = field.constant("n", np.array([[9]]))
    assert own.name != "n" and field.number(own) == 9 and field.values(own) is not None
    assert [field.dtype(tensor(name)) for name in ("x", "n", "b", "z")] == ["float32", "int64", "uint8", None]
    assert [field.shape(tensor(name)) for name in ("x", "n", "b", "z")] == [(2, None), (1,), (), None]
    assert tensor("nowhere") is tensor("nowhere") and tensor("t") is find(field, "t").outputs[0]
    assert field.variable("t").name != "t"


def test_what_is_folded() -> None:
    """What is computed from constants by ONNX's own operators; not what is random, quantised or given."""
    model = model_of("""g (float[2] x, float[2] given) => (float[2] y)
        <float[2] w = {1,2}, float s = {0.5}, int8 z = {0}> {
        a = Add (w, w) b = Clip (a, , s) c = QuantizeLinear (w, s, z) d = DequantizeLinear (c, s, z)
        e = RandomNormalLike (w) f = my.F (w) h = Add (w, given) i = Add (a, b) j = Constant <value_floats = [4.0]> ()
        y = Sum (x, a, b, d, e, f, h, i, j) }""")
    field = Field(model, model.main, {"Sum"})
    values = {name: field.fold(field.tensor(name)) for name in "wabdefhijx"}
    assert {name: array.tolist() for name, array in values.items() if array is not None} == {
        "w": [1, 2],
        "a": [2, 4],
        "b": [0.5, 0.5],
        "i": [2.5, 4.5],
        "j": [4],
    }


def test_what_else_uses_a_tensor() -> None:
    model = model_of("""g (float[2] x, bool c) => (float[2] y, float[2] q) {
        [p] p = Neg (x) [q] q = Abs (p) [r] r = Add (p, p) [s] s = Exp (r) [t] t = Sin (s)
        [y] y = If (c) < then_branch = a () => (float[2] u) { u = Add (s, t) },
                         else_branch = b () => (float[2] v) { v = Neg (t) }> }""")
    field = Field(model, model.main, {"Neg", "Abs", "Add", "Exp"})
    assert {name: field.escapes(field.tensor(name)) for name in "pqrs"} == {
        "p": False,
        "q": True,
        "r": False,
        "s": True,
    }


def test_what_replaces_a_node_stands_in_its_place() -> None:
    model = model_of()
    model.proto.graph.node[4].doc_string = "said"
    field = Field(model, model.main, {"Mul"})
    (mul,) = field.candidates
    output = mul.outputs[0]
    mul.outputs.clear()
    weight, _ = field.constant("w", np.float32([-1, -3, -5, -7]) / 2), field.constant("unused", np.float32([1]))
    half = field.node("Mul", "c", [mul.inputs[0], weight], "half")
    whole = field.node("Add", "c", [half.outputs[0], half.outputs[0]], output)
    field.replace(mul, [half, whole])
    assert field.close()
    # v and u made what only the node took, of a constant that nothing else takes.
    assert names(model) == ["a", "b", half.name, whole.name, "d", "e", "y", "side"]
    assert initializers(model) == ["w", weight.name] and len({half.name, whole.name, "c"}) == 3
    assert [node.doc_string for node in model.proto.graph.node[2:5]] == ["said", "said", ""]
    assert model.proto.ir_version == 4
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    expected = np.tanh(np.exp(np.abs(x) * np.float32([-1, -3, -5, -7]) - np.float32([1, 2, 3, 4])))
    np.testing.assert_allclose(run(model.proto, {"x": x})[0], expected, rtol=1e-5)
    # The graph is read anew.
    assert [node.name for node in Field(model, model.main, {"Add"}).candidates] == [whole.name]


def test_a_folded_node_leaves_a_constant_of_the_name_of_its_result() -> None:
    model = model_of()
    field = Field(model, model.main, {"Add"})
    (add,) = field.candidates
    field.fold_into(add, np.float32([0, -1, -2, -3]))
    assert field.close()
    assert names(model) == ["a", "b", "c", "d", "e", "y", "side"] and "u" in initializers(model)
    assert "one" not in initializers(model)


def test_a_field_without_replacements_changes_nothing() -> None:
    model = model_of()
    before = model.proto.SerializeToString()
    field = Field(model, model.main, {"Mul"})
    field.constant("q", np.float32([1]))
    assert not field.close() and not close_all([field, Field(model, model.main, {"Add"})])
    assert model.proto.SerializeToString() == before


def test_fields_of_several_graphs_close_together() -> None:
    model = model_of("""g (float[2] x, bool c) => (float[2] y) <float[2] w = {1,2}> { [p] p = Mul (x, w)
        [y] y = If (c) < then_branch = a () => (float[2] u) { [u] u = Mul (p, w) },
                         else_branch = b () => (float[2] v) { [v] v = Neg (p) }> }""")
    fields = [Field(model, scope, {"Mul"}) for scope in model.scopes]
    for field in fields:
        for node in field.candidates:
            output = node.outputs[0]
            node.outputs.clear()
            field.replace(node, [field.node("Abs", label(node), [node.inputs[0]], output)])
    assert close_all(fields)
    assert [node.op_type for scope in model.scopes for node in scope.graph.node] == ["Abs", "If", "Abs", "Neg"]
    assert not initializers(model)


def test_what_a_file_says_of_integers_that_are_made_otherwise_is_forgotten() -> None:
    model = model_of("""g (float[2] x) => (float[2] y) <float s = {0.5}, int8 z = {0}> {
        [p] p = Abs (x) [q] q = QuantizeLinear (p, s, z) [r] r = DequantizeLinear (q, s, z) [y] y = Neg (r) }""")
    info = model.proto.graph.value_info
    for name, kind in (("p", TensorProto.FLOAT), ("q", TensorProto.INT8), ("r", TensorProto.FLOAT)):
        info.append(helper.make_tensor_value_info(name, kind, [2]))
    model.touch()
    field = Field(model, model.main, {"QuantizeLinear", "DequantizeLinear"})
    for node in field.candidates:
        field.replace(node, [node])
    assert field.close()
    assert [value.name for value in info] == ["p", "r"]


def test_the_type_of_a_tensor_is_written_down_once() -> None:
    model = model_of()
    field = Field(model, model.main, {"Relu"})
    for name in ("b", "b", "y", "nowhere"):
        field.keep_type(field.tensor(name))
    assert [value.name for value in model.proto.graph.value_info] == ["b"]
    assert [dim.dim_value for dim in model.proto.graph.value_info[0].type.tensor_type.shape.dim] == [2, 4]


def test_a_node_is_called_by_its_name_or_its_operator() -> None:
    assert label(gs.Node("Mul", name="n")) == "n" and label(gs.Node("Mul")) == "Mul"


def test_a_chain_of_thousands_of_constants_is_not_followed() -> None:
    steps = " ".join(f"w{n + 1} = Neg (w{n})" for n in range(3000))
    model = model_of(f"g (float[2] x) => (float[2] y) <float[2] w0 = {{1,2}}> {{ {steps} y = Mul (x, w3000) }}")
    field = Field(model, model.main, {"Mul"})
    assert field.fold(field.candidates[0].inputs[1]) is None
