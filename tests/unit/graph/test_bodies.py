"""ONNX's definitions written out compute what the node does, and take nothing of the graph around them for theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from support.session import Array, run
from trtconv.graph.bodies import body_of, renamed, written_out
from trtconv.graph.model import OnnxModel

# A graph of one node, by its opset. Definitions: plain, of types, with defaults, with inputs and outputs left out,
# with branches inside, and those that changed with the opset.
NODES = {
    "Celu": ("Celu <alpha = 0.5> (x)", 17),
    "Celu by default": ("Celu (x)", 17),
    "Gelu": ("Gelu (x)", 20),
    "Gelu by tanh": ('Gelu <approximate = "tanh"> (x)', 20),
    "Clip from below": ("Clip (x, low)", 17),
    "Clip from above": ("Clip (x, , high)", 17),
    "Clip": ("Clip (x, low, high)", 17),
    "LayerNormalization": ("LayerNormalization <axis = 1> (x, scale, shift)", 17),
    "LayerNormalization of two axes": ("LayerNormalization <axis = -2, epsilon = 0.1> (x, square)", 17),
    "Softmax": ("Softmax <axis = 1> (x)", 13),
    "Softmax of the last axis": ("Softmax (x)", 18),
    "LogSoftmax": ("LogSoftmax <axis = 0> (x)", 18),
    "HardSwish": ("HardSwish (x)", 17),
    "LeakyRelu": ("LeakyRelu <alpha = 0.3> (x)", 17),
    "ReduceSumSquare": ("ReduceSumSquare <keepdims = 0> (x, one)", 18),
    "ReduceL2 of all": ("ReduceL2 (x)", 18),
    "Swish": ("Swish <alpha = 2.0> (x)", 24),
    "Less or equal": ("LessOrEqual (x, low)", 17),
    "CenterCropPad": ("CenterCropPad <axes = [1]> (x, two)", 18),
}
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
HEADER = """<ir_version: 8, opset_import: ["": {}]> g (float[3,4] x) => ({} y)
    <float low = {{-0.5}}, float high = {{0.5}}, float[4] scale = {{1,2,3,4}}, float[4] shift = {{4,3,2,1}},
     float[3,4] square = {{1,2,3,4,1,2,3,4,1,2,3,4}}, int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {} }}"""


def model_of(nodes: str, opset: int, kind: str = "float[a,b]") -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(HEADER.format(opset, kind, nodes)), Path("m.onnx"))


def result(proto: onnx.ModelProto) -> Array:
    (values,) = ReferenceEvaluator(proto).run(None, {"x": X})
    return np.asarray(values)


@pytest.mark.parametrize("name", NODES)
def test_a_definition_computes_what_the_node_does(name: str) -> None:
    text, opset = NODES[name]
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("the onnx that is installed does not have this opset")
    kind = (
        "bool[a,b]"
        if "Less" in name
        else "float"
        if "all" in name
        else "float[a]"
        if "keepdims" in text
        else "float[a,b]"
    )
    model = model_of(f"y = {text}", opset, kind)
    expected = result(model.proto)
    (node,) = model.proto.graph.node
    function = body_of(model.main, node, opset)
    assert function is not None
    nodes = written_out(function, node, model.fresh_name)
    assert all(maker.op_type != node.op_type for maker in nodes)
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(nodes)
    onnx.checker.check_model(model.proto)
    np.testing.assert_allclose(result(model.proto), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("Relu (x)", 13),
        ("MatMul (x, square)", 17),
        ("Gelu (x)", 19),
        ("my.Gelu (x)", 20),
        ("LayerNormalization (unknown, scale)", 17),
    ],
)
def test_what_has_no_definition(text: str, opset: int) -> None:
    """No function at this opset, no such operator in it, another's operator, or a type that is not known."""
    model = model_of(f"y = {text}", opset)
    assert body_of(model.main, model.proto.graph.node[0], opset) is None


def test_types_are_those_of_the_graph_around_a_branch() -> None:
    """A definition in a branch that depends on the type of what is read from outside."""
    text = """y = If (c) < then_branch = t () => (float[a,b] u) { u = Celu (x) },
        else_branch = e () => (float[a,b] v) { v = Celu (scale) }>"""
    model = model_of(f"c = Constant <value = bool {{1}}> () {text}", 17)
    branches = [scope for scope in model.scopes if scope.parent is not None]
    assert len(branches) == 2
    for scope in branches:
        assert body_of(scope, scope.columns.nodes[0], 17) is not None


