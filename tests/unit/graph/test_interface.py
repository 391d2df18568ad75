"""Inputs and outputs of a model in other types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from trtconv.core.errors import InputError
from trtconv.core.interface import Interface
from trtconv.core.tensor_io import TensorIo, read_io
from trtconv.graph.fitting import fit, reloaded
from trtconv.graph.interface import rename_inside, retype
from trtconv.graph.model import OnnxModel

TWO = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,2] x, float[n,2] y, int64[1] k) => (float[n,2] a, float[n,2] b, int64[1] m)
{ a = Add (x, y)  s = Sigmoid (a)  b = Mul (s, x)  m = Add (k, k) }
"""
CODES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,2] x) => (float[n,2] y)
<float s = {0.5}, float t = {0.25}, int8 z = {0}>
{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  r = Relu (d)
  p = QuantizeLinear (r, t, z)  y = DequantizeLinear (p, t, z) }
"""
BRANCH = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y)
{ y = If (c) <then_branch = t () => (float[2] a) { a = Relu (x) }, else_branch = e () => (float[2] b) { b = Neg (x) }> }
"""
PASSED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] x, float[2] w, float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }
"""
INSIDE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y)
<float s = {0.5}, int8 z = {0}>
{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
  i = If (c) <then_branch = t () => (int8[2] a) { a = QuantizeLinear (x, s, z) },
              else_branch = e () => (int8[2] b) { b = Identity (q) }>
  f = DequantizeLinear (i, s, z)  y = Add (d, f) }
"""
READ_INSIDE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y, float[2] w)
<float s = {0.5}, int8 z = {0}>
{ q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)
  w = If (c) <then_branch = t () => (float[2] a) { a = Relu (y) },
              else_branch = e () => (float[2] b) { b = Relu (x) }> }
"""
SPLIT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] y)
<float s = {0.5}, float t = {0.25}, int8 z = {0}>
{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
  p = QuantizeLinear (x, t, z)  e = DequantizeLinear (p, t, z)  y = Add (d, e) }
"""
Make = Callable[[str], OnnxModel]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def load(text: str) -> OnnxModel:
        path = tmp_path / "m.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return OnnxModel.load(path)

    return load


def ran(model: OnnxModel, **feeds: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model.serialize())
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def types(model: OnnxModel) -> dict[str, str]:
    graph = model.proto.graph
    return {v.name: onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)}


def test_each_has_its_own_type_and_the_numbers_stay(make: Make) -> None:
    model = make(TWO)
    retype(model, read_io(["x=uint8", "b=fp16", "k=int32"], None, None))
    kept = {"y": "FLOAT", "a": "FLOAT", "m": "INT64"}
    assert types(model) == {"x": "UINT8", "b": "FLOAT16", "k": "INT32", **kept}
    feeds = {"y": np.array([[-1.5, 0.25]], np.float32), "k": np.array([3], np.int32)}
    got = ran(model, x=np.array([[255, 2]], np.uint8), **feeds)
    x = np.array([[255, 2]], np.float32)
    expected = ran(make(TWO), x=x, y=feeds["y"], k=np.array([3]))
    assert np.array_equal(got["a"], expected["a"])
    assert np.array_equal(got["b"], expected["b"].astype(np.float16))
    assert np.array_equal(got["m"], expected["m"])


def test_the_nearest_name_counts_and_all_means_those_that_can(make: Make) -> None:
    model = make(TWO)
    retype(model, read_io(["inputs=fp16", "y=fp32", "outputs#1=fp16:chw32"], None, None))
    assert {name for name, kind in types(model).items() if kind == "FLOAT16"} == {"x", "b"}
    assert {name: str(io) for name, io in model.io.items()} == {"x": "fp16", "y": "fp32", "b": "fp16:chw32"}


