"""The passes together: whatever a ConvTranspose says, it computes the same afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from onnx.numpy_helper import from_array

from support.onnx_models import (
    DECONV_PASSES,
    PLACES,
    QUANTIZED,
    RTX,
    TENSORRT_8,
    WEIGHTS,
    Layer,
    assert_equal,
    conv_transpose,
    full_sizes,
    make,
    rewritten,
)
from support.session import run
from support.strategies import layers
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import Pass
from trtconv.passes.deconv_forms import FORMS
from trtconv.passes.explicit_deconv import MakeDeconvExplicit
from trtconv.rules.base import ModelView
from trtconv.runtimes.onnxruntime import session

TARGETS = st.sampled_from([RTX, TENSORRT_8])


def placed(layer: Layer, weight: str, place: str) -> Layer:
    """Returns a layer at a place; its kernel_shape is written where ONNX's shape inference cannot see the weight's."""
    spelled = layer.spelled or (weight == "reshape" and place in ("if", "loop"))
    return dataclasses.replace(layer, weight=weight, place=place, spelled=spelled)


def prove(layer: Layer, target: Target, passes: Sequence[Pass] = DECONV_PASSES) -> None:
    """Rewrites a layer, runs it, and compares with the definition and with the original."""
    proto, feeds = make(layer)
    model, result = rewritten(proto, target, passes)
    got = run(model.proto, feeds)
    assert not result.skipped or layer.opset < 13
    if result.skipped:
        event("skipped")
    elif layer.place in ("main", "if") and layer.weight in ("initializer", "constant", "identity", "input", "reshape"):
        assert_equal([conv_transpose(layer)], got)
    if not result.skipped:
        original = session(OnnxModel(proto, Path("model.onnx")))
        assert_equal(original.run(None, feeds), got)
    for node in ModelView(model).deconvs:
        made = node.geometry
        assert not isinstance(made, str)
        assert made.is_explicit or result.skipped
        assert target.strided_dilated_deconv or not made.is_strided_and_dilated or result.skipped


@given(layers(), TARGETS)
def test_every_layer_computes_the_same_after_the_passes(layer: Layer, target: Target) -> None:
    prove(layer, target)


@given(layers(negative=True, output_shape=None, auto_pad="NOTSET"), TARGETS)
def test_negative_pads_add_zeros(layer: Layer, target: Target) -> None:
    prove(layer, target)


@given(layers(output_shape=None), st.sampled_from(WEIGHTS), st.sampled_from(PLACES), TARGETS)
def test_wherever_the_weight_comes_from_and_wherever_the_node_is(
    layer: Layer, weight: str, place: str, target: Target
) -> None:
    prove(placed(layer, weight, place), target)


def with_form(form: str) -> list[Pass]:
    """Returns the passes, one of which gives every node a form."""
    made = MakeDeconvExplicit(choose=lambda *_: form)
    return [made if isinstance(each, MakeDeconvExplicit) else each for each in DECONV_PASSES]


@pytest.mark.parametrize("form", FORMS)
@given(
    layers(auto_pad="NOTSET", output_shape=None),
    st.sampled_from(["main", "if"]),
    st.sampled_from(["float32", "float16"]),
)
def test_every_form_computes_the_same(form: str, layer: Layer, place: str, dtype: str) -> None:
    prove(dataclasses.replace(placed(layer, "initializer", place), dtype=dtype), TENSORRT_8, with_form(form))


@pytest.mark.parametrize("form", ["kernel", "input"])
@given(
    layers(output_shape=None, auto_pad="NOTSET", opset=17, dtype="float32"),
    st.sampled_from([("dq_int8", None), ("qdq_int8", 1)]),
)
def test_forms_between_quantisers_compute_the_same(form: str, layer: Layer, weight: tuple[str, int | None]) -> None:
    proto, feeds = make(dataclasses.replace(layer, weight=weight[0], axis=weight[1], place="main"))
    graph = proto.graph
    graph.initializer.extend([from_array(np.float32(0.05), "x_scale"), from_array(np.int8(3), "x_zero")])
    node = next(each for each in graph.node if each.op_type == "ConvTranspose")
    node.input[0] = "x_back"
    names = ["x_scale", "x_zero"]
    graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", ["x_int", *names], ["x_back"], name="x_back"))
    graph.node.insert(0, onnx.helper.make_node("QuantizeLinear", ["x", *names], ["x_int"], name="x_int"))
    model, result = rewritten(proto, TENSORRT_8, with_form(form))
    if max(layer.output_padding or (0,)) < min(layer.strides):
        assert_equal(run(proto, feeds), run(model.proto, feeds))
    ops = [each.op_type for each in model.proto.graph.node]
    if "Pad" in ops:
        start = ops.index("Pad")
        assert ops[start : start + 3] == ["Pad", "QuantizeLinear", "DequantizeLinear"]
    assert not result.skipped


@given(layers(dynamic=True), st.sampled_from(WEIGHTS), st.sampled_from(PLACES), TARGETS)
def test_an_output_shape_chosen_for_dynamic_sizes(layer: Layer, weight: str, place: str, target: Target) -> None:
    shape = layer.output_shape or tuple(max(1, n - 1) for n in full_sizes(layer))
    prove(dataclasses.replace(placed(layer, weight, place), output_shape=shape, pads=None), target)


@given(
    layers(output_shape=None, opset=21),
    st.sampled_from(QUANTIZED),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([13, 17, 21]),
    st.sampled_from(PLACES),
    TARGETS,
)
def test_quantised_weights_keep_their_numbers(
    layer: Layer, weight: str, axis: int | None, opset: int, place: str, target: Target
) -> None:
    prove(dataclasses.replace(layer, weight=weight, axis=axis, opset=opset, place=place), target)


@given(layers(), st.sampled_from(WEIGHTS), TARGETS)
def test_half_precision_stays_half(layer: Layer, weight: str, target: Target) -> None:
    prove(dataclasses.replace(layer, weight=weight, dtype="float16"), target)


@given(layers(), st.sampled_from(WEIGHTS), st.sampled_from([9, 10, 11, 12, 22, 23]), TARGETS)
def test_old_and_new_opsets(layer: Layer, weight: str, opset: int, target: Target) -> None:
    prove(dataclasses.replace(layer, weight=weight, opset=opset), target)
