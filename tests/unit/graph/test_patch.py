"""What takes the place of nodes keeps what the file says of them, and nothing stays that nothing uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
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
