"""What a model gives to libraries that look at it: its weights where they are few, and names that are its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from support.onnx_models import parse, wrap
from trtconv.core.errors import InputError
from trtconv.graph.inference import SMALL_ELEMENTS
from trtconv.graph.model import OnnxModel

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[n] x, float[2] given) => (float[n] y)
    <float[1] given = {1}> { x_2 = Neg (x) y = If (c) < then_branch = t () => (float[n] u_1) { u_1 = Abs (x_2) }> }"""


def test_names_that_are_made_are_numbered_and_nobody_elses() -> None:
    model = wrap(parse(TEXT))
    assert [model.fresh_name("x") for _ in range(4)] == ["x_1", "x_3", "x_4", "x_5"]
    assert [model.fresh_name("u") for _ in range(2)] == ["u", "u_2"]
    assert [model.fresh_name("given"), model.fresh_name("new"), model.fresh_name("new")] == ["given_1", "new", "new_1"]


def stored(tmp_path: Path, count: int, external: bool) -> OnnxModel:
    proto = parse('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[a] y) { y = Add (x, w) }')
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(count, np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=external, size_threshold=0)
    return OnnxModel.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("count", [SMALL_ELEMENTS // 2, SMALL_ELEMENTS, SMALL_ELEMENTS + 1, 1000])
def test_a_skeleton_has_small_weights_alone(tmp_path: Path, count: int, external: bool) -> None:
    skeleton = stored(tmp_path, count, external).skeleton()
    inside = count <= SMALL_ELEMENTS and not external
    assert [tensor.name for tensor in skeleton.graph.initializer] == (["w"] if inside else [])
    assert [value.name for value in skeleton.graph.input] == (["x"] if inside else ["x", "w"])
    kind = skeleton.graph.input[-1].type.tensor_type
    assert kind.elem_type == TensorProto.FLOAT and kind.shape.dim[0].dim_value == (1 if inside else count)


@pytest.mark.parametrize(
    ("count", "external", "kept"), [(1000, False, True), (1000, True, False), (5_000_000, False, False)]
)
def test_libraries_see_weights_that_are_inside_and_few(tmp_path: Path, count: int, external: bool, kept: bool) -> None:
    data = stored(tmp_path, count, external).without_weights()
    assert (len(data) > 4 * count) == kept
    assert bool(onnx.ModelProto.FromString(data).graph.initializer) == kept


def test_a_file_without_results_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    whole = parse('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Neg (x) }')
    without = onnx.ModelProto.FromString(whole.SerializeToString())
    del without.graph.output[:]
    for proto in (onnx.ModelProto(ir_version=8, producer_name="p"), without):
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(InputError, match="holds no graph with outputs"):
            OnnxModel.load(path)
    path.write_bytes(whole.SerializeToString())
    assert list(OnnxModel.load(path).outputs) == ["y"]


def test_types_of_constants_are_those_of_initializers_and_nodes() -> None:
    model = wrap(
        parse(
            """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <int8 q = {1}> {
        d = Constant <value_floats = [1.0]> () e = Constant <value_string = "text"> () y = Neg (x) }"""
        )
    )
    assert {TensorProto.INT8, TensorProto.FLOAT} <= model.main.constant_types
    assert TensorProto.INT64 not in model.main.constant_types


def test_a_deconvolution_without_a_weight_keeps_no_other_shape_from_being_known() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,6] x) => (float[1,c,m] y, float[1,2,6] z) {
        y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2], output_padding = [1]> (x)
        t = Abs (x) z = Neg (t) }"""
    assert wrap(parse(text)).main.shape("t") == (1, 2, 6)
