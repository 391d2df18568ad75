"""Types of what a network takes and returns, and shapes that decide which integers may be fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.ends import ends_that_differ
from trtconv.runtimes.proof.reference import has_shape, stated_shapes
from trtconv.runtimes.proof.roles import sizing_inputs
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

MODEL = """<ir_version: 8, opset_import: ["": 18]> g (float[2,3] x, int64[1] axes, int64[2] ids) => (int64[2,1] y) {
    r = ReduceSum (x, axes)  t = Gather <axis = 0> (r, ids)  y = Cast <to = 7> (t) }"""


def model() -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(MODEL), Path("m.onnx"))


def network(dtype: str) -> ReadNetwork:
    tensors = (ReadTensor(0, "x", "float32", (2, 3)), ReadTensor(1, "y", dtype, (2, 1)))
    return ReadNetwork(tensors, (ReadLayer(0, "cast", "CAST", (0,), (1,), {}),), (0,), (1,))


def test_an_output_of_another_type_differs() -> None:
    (found,) = ends_that_differ(network("float32"), model())
    assert (found.tensor, found.layer) == ("y", "cast")


def test_what_tensorrt_has_no_room_for_is_narrowed() -> None:
    assert not list(ends_that_differ(network("int64"), model()))
    assert not list(ends_that_differ(network("int32"), model()))


def test_axes_decide_sizes_and_indices_do_not() -> None:
    assert sizing_inputs(model().main.columns.nodes, model().inputs) == {"axes"}


def test_a_stated_shape_tells_which_results_fit() -> None:
    stated = stated_shapes(model())["y"]
    assert stated == (2, 1)
    assert has_shape(np.zeros((2, 1)), stated)
    assert not has_shape(np.zeros((1, 3)), stated)
    assert has_shape(np.zeros((5,)), stated_shapes(model()).get("r"))


def test_an_output_is_held_to_its_node_and_not_to_what_the_file_declares() -> None:
    wrong = OnnxModel(onnx.parser.parse_model(MODEL.replace("int64[2,1] y", "float[2,1] y")), Path("m.onnx"))
    assert not list(ends_that_differ(network("int64"), wrong))
    assert [found.tensor for found in ends_that_differ(network("float32"), wrong)] == ["y"]
