"""Functions of a model: which are called, which hold an operator, and how many nodes there are without them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from support.onnx_models import RTX, parse, wrap
from support.session import run
from trtconv.graph.functions import (
    called_functions,
    function_tensors,
    functions_passing_on,
    functions_with,
    inlined_nodes,
)
from trtconv.passes import PASSES, run_passes

# f calls g twice, g calls h; i is called by nobody; each is of its own domain or the same.
TEXT = """<ir_version: 8, opset_import: ["": 17, "my": 1, "other": 1]>
m (float[2] x, bool c) => (float[2] y) {{ {nodes} }}
<domain: "my", opset_import: ["": 17, "my": 1, "other": 1]> f (a) => (b) {{ t = my.g (a) u = my.g (t) b = Relu (u) }}
<domain: "my", opset_import: ["": 17, "other": 1]> g (a) => (b) {{ t = other.h (a) b = Neg (t) }}
<domain: "other", opset_import: ["": 17]> h (a) => (b) {{ t = Exp (a) u = Log (t) b = Abs (u) }}
<domain: "my", opset_import: ["": 17]> i (a) => (b) {{ b = Exp (a) }}
<domain: "my", opset_import: ["": 17]> h (a) => (b) {{ b = Tan (a) }}"""
BRANCH = (
    "y = If (c) < then_branch = t () => (float[2] u) {{ u = my.{0} (x) }},"
    " else_branch = e () => (float[2] v) {{ v = Relu (x) }}>"
)


def model(nodes: str) -> onnx.ModelProto:
    return parse(TEXT.format(nodes=nodes))


def test_functions_that_are_called() -> None:
    assert called_functions(model("y = my.f (x)")) == {("my", "f"), ("my", "g"), ("other", "h")}
    assert called_functions(model("y = my.g (x)")) == {("my", "g"), ("other", "h")}
    assert called_functions(model("y = Relu (x)")) == set()
    assert called_functions(model(BRANCH.format("i"))) == {("my", "i")}


def test_functions_that_hold_an_operator() -> None:
    functions = model("y = Relu (x)").functions

    def holding(*ops: str) -> list[tuple[str, str]]:
        return [(each.domain, each.name) for each in functions_with(functions, ops)]

    assert holding("Exp") == [("my", "f"), ("my", "g"), ("other", "h"), ("my", "i")]
    assert holding("Neg") == [("my", "f"), ("my", "g")]
    assert holding("Relu") == [("my", "f")]
    assert holding("Tan") == [("my", "h")]
    assert holding("Tan", "Relu") == [("my", "f"), ("my", "h")]
    assert holding("Conv") == holding() == []


@pytest.mark.parametrize(
    ("nodes", "counts"),
    [
        ("y = Relu (x)", [1]),
        ("y = my.i (x)", [2]),
        ("t = my.g (x) y = my.f (t)", [6, 14]),
        ("t = my.f (x) y = Neg (t)", [14, 1]),
        ("t = other.h (x) u = my.h (t) y = Neg (u)", [4, 2, 1]),
        (BRANCH.format("g"), [1 + 6 + 1]),
    ],
)
def test_nodes_without_functions(nodes: str, counts: list[int]) -> None:
    proto = model(nodes)
    for number, node in enumerate(proto.graph.node):
        node.name = f"node{number}"
    count, place = inlined_nodes(proto)
    assert count == sum(counts)
    most = counts.index(max(counts))
    assert (place.index, place.node, place.op) == (most, f"node{most}", proto.graph.node[most].op_type)


def test_a_model_without_functions_or_nodes() -> None:
    plain = parse('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { t = Neg (x) y = Neg (t) }')
    assert inlined_nodes(plain)[0] == 2
    empty = model("y = Relu (x)")
    del empty.graph.node[:]
    assert inlined_nodes(empty)[0] == 0


def test_tensors_that_a_function_holds() -> None:
    def tensor(name: str) -> onnx.TensorProto:
        return numpy_helper.from_array(np.ones(1, np.float32), name)

    body = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor("deep"))], "b", [], [])
    body.initializer.append(tensor("weight"))
    sparse = body.sparse_initializer.add()
    sparse.values.CopyFrom(tensor("values"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "indices"))
    nodes = [
        helper.make_node("Constant", [], ["a"], value=tensor("flat")),
        helper.make_node("If", ["x"], ["y"], then_branch=body),
    ]
    function = helper.make_function("my", "f", ["x"], ["y"], nodes, [helper.make_opsetid("", 17)])
    assert sorted(each.name for each in function_tensors(function)) == ["deep", "flat", "indices", "values", "weight"]


PASSING = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
m (float[n,2] x) => (float[n,2] y) { y = my.top (x) }
<domain: "my", opset_import: ["": 17, "my": 1]> leaf <s> (a) => (b) { b = LeakyRelu <alpha: float = @s> (a) }
<domain: "my", opset_import: ["": 17, "my": 1]> middle <s> (a) => (b) { t = my.leaf <s: float = @s> (a)  b = Sin (t) }
<domain: "my", opset_import: ["": 17, "my": 1]> top (a) => (b) { b = my.middle <s = 0.3> (a) }"""


def test_functions_that_pass_an_attribute_on_are_inlined() -> None:
    """TensorRT's parser gives the inner function another value."""
    proto = parse(PASSING)
    assert [function.name for function in functions_passing_on(proto.functions)] == ["middle", "top"]
    rewritten = wrap(proto)
    assert [edit.node for edit in run_passes(rewritten, PASSES, RTX).edits] == ["middle", "top"]
    assert not functions_passing_on(rewritten.proto.functions)
    x = np.array([[-1.0, 2.0]], np.float32)
    (expected,), (got,) = (run(each, {"x": x}) for each in (proto, rewritten.proto))
    np.testing.assert_array_equal(got, expected)
