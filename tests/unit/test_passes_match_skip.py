"""Deconvolutions that take the size of their skip: equal to a model with just the output_padding of that size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from models import RTX
from tests.sizecases import MODELS
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, PassResult, run_passes
from trtconv.shapes.lattice import Sizes

PASS = next(each for each in PASSES if each.name == "match-skip-size")
SIZES = [*range(8, 26), 31, 40]


def unet(pooled: bool, rank: int = 2, join: str = "Concat", paddings: Any = None) -> onnx.ModelProto:
    """Makes a U-Net of two levels.

    Args:
        pooled: Halve by MaxPool, which rounds down, and double with kernel 2; else Conv and ConvTranspose of kernel 3.
        rank: Spatial dimensions.
        join: How a skip is joined: "Concat" or "Add".
        paddings: output_padding of the two deconvolutions; None: those of a size that is divisible by 4.
    """
    random = np.random.default_rng(3)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(op: str, inputs: list[str], **attrs: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], f"{op}_{len(nodes)}", **attrs))
        return str(nodes[-1].output[0])

    def weight(*shape: int) -> str:
        weights.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    two, kernel, pads = [2] * rank, 2 if pooled else 3, [0 if pooled else 1] * 2 * rank
    paddings = paddings or [[0 if pooled else 1] * rank] * 2
    tensor, skips = "x", []
    for _ in range(2):
        skips.append(tensor)
        if pooled:
            tensor = add("MaxPool", [tensor], kernel_shape=two, strides=two)
        else:
            tensor = add("Conv", [tensor, weight(2, 2, *[3] * rank)], strides=two, pads=pads)
    for padding in paddings:
        attrs = {"strides": two, "pads": pads, "output_padding": padding}
        tensor = add("ConvTranspose", [tensor, weight(2, 2, *[kernel] * rank), weight(2)], **attrs)
        # What keeps the size may stand between.
        tensor = add("Relu", [add("Conv", [tensor, weight(2, 2, *[1] * rank)])])
        skip = skips.pop()
        tensor = add("Add", [tensor, skip]) if join == "Add" else add("Concat", [tensor, skip], axis=1)
        if join == "Concat":
            tensor = add("Conv", [tensor, weight(2, 4, *[1] * rank)])
    nodes[-1].output[0] = "y"
    dims = [1, 2, *("depth", "height", "width")[3 - rank :]]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "unet", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def matched(proto: onnx.ModelProto) -> tuple[OnnxModel, PassResult]:
    model = OnnxModel(proto, Path("m.onnx"))
    return model, run_passes(model, [PASS], RTX)


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})[0]  # type: ignore[no-any-return]


def needed(size: int, pooled: bool) -> list[int]:
    """Returns the output_padding of the lower and the upper deconvolution for one size."""
    halves = [size, *(n // 2 if pooled else (n + 1) // 2 for n in (size,))]
    halves.append(halves[1] // 2 if pooled else (halves[1] + 1) // 2)
    least = [2 * n if pooled else 2 * n - 1 for n in halves[1:]]
    return [halves[1] - least[1], halves[0] - least[0]]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("join", ["Concat", "Add"])
def test_every_size(pooled: bool, join: str) -> None:
    model, done = matched(unet(pooled, join=join))
    assert len(done.edits) == 2
    assert not done.skipped
    lattice = Sizes(model).lattice({"height": (8, 64), "width": (8, 64)})
    assert [dim.step for dim in lattice.dims.values()] == [1, 1]
    random = np.random.default_rng(0)
    for height in SIZES:
        for width in (16, 21, 30):
            x = random.standard_normal((1, 2, height, width)).astype(np.float32)
            own = [list(pair) for pair in zip(needed(height, pooled), needed(width, pooled), strict=True)]
            np.testing.assert_allclose(
                run(model.proto, x), run(unet(pooled, join=join, paddings=own), x), rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    model, done = matched(unet(False, rank))
    assert len(done.edits) == 2
    for size in (8, 9, 10, 11):
        x = np.ones((1, 2, *[size] * rank), np.float32)
        own = [[n] * rank for n in needed(size, False)]
        np.testing.assert_allclose(run(model.proto, x), run(unet(False, rank, paddings=own), x), rtol=1e-5, atol=1e-4)


def test_what_an_example_of_odd_size_left() -> None:
    """The tracing exporter writes the output_padding of its example: here of 17 x 18."""
    own = [list(pair) for pair in zip(needed(17, False), needed(18, False), strict=True)]
    model, done = matched(unet(False, paddings=own))
    assert len(done.edits) == 2
    lattice = Sizes(model).lattice({"height": (8, 64), "width": (8, 64)})
    assert [dim.step for dim in lattice.dims.values()] == [1, 1]


def test_a_skip_that_no_output_padding_reaches() -> None:
    """MaxPool rounds down, and kernel 3 with padding 1 gives an even size at most."""
    _, done = matched(onnx.load(MODELS / "unet.onnx"))
    assert not done.edits
    assert "output_padding from 1 to" in done.skipped[0].reason
    assert "it can have 0 to 1" in done.skipped[0].reason


def test_nothing_to_do() -> None:
    for name in ("vocoder", "gan_generator"):
        _, done = matched(onnx.load(MODELS / f"{name}.onnx"))
        assert done == PassResult()


def test_only_on_request() -> None:
    assert PASS.on_request
    assert not PASS.flag
