"""A transposed convolution by itself: what stands around it in the network, and a model that takes its inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from trtconv.graph.layer_alone import layer_of
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import Deconv
from trtconv.runtimes.onnxruntime import session

AROUND = {
    # What is before and behind; whether it begins and ends the network, and a Relu follows.
    "u = ConvTranspose (x, w)  y = Identity (u)": (True, True, False),
    "u = ConvTranspose (x, w)  r = Relu (u)  y = Sigmoid (r)": (True, True, True),
    "u = ConvTranspose (x, w)  r = Relu (u)  y = MaxPool <kernel_shape = [1]> (r)": (True, False, True),
    "c = Clip (x)  d = Tanh (c)  u = ConvTranspose (d, w)  y = Softmax (u)": (True, False, False),
    "c = Softmax (x)  d = Tanh (c)  u = ConvTranspose (d, w)  y = LeakyRelu (u)": (False, True, False),
    # It goes on wherever one of its users does.
    "u = ConvTranspose (x, w)  z = Relu (u)  y = Softmax (u)": (True, False, True),
    "u = ConvTranspose (x, w)  z = Softmax (u)  y = Relu (u)": (True, False, True),
    "u = ConvTranspose (x, w)  y = Relu (u)  v = Sigmoid (u)  z = Softmax (v)": (True, False, True),
    "u = ConvTranspose (x, w)  v = Sigmoid (u)  y = Relu (u)  z = Softmax (v)": (True, False, True),
}


def view_of(body: str, group: int = 1) -> Deconv:
    """The deconvolution of 4 channels to 3, or of groups to twice as many."""
    ones = ",".join(["1"] * 12), ",".join(["1"] * 3 * group)
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,4,n] x) => (float[1,c,m] y)
        <float[4,3,1] w = {{{ones[0]}}}, float[{3 * group}] b = {{{ones[1]}}}> {{ {body} }}"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    return Deconv(model.main, model.main.by_op["ConvTranspose"][0])


@pytest.mark.parametrize(("body", "around"), AROUND.items())
def test_what_stands_around_a_layer(body: str, around: tuple[bool, bool, bool]) -> None:
    layer = layer_of(view_of(body), (4, 3, 1), (1, 4, 8), "float32", 17)
    assert (layer.is_first, layer.is_last, layer.relu) == around


@pytest.mark.parametrize("body", AROUND)
@pytest.mark.parametrize(("element", "dtype"), [("float32", np.float32), ("float16", np.float16), ("int8", np.float32)])
@pytest.mark.parametrize("group", [1, 2])
def test_its_model_takes_its_inputs(body: str, element: str, dtype: type, group: int) -> None:
    said = (
        f"ConvTranspose <group = {group}, strides = [2]> (x, w, b)"
        if "(x, w)" in body
        else f"ConvTranspose <group = {group}> (d, w, b)"
    )
    view = view_of(body.replace("ConvTranspose (x, w)", said).replace("ConvTranspose (d, w)", said), group)
    layer = layer_of(view, (4, 3, 1), (2, 4, 8), element, 17)
    feeds = layer.feeds()
    assert feeds["x"].dtype == dtype and feeds["x"].shape == (2, 4 if layer.is_first else 16, 8)
    (y,) = session(OnnxModel(layer.model(), Path("l.onnx"))).run(None, feeds)
    assert y.shape == (2, 3 * group if layer.is_last else 16, 15 if "strides" in said else 8)
    assert layer.has_bias and str(3 * group) in layer.title
    # Values stay around 1, so that none of a layer in half overflows.
    assert 0.1 < float(np.abs(y.astype(np.float32)).max()) < 100
