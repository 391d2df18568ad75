"""ungroup-deconv: which nodes it makes dense, and that they compute the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.onnx_models import RTX, TENSORRT_8, Layer, assert_equal, attributes, deconvs, make, rewritten
from support.session import run
from support.strategies import layers
from trtconv.core.target import Target
from trtconv.passes import PASSES
from trtconv.passes.ungroup_deconv import UngroupDeconv

DEPTHWISE = Layer((5, 5), (3, 3), (2, 2), group=8, channels=(1, 1), bias="initializer")


@given(
    layers(output_shape=None, auto_pad="NOTSET", output_padding=None),
    st.sampled_from(["initializer", "constant", "cast", "shared", "mul"]),
    st.sampled_from(["float32", "float16"]),
)
def test_one_group_computes_what_several_do(layer: Layer, weight: str, dtype: str) -> None:
    proto, feeds = make(dataclasses.replace(layer, weight=weight, dtype=dtype))
    model, result = rewritten(proto, TENSORRT_8, [UngroupDeconv(fewest=2)])
    assert len(result.edits) == (layer.group > 1)
    assert all(attributes(node).get("group", 1) == 1 for node in deconvs(model))
    assert_equal(run(proto, feeds), run(model.proto, feeds))


def test_it_is_among_the_passes_before_the_forms_are_chosen() -> None:
    proto, feeds = make(dataclasses.replace(DEPTHWISE, output_padding=(1, 1)))
    model, result = rewritten(proto, TENSORRT_8, PASSES)
    assert [edit.pass_name for edit in result.edits] == ["ungroup-deconv", "make-deconv-explicit"]
    assert "8 groups of 8x1x3x3 weights made one" in result.edits[0].what
    assert_equal(run(proto, feeds), run(model.proto, feeds))


@pytest.mark.parametrize(
    ("layer", "target"),
    [
        (DEPTHWISE, RTX),
        (DEPTHWISE, Target("tensorrt", (10, 3))),
        (dataclasses.replace(DEPTHWISE, group=4), TENSORRT_8),
        (dataclasses.replace(DEPTHWISE, weight="input"), TENSORRT_8),
        (dataclasses.replace(DEPTHWISE, weight="dq_int8"), TENSORRT_8),
        (dataclasses.replace(DEPTHWISE, kernel=(9, 9)), TENSORRT_8),
        (dataclasses.replace(DEPTHWISE, group=700), TENSORRT_8),
    ],
)
def test_what_it_leaves_alone(layer: Layer, target: Target) -> None:
    proto, _ = make(layer)
    model, result = rewritten(proto, target, [UngroupDeconv()])
    assert (result.edits, model.proto) == ((), proto)


def test_a_weight_that_does_not_fit_its_groups() -> None:
    proto, _ = make(DEPTHWISE)
    node = next(each for each in proto.graph.node if each.op_type == "ConvTranspose")
    next(a for a in node.attribute if a.name == "group").i = 9
    model, result = rewritten(proto, TENSORRT_8, [])
    assert not UngroupDeconv().run(model, TENSORRT_8).edits
    assert not np.any(result.edits)
