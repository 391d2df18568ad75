"""Nodes that no runtime can take: what is wrong with the types of their inputs; valid ones have no fault."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from support.paths import MODELS
from trtconv.graph.model import OnnxModel
from trtconv.graph.node_validity import fault_of_node

FAULTS = {
    "r = Range (h, h, h)": "its input 'start' is float16, which Range of opset 17 does not take",
    "r = Max (x, y)": "its inputs are float and float16, and have to be of one type",
    "r = GRU <hidden_size = 1> (x3, w, r1)": "its inputs are float and float16, and have to be of one type",
    "r = Gather (x, x)": "its input 'indices' is float, which Gather of opset 17 does not take",
    "r = Max (x, x)": "",
    "r = Range (n, n, n)": "",
    "r = Where (b, x, x)": "",
    "r = Clip (x, , x1)": "",
    # Of types of their own each.
    "s = SequenceConstruct (x, x)  r = SequenceLength (s)": "",
}


@pytest.mark.parametrize(("nodes", "fault"), FAULTS.items())
def test_types_that_onnx_does_not_take(nodes: str, fault: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, float16[2] y, float16 h, int64 n, bool[2] b, float x1, float[1,1,1] x3, float16[1,3,1] w,
       float16[1,3,1] r1) => (float[k] r) {{ {nodes} }}"""
    assert fault_of_node(OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")), 0) == fault


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_nodes_of_valid_models_have_no_fault(path: Path) -> None:
    model = OnnxModel.load(path)
    assert not any(fault_of_node(model, index) for index in range(len(model.main.columns.nodes)))