def test_trtexecs_lists_are_in_order_and_one_is_for_all(make: Make) -> None:
    model = make(TWO)
    retype(model, read_io([], "fp16:chw,fp32:hwc8,int32:chw", "fp16:chw"))
    assert types(model) == {
        **{"x": "FLOAT16", "y": "FLOAT", "k": "INT32"},
        **{"a": "FLOAT16", "b": "FLOAT16", "m": "INT64"},
    }
    assert model.io["y"] == TensorIo("fp32", "hwc8")


def test_int8_are_the_codes_of_the_quantisers(make: Make) -> None:
    model = make(CODES)
    retype(model, read_io(["x=int8", "y=int8:chw4"], None, None))
    assert [node.op_type for node in model.proto.graph.node] == ["DequantizeLinear", "Relu", "QuantizeLinear"]
    assert (model.io["x"].scale, model.io["y"].scale) == (0.5, 0.25)
    codes = np.array([[-7, 9]], np.int8)
    expected = ran(make(CODES), x=codes.astype(np.float32) * np.float32(0.5))["y"]
    assert np.array_equal(ran(model, x=codes)["y"].astype(np.float32) * np.float32(0.25), expected)


def test_branches_read_what_the_cast_makes(make: Make) -> None:
    model = make(BRANCH)
    retype(model, read_io(["x=uint8"], None, None))
    assert ran(model, x=np.array([1, 2], np.uint8), c=np.array(False))["y"].tolist() == [-1.0, -2.0]


def test_the_file_again_has_the_same_interface(make: Make) -> None:
    for text in (TWO, CODES):
        model = make(text)
        io = read_io(["inputs=int8" if text is CODES else "inputs=fp16", "outputs=fp16"], None, None)
        fit(model, Interface(io=io))
        again = reloaded(model.copy())
        assert (types(again), again.io) == (types(model), model.io)


@pytest.mark.parametrize(
    ("text", "io", "what"),
    [
        (TWO, "z=fp16", "no input or output 'z'"),
        (TWO, "inputs#9=fp16", "--io inputs#9: .* has 3 inputs, which count from 0"),
        (TWO, "inputs#b=fp16", "no input or output 'inputs#b'"),
        (TWO, "x=int8", "QuantizeLinear"),
        (TWO, "b=int8", "DequantizeLinear"),
        (TWO, "a=uint8", "beyond 0 to 255"),
        (TWO, "x=int64", "it is float"),
        (TWO, "k=fp16", "it is int64"),
        (TWO.replace('"" : 17', '"" : 11'), "x=bf16", "opset 13"),
        (PASSED, "x=fp16", "returned as it is"),
        (PASSED, "outputs#0=fp16", "no node makes it"),
        (PASSED, "w=fp16", "no node makes it"),
        (INSIDE, "x=int8", "all that reads it"),
        (CODES.replace("(p, t, z) }", "(p, t, z)  u = Relu (y) }"), "y=int8", "for the output alone"),
        (READ_INSIDE, "y=int8", "for the output alone"),
        (
            CODES.replace("float s = {0.5}", "int8 o = {0}")
            .replace("(x, s, z)", "(x, t)")
            .replace("(q, s, z)", "(q, t)"),
            "x=int8",
            "zero point 0",
        ),
        (SPLIT, "x=int8", "all that reads it"),
        (CODES.replace("int8 z", "uint8 z"), "x=int8", "zero point 0"),
        (CODES.replace("float s = {0.5}", "float[0] s = {}"), "x=int8", "zero point 0"),
        (CODES.replace("float s = {0.5}", "float[2] s = {0.5, 0.5}"), "x=int8", "zero point 0"),
        (CODES.replace("z = {0}", "z = {3}"), "y=int8", "zero point 0"),
        (CODES.replace("r = Relu (d)", "e = Relu (d)  r = Add (e, x)"), "x=int8", "all that reads it"),
    ],
)
def test_what_cannot_be(make: Make, text: str, io: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        retype(make(text), read_io([io], None, None))


def test_a_list_of_more_formats_than_there_are_inputs(make: Make) -> None:
    with pytest.raises(InputError, match="has 3 inputs") as refused:
        retype(make(TWO), read_io([], "fp16:chw,fp32:chw,int32:chw,fp16:chw", None))
    assert "--inputIOFormats" in refused.value.hint
    with pytest.raises(InputError, match="--outputIOFormats 'fp61'"):
        read_io([], None, "fp61")


@pytest.mark.parametrize("texts", [["x"], ["=fp16"], ["x=fp61"], ["x=fp16:hwc9"], ["x=fp16:chw+hwc8"], ["x=fp16"] * 2])
def test_what_is_not_type_and_format(texts: list[str]) -> None:
    with pytest.raises(InputError):
        read_io(texts, None, None)


def test_a_format_that_was_computed_wrongly_is_refused() -> None:
    with pytest.raises(InputError, match="is not safe") as refused:
        TensorIo.parse("fp16:chw4")
    for text in ("int8:chw4", "fp16:chw2", "fp16:chw16", "fp16:hwc8"):
        assert str(TensorIo.parse(text)) == text
    assert all(word in refused.value.hint for word in ("fp16:chw2", "fp16:chw16", "fp16:hwc8"))


TWICE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,2] x) => (float[n,2] y)
<float s = {0.5}, float t = {0.25}, int8 z = {0}>
{ q = QuantizeLinear (x, s, z)  p = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
  e = DequantizeLinear (p, s, z)  y = Add (d, e) }
