"""What takes the place of nodes keeps what the file says of them, and nothing stays that nothing uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches

TEXT = """<ir_version: 3, opset_import: ["": 17]>
g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}>
{ a = Mul (x, w)  b = Add (a, v)  y = Neg (b) }"""


def model() -> OnnxModel:
    made = OnnxModel(onnx.parser.parse_model(TEXT), Path("m.onnx"))
    made.proto.graph.node[1].doc_string = "the bias"
    made.proto.graph.node[1].metadata_props.add(key="from", value="net.py:7")
    return made


def test_the_new_nodes_have_the_words_and_places_of_the_old_one() -> None:
    given = model()
    patch = Patch(given, given.main)
    own = helper.make_node("Sub", ["a", "c"], ["s"], doc_string="its own")
    own.metadata_props.add(key="from", value="elsewhere")
    constant = numpy_helper.from_array(np.array([5, 6], np.float32), "c")
    patch.replace(1, [own, helper.make_node("Abs", ["s"], ["b"])], [constant])
    assert [node.op_type for node in given.proto.graph.node] == ["Mul", "Add", "Neg"]
    assert close_patches([patch])
    nodes = given.proto.graph.node
    assert [node.op_type for node in nodes] == ["Mul", "Sub", "Abs", "Neg"] == list(given.main.columns.ops)
    assert [node.doc_string for node in nodes] == ["", "its own", "the bias", ""]
    assert [[entry.value for entry in node.metadata_props] for node in nodes] == [[], ["elsewhere"], ["net.py:7"], []]
    # The bias is read no more.
    assert sorted(tensor.name for tensor in given.proto.graph.initializer) == ["c", "w"]
    assert given.proto.ir_version == 4


def test_without_a_change_nothing_is_written() -> None:
    given = model()
    before = given.proto.SerializeToString()
    assert not close_patches([Patch(given, given.main)])
    assert given.proto.SerializeToString() == before


@pytest.mark.parametrize("body", ["Neg (a)", "If (c) <then_branch = p () => (float[2] k) { k = Abs (a) }>"])
@pytest.mark.parametrize("other", ["Abs", "If"])
def test_graphs_inside_nodes_come_and_go(body: str, other: str) -> None:
    branches = ", ".join(
        f"{name}_branch = {name} () => (float[2] {name}_) {{ {name}_ = Exp (a) }}" for name in ("then", "else")
    )
    first = f"If (c) <{branches}>" if body.startswith("If") else body
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y)
        {{ a = Mul (x, x)  b = {first}  y = Neg (b) }}"""
    given = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    inside = len(given.scopes) - 1
    assert inside == (2 if body.startswith("If") else 0)
    parts = onnx.parser.parse_model(text.replace(first, f"If (c) <{branches}>")).graph.node[1]
    parts.output[0] = "b"
    new = parts if other == "If" else helper.make_node("Abs", ["a"], ["b"])
    patch = Patch(given, given.main)
    patch.replace(1, [new])
    assert close_patches([patch])
    assert len(given.scopes) - 1 == (2 if other == "If" else 0)
    assert given.main.uses_of("a") == (2 if other == "If" else 1)
    assert [op for scope in given.scopes for op in scope.columns.ops].count("Exp") == (2 if other == "If" else 0)
