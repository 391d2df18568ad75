"""overlap-add: which deconvolutions it makes a Conv, and that they compute the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from support.onnx_models import RTX, TENSORRT_8, Layer, assert_equal, attributes, make, parse, rewritten
from support.session import run
from support.strategies import ints
from trtconv.core.target import Target
from trtconv.passes import PASSES, passes_for
from trtconv.passes.overlap_add import OverlapAdd

ISTFT = Layer((7,), (512,), (128,), channels=(64, 1))
"""As small as what is changed may be."""


@st.composite
def lines(draw: st.DrawFn) -> Layer:
    """Transposed convolutions along one axis, of every overlap, also with gaps between the frames."""
    kernel, stride = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    size = draw(st.integers(1, 6))
    full = (size - 1) * stride + kernel
    begin, end = draw(ints(2, 0, 3))
    begin = min(begin, full - 1)
    return Layer(
        (size,),
        (kernel,),
        (stride,),
        pads=(begin, min(end, full - 1 - begin)),
        output_padding=(draw(st.integers(0, stride - 1)),),
        channels=draw(st.sampled_from([(1, 1), (2, 3), (3, 1)])),
        bias=draw(st.sampled_from(["none", "initializer"])),
        weight=draw(st.sampled_from(["initializer", "constant", "cast", "shared", "mul"])),
        dtype=draw(st.sampled_from(["float32", "float16"])),
        opset=draw(st.sampled_from([11, 13, 17, 21])),
        dynamic=draw(st.booleans()),
    )


@given(lines())
def test_a_conv_computes_what_the_deconvolution_does(layer: Layer) -> None:
    proto, feeds = make(layer)
    model, result = rewritten(proto, TENSORRT_8, [OverlapAdd(in_half=True, measured=False)])
    assert [edit.pass_name for edit in result.edits] == ["overlap-add"]
    assert "ConvTranspose" not in {node.op_type for node in model.proto.graph.node}
    assert_equal(run(proto, feeds), run(model.proto, feeds))


@pytest.mark.parametrize("extra", [{}, {"pads": (128, 128)}, {"output_padding": (100,), "bias": "initializer"}])
@pytest.mark.parametrize("precision", ["fp16", "int8", "as-is"])
def test_among_the_passes_it_acts_on_what_is_computed_in_half(extra: dict[str, object], precision: str) -> None:
    proto, feeds = make(dataclasses.replace(ISTFT, **extra))  # type: ignore[arg-type]
    model, result = rewritten(proto, TENSORRT_8, passes_for(precision))
    assert any(edit.pass_name == "overlap-add" for edit in result.edits) == (precision != "as-is")
    assert_equal(run(proto, feeds), run(model.proto, feeds))


def test_a_kernel_kept_in_half_and_cast_to_float_is_computed_with_in_float() -> None:
    w, y = "g (float[1,512,7] x) => (float[1,1,n] y) <float16[512,1,512] w = {0}>", "ConvTranspose<strides=[128]>(x, v)"
    proto = parse(f'<ir_version: 8, opset_import: ["": 17]> {w} {{ v = Cast<to=1>(w) y = {y} }}')
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((512, 1, 512), np.float16), "w"))
    for half in (False, True):
        _, result = rewritten(proto, TENSORRT_8, [OverlapAdd(in_half=half)])
        assert bool(result.edits) == half


def test_a_node_that_has_a_type_of_its_own_keeps_its_name() -> None:
    proto, _ = make(ISTFT)
    proto.graph.node[-1].name = "istft"
    for kept in ((), ("other",), ("istft",)):
        _, result = rewritten(proto, TENSORRT_8, passes_for("fp16", typed_nodes=kept))
        assert any(edit.pass_name == "overlap-add" for edit in result.edits) == ("istft" not in kept)


def test_half_weights_say_so_themselves_and_the_edit_says_what_was_done() -> None:
    proto, feeds = make(dataclasses.replace(ISTFT, dtype="float16", dynamic=True))
    model, result = rewritten(proto, TENSORRT_8, PASSES)
    (edit,) = result.edits
    assert "512 taps with stride 128 computed as a Conv over 4 frames" in edit.what
    conv = next(node for node in model.proto.graph.node if node.op_type == "Conv")
    assert attributes(conv)["pads"] == [3, 3]
    assert_equal(run(proto, feeds), run(model.proto, feeds))


@pytest.mark.parametrize(
    ("layer", "target"),
    [
        (ISTFT, RTX),
        (ISTFT, Target("tensorrt", (10, 3))),
        (dataclasses.replace(ISTFT, kernel=(511,)), TENSORRT_8),
        (dataclasses.replace(ISTFT, strides=(300,)), TENSORRT_8),
        (dataclasses.replace(ISTFT, strides=(50,)), TENSORRT_8),
        (dataclasses.replace(ISTFT, channels=(63, 1)), TENSORRT_8),
        (dataclasses.replace(ISTFT, channels=(64, 3)), TENSORRT_8),
        (dataclasses.replace(ISTFT, dilations=(2,)), TENSORRT_8),
        (dataclasses.replace(ISTFT, group=2), TENSORRT_8),
        (dataclasses.replace(ISTFT, weight="input"), TENSORRT_8),
        (dataclasses.replace(ISTFT, weight="dq_int8"), TENSORRT_8),
        (dataclasses.replace(ISTFT, bias="input"), TENSORRT_8),
        (Layer((3, 3), (512, 1), (128, 1), channels=(512, 1)), TENSORRT_8),
    ],
)
def test_what_it_leaves_alone(layer: Layer, target: Target) -> None:
    proto, _ = make(layer)
    model, result = rewritten(proto, target, [OverlapAdd(in_half=True)])
    assert (result.edits, model.proto) == ((), proto)


def test_a_bias_that_does_not_fit_is_left_to_be_told() -> None:
    proto, _ = make(dataclasses.replace(ISTFT, bias="initializer"))
    bias = next(each for each in proto.graph.initializer if list(each.dims) == [1])
    bias.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), bias.name))
    model, result = rewritten(proto, TENSORRT_8, [OverlapAdd(in_half=True)])
    assert (result.edits, model.proto) == ((), proto)
