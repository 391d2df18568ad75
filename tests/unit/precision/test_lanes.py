"""Channels filled up for a Concat of int8 tensors: the same results, parts at whole vectors, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.session import session
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.quantizing import quantize
from trtconv.precision.quantize.lanes import LANES, fill_channels


def unet(width: int, group: int = 1, shown: str = "", skip: str = "") -> onnx.ModelProto:
    """Returns two levels of a U-Net.

    Args:
        width: Channels of the skip.
        group: Groups of the convolution behind the Concat.
        shown: A tensor that is an output too.
        skip: What is joined in the place of the skip.
    """
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / 8, name)

    joined = width + (2 if skip else width)
    weights = [
        *(weight("wa", width, 2, 3, 3), weight("ba", width), weight("wb", 2 * width, width, 3, 3)),
        *(weight("wu", 2 * width, width, 2, 2), weight("bu", width), weight("wc", 4, joined // group, 3, 3)),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "wa", "ba"], ["a"], "a", pads=[1] * 4),
        helper.make_node("LeakyRelu", ["a"], ["s"], "s"),
        helper.make_node("MaxPool", ["s"], ["p"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "wb"], ["b"], "b", pads=[1] * 4),
        helper.make_node("Relu", ["b"], ["r"], "r"),
        helper.make_node("ConvTranspose", ["r", "wu", "bu"], ["u"], "u", strides=[2, 2]),
        helper.make_node("Concat", ["u", skip or "s"], ["j"], "j", axis=1),
        helper.make_node("Conv", ["j", "wc"], ["y"], "c", pads=[1] * 4, group=group),
    ]
    x, *made = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 2, 8, 8]), ("y", [1, 4, 8, 8]), (shown, None))
        if name
    )
    graph = helper.make_graph(nodes, "g", [x], made, weights)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    )


def run(model: onnx.ModelProto) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((1, 2, 8, 8)).astype(np.float32)
    result: np.ndarray = session(model).run(["y"], {"x": x})[0]
    return result


@pytest.mark.parametrize("width", [17, 24, 31, 40, 33 + 15, 56])
def test_the_same_is_computed_with_parts_at_whole_vectors(width: int) -> None:
    before = unet(width)
    model = OnnxModel(unet(width), Path("m.onnx"))
    assert {edit.node for edit in fill_channels(model)} == {"a", "u"}
    onnx.checker.check_model(model.proto, full_check=True)
    np.testing.assert_allclose(run(model.proto), run(before), rtol=1e-4, atol=1e-5)
    for name in ("u", "s"):
        assert (model.main.shape(name) or ())[1] == -(-width // LANES) * LANES
    assert fill_channels(model) == ()


@pytest.mark.parametrize(
    "model",
    [
        unet(64),
        # Twice as much to compute where it stays in float.
        unet(16),
        unet(24, group=2),
        # Whoever takes the output wants its channels as they were.
        unet(24, shown="s"),
        # No layer makes it.
        unet(24, skip="x"),
    ],
    ids=["aligned", "narrow", "groups", "output", "image"],
)
def test_what_is_left_alone(model: onnx.ModelProto) -> None:
    copy = OnnxModel(model, Path("m.onnx"))
    before = copy.serialize()
    assert fill_channels(copy) == ()
    assert copy.serialize() == before


@pytest.mark.parametrize(("target", "channels"), [(Target("tensorrt", (8, 6)), 32), (Target("rtx", (1, 7)), 24)])
def test_quantize_fills_for_tensorrt(tmp_path: Path, target: Target, channels: int) -> None:
    onnx.save(unet(24), tmp_path / "m.onnx")
    asked = QuantizeRequest(
        tmp_path / "m.onnx", tmp_path / "q.onnx", random=True, samples=4, target=target, method="min-max", tolerance=1.0
    )
    report = quantize(asked)
    assert report.exit_code == 0
    assert ("fill-channels" in {edit.pass_name for edit in report.edits}) == (channels == 32)
    model = onnx.load(tmp_path / "q.onnx")
    kernels = {
        tuple(t.dims)[:2] for t in model.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) == 4
    }
    assert (48, channels) in kernels
    assert (4, 2 * channels) in kernels