def test_a_call_fills_in_names_and_attributes() -> None:
    """What a call leaves out is left out inside; what it does not want is made under a name of its own."""
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> m (float[2] x) => (float[2] y) {
            y = my.f <beta = 3.0> (x) }
        <domain: "my", opset_import: ["": 17]> f <beta, gamma> (a, b) => (p, q) {
            s = Elu <alpha: float = @beta> (a)  t = Elu <alpha: float = @gamma> (s)
            q = If (b) < then_branch = g1 () => (u) { u = Add (s, a) }, else_branch = g2 () => (v) { v = Add (t, b) }>
            p = Mul (t, a) }"""
    proto = onnx.parser.parse_model(text)
    (node,), (function,) = proto.graph.node, proto.functions
    node.domain = ""
    taken: list[str] = []

    def fresh(name: str) -> str:
        taken.append(name)
        return f"{name}!"

    node.op_type = "Relu"
    first, second, branch, last = written_out(function, node, fresh)
    assert [copy.name for copy in (first, second, branch, last)] == ["y/Elu!", "y/Elu!", "y/If!", "y/Mul!"]
    assert (first.input[:], first.output[:]) == (["x"], ["y/s!"])
    assert [(entry.name, entry.f, entry.ref_attr_name) for entry in first.attribute] == [("alpha", 3.0, "")]
    assert (second.input[:], second.output[:], len(second.attribute)) == (["y/s!"], ["y/t!"], 0)
    assert (last.input[:], last.output[:]) == (["y/t!", "x"], ["y"])
    assert (branch.input[:], branch.output[:]) == ([""], ["y/q!"])
    bodies = {entry.name: entry.g for entry in branch.attribute}
    yes, no = bodies["then_branch"], bodies["else_branch"]
    assert (yes.node[0].input[:], yes.node[0].output[:], yes.output[0].name) == (["y/s!", "x"], ["y/u!"], "y/u!")
    assert (no.node[0].input[:], no.output[0].name) == (["y/t!", ""], "y/v!")
    assert len(function.node) == 4 and function.node[0].input[0] == "a"


def test_a_call_is_named_after_its_node_or_what_it_makes() -> None:
    function = onnx.FunctionProto(
        output=["p"], node=[helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Abs", ["t"], ["p"])]
    )
    for node, stem in (
        (onnx.NodeProto(name="n", op_type="Relu", output=["y"]), "n"),
        (onnx.NodeProto(op_type="Relu", output=["", "y"]), "y"),
        (onnx.NodeProto(op_type="Relu", output=[""]), "Relu"),
    ):
        nodes = written_out(function, node, lambda name: name)
        assert [copy.name for copy in nodes] == [f"{stem}/Neg", f"{stem}/Abs"]
        assert nodes[0].output[0] == f"{stem}/t" and nodes[1].output[0] == (node.output[0] or f"{stem}/p")


LOOP = """<ir_version: 8, opset_import: ["": 17]> m (float[2] x, int64 k, bool c) => (float[2] y) {
    [if] y = If (c) < then_branch = t () => (float[2] r) <float[2] w = {1,2}> {
        s = Add (x, w)
        r = Loop (k, , s) < body = b (int64 i, bool d, float[2] v) => (bool e, float[2] u) <float[2] o = {3,4}> {
            e = Identity (d)  g = Mul (v, o)  u = Add (g, w) }>
        }, else_branch = f () => (float[2] x) { } > }"""


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_stands_in_the_place_of_its_if(taken: bool) -> None:
    model = OnnxModel(onnx.parser.parse_model(LOOP), Path("m.onnx"))
    feeds = {"x": np.float32([1, 2]), "k": np.array(3), "c": np.array(taken)}
    graph = model.proto.graph
    (node,) = graph.node
    branches = {entry.name: entry.g for entry in node.attribute}
    branch = branches["then_branch" if taken else "else_branch"]
    value = feeds["x"]
    if taken:
        value = value + np.float32([1, 2])
        for _ in range(3):
            value = value * np.float32([3, 4]) + np.float32([1, 2])
    nodes, constants = renamed(branch, node, model.fresh_name)
    assert [tensor.name for tensor in constants] == (["if/w"] if taken else [])
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    del graph.input[2]
    onnx.checker.check_model(model.proto)
    del feeds["c"]
    (found,) = run(model.proto, feeds)
    np.testing.assert_array_equal(found, value)
    names = [name for copy in nodes for name in copy.output]
    assert names == (["if/s", "y"] if taken else ["y"])
    assert all(copy.name.startswith("if/") for copy in nodes)


def test_a_result_that_nobody_takes_is_not_handed_on() -> None:
    branch = onnx.GraphProto(output=[onnx.ValueInfoProto(name="x"), onnx.ValueInfoProto(name="x")])
    nodes, _ = renamed(branch, onnx.NodeProto(op_type="If", output=["", "y"]), lambda name: name)
    assert [(node.op_type, node.input[:], node.output[:]) for node in nodes] == [("Identity", ["x"], ["y"])]
