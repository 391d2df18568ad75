"""Constants that are no number where one is needed: of another size, of another type, or not finite."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.onnx_models import RTX, TENSORRT_8, parse
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import passes_for, run_passes
from trtconv.rules import run_rules

HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
WEIGHT = f"int8[2,2,2,2] w = {{{', '.join('1' * 16)}}}"
IMAGE = "(float[1,2,4,4] x) => (float[a,b,c,d] y)"
PADDED = """{ q = QuantizeLinear (x, s, z)  r = Pad (q, p, f)  y = DequantizeLinear (r, s, z) }"""
MODELS = {
    "pad": f"""{HEAD} {IMAGE} <float s = {{0.5}}, int8 z = {{0}}, int64[8] p = {{0,0,1,1,0,0,1,1}}, int8 f = {{5}}>
        {PADDED}""",
    "pad around 128": f"""{HEAD} {IMAGE} <float s = {{0.5}}, uint8 z = {{128}}, int64[8] p = {{0,0,1,1,0,0,1,1}},
        uint8 f = {{5}}> {PADDED}""",
    "pad around 3": f"""{HEAD} {IMAGE} <float s = {{0.5}}, uint8 z = {{3}}, int64[8] p = {{0,0,1,1,0,0,1,1}},
        uint8 f = {{5}}> {PADDED}""",
    "clip": f"""{HEAD} {IMAGE} <float s = {{0.5}}, int8 z = {{0}}, int8 lo = {{-5}}, int8 hi = {{5}}>
        {{ q = QuantizeLinear (x, s, z)  r = Clip (q, lo, hi)  y = DequantizeLinear (r, s, z) }}""",
    "clipped weight": f"""{HEAD} {IMAGE} <float s = {{0.5}}, int8 z = {{0}}, int8 lo = {{-5}}, int8 hi = {{5}},
        {WEIGHT}>
        {{ v = Clip (w, lo, hi)  d = DequantizeLinear (v, s, z)  y = ConvTranspose (x, d) }}""",
    "float clip": f"{HEAD} {IMAGE} <float lo = {{5}}, float hi = {{-5}}> {{ y = Clip (x, lo, hi) }}",
    "deconvolution": f"""{HEAD} {IMAGE} <float s = {{0.5}}, int8 z = {{0}}, float ws = {{0.1}}, int8 wz = {{0}},
        {WEIGHT}>
        {{ q = QuantizeLinear (x, s, z)  xd = DequantizeLinear (q, s, z)  wd = DequantizeLinear <axis = 0> (w, ws, wz)
           c = ConvTranspose <strides = [2,2], output_padding = [1,1]> (xd, wd)
           q2 = QuantizeLinear (c, s, z)  y = DequantizeLinear (q2, s, z) }}""",
    "integer convolution": f"""{HEAD} (uint8[1,2,4,4] x) => (uint8[a,b,c,d] y) <float s = {{0.5}}, uint8 z = {{0}},
        float ws = {{0.1}}, int8 wz = {{0}}, {WEIGHT}, int32[2] b = {{1, 2}}>
        {{ y = QLinearConv (x, s, z, w, ws, wz, s, z, b) }}""",
}
SHAPES: tuple[tuple[int, ...], ...] = ((0,), (2,), (3,), (0, 2), (1, 1), (2, 2))
VALUES = {
    "uint8": (255,),
    "int16": (-32768,),
    "int32": (2**31 - 1, -(2**31)),
    "int64": (2**62, -(2**62)),
    "float16": (np.nan,),
    "float32": (np.nan, np.inf, -1.0),
}


def look_at(model: str, odd: dict[str, Any]) -> None:
    """Runs rules and passes over a model with these constants; nothing may be raised."""
    proto = parse(MODELS[model])
    for tensor in proto.graph.initializer:
        if tensor.name in odd:
            tensor.CopyFrom(numpy_helper.from_array(odd[tensor.name], tensor.name))
    targets: tuple[Target, ...] = (RTX, TENSORRT_8)
    for target, precision, requantize in itertools.product(targets, ("as-is", "int8"), (False, True)):
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        looked_at = OnnxModel(copy, Path("m.onnx"))
        run_rules(looked_at, target)
        run_passes(looked_at, passes_for(precision, requantize=requantize), target)
        run_rules(looked_at, target)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("model", MODELS)
def test_one_constant_is_another(model: str) -> None:
    for tensor in parse(MODELS[model]).graph.initializer:
        usual = numpy_helper.to_array(tensor)
        for shape in SHAPES:
            look_at(model, {tensor.name: np.ones(shape, usual.dtype)})
        for dtype, values in VALUES.items():
            look_at(model, {tensor.name: np.ones((0,), dtype)})
            for value in values:
                look_at(model, {tensor.name: np.full(usual.shape, value, dtype)})


@pytest.mark.parametrize("model", MODELS)
def test_two_constants_are_others(model: str) -> None:
    known = {each.name: numpy_helper.to_array(each).dtype for each in parse(MODELS[model]).graph.initializer}
    for pair in itertools.combinations(known, 2):
        for shape in ((0,), (2,)):
            look_at(model, {name: np.ones(shape, known[name]) for name in pair})