"""


def test_quantisers_that_do_the_same_are_left_out_together(make: Make) -> None:
    model = make(TWICE)
    retype(model, read_io(["x=int8"], None, None))
    assert [node.op_type for node in model.proto.graph.node] == ["DequantizeLinear", "DequantizeLinear", "Add"]
    assert ran(model, x=np.array([[-7, 9]], np.int8))["y"].tolist() == [[-7.0, 9.0]]
    for different in ("(x, t, z)", "(x, s)", "(x, s, s)"):
        with pytest.raises(InputError, match="all that reads it"):
            retype(
                make(TWICE.replace("p = QuantizeLinear (x, s, z)", f"p = QuantizeLinear {different}")),
                read_io(["x=int8"], None, None),
            )


def test_bfloat16_from_the_opset_on_that_casts_to_it(make: Make) -> None:
    for opset in (13, 17):
        model = make(TWO.replace('"" : 17', f'"" : {opset}'))
        retype(model, read_io(["x=bf16"], None, None))
        assert types(model)["x"] == "BFLOAT16"
    with pytest.raises(InputError, match="opset 13"):
        retype(make(TWO.replace('"" : 17', '"" : 12')), read_io(["x=bf16"], None, None))


def test_inner_tensors_are_named_by_the_type_that_they_keep(make: Make) -> None:
    model = make(TWO)
    retype(model, read_io(["x=fp16", "k=int32"], None, None))
    casts = {node.input[0]: node.output[0] for node in model.proto.graph.node if node.op_type == "Cast"}
    assert casts == {"x": "x_fp32", "k": "k_int64"}


def test_tensors_are_renamed_wherever_they_are_read_or_made() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y) {
        a = Neg (x)
        y = If (c) <then_branch = p () => (float[2] a) { }, else_branch = q () => (float[2] d) { d = Add (a, x) }> }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    rename_inside(model, {"a": "z", "x": "w", "y": "v"})
    graph = model.proto.graph
    assert [(list(node.input), list(node.output)) for node in graph.node] == [(["w"], ["z"]), (["c"], ["v"])]
    bodies = [attribute.g for attribute in graph.node[1].attribute]
    assert {body.output[0].name: [list(node.input) for node in body.node] for body in bodies} == {
        "z": [],
        "d": [["z", "w"]],
    }
    # The model's own ends keep their names.
    assert ([each.name for each in graph.input], [each.name for each in graph.output]) == (["x", "c"], ["y"])
