"""Pooling windows that are longer than an axis: what lies beyond the end counts nowhere."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.session import session
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes.crop_windows import CropPoolWindows

HEAD = '<ir_version: 9, opset_import: ["": 19]> g (float[1,2,3,4] x) => (float[a,b,c,d] y)'
KERNELS, STRIDES = ([5, 5], [5, 2], [2, 9], [3, 4], [4, 4]), ([5, 5], [9, 9], [1, 2], [3, 3])


def pooled(op: str, more: str = "", ends: str = HEAD) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(f"{ends} {{ y = {op} <ceil_mode = 1{more}> (x) }}"), Path("m.onnx"))


def cropped(model: OnnxModel) -> bool:
    return bool(CropPoolWindows().run(model, Target("rtx")).edits)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_what_is_cropped_computes_the_same(op: str) -> None:
    image = np.random.default_rng(7).normal(size=(1, 2, 3, 4)).astype(np.float32)
    counted = (0, 1) if op == "AveragePool" else (0,)
    count = 0
    for kernel, strides, counts in itertools.product(KERNELS, STRIDES, counted):
        counting = ", count_include_pad = 1" if counts else ""
        more = f", kernel_shape = {kernel}, strides = {strides}{counting}"
        before, after = pooled(op, more), pooled(op, more)
        if cropped(after):
            count += 1
            one, two = [session(model.proto).run(None, {"x": image})[0] for model in (before, after)]
            np.testing.assert_allclose(one, two, rtol=1e-5)
            assert not cropped(after), "once is enough"
    assert count >= 6


@pytest.mark.parametrize(
    "more",
    [
        ", kernel_shape = [3, 4], strides = [3, 4]",
        # Such a window begins beyond the end: there is none.
        ", kernel_shape = [2, 9], strides = [5, 5]",
        ", kernel_shape = [5, 5], strides = [1, 2]",
        ", kernel_shape = [5, 5], strides = [5, 5], pads = [0, 1, 0, 1]",
        ", kernel_shape = [3, 3], strides = [5, 5], dilations = [2, 2]",
        ', kernel_shape = [5, 5], strides = [5, 5], auto_pad = "SAME_UPPER"',
    ],
)
def test_others_are_left_as_they_are(more: str) -> None:
    model = pooled("MaxPool", more)
    before = model.serialize()
    if "pads" in more:
        assert cropped(model) and list(model.proto.graph.node[0].attribute[0].ints)[:1] != [5]
    else:
        assert not cropped(model)
        assert model.serialize() == before


def test_free_sizes_are_left_as_they_are() -> None:
    free = HEAD.replace("3,4", "h,w")
    assert not cropped(pooled("MaxPool", ", kernel_shape = [5, 5], strides = [5, 5]", free))
