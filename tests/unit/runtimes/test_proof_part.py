"""The layers of a piece at its own sizes: what follows from its inputs becomes smaller with them, constants do not."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.cut import Piece, Seams
from trtconv.runtimes.proof.describe import Description
from trtconv.runtimes.proof.feeds import Shape, schemes
from trtconv.runtimes.proof.part import part_of
from trtconv.runtimes.proof.pieces import Pieces
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor


def piece_of(own: Shape, weight: Shape) -> tuple[ReadNetwork, Piece]:
    """Returns a network that reshapes its input, and a constant, and adds them, and all of it as a piece."""
    shapes = (own, weight, weight, own, own)
    tensors = tuple(ReadTensor(number, name, "float32", shapes[number]) for number, name in enumerate("xcwry"))
    layers = (
        ReadLayer(0, "c", "CONSTANT", (), (1,), {"weights": np.zeros(weight)}),
        ReadLayer(1, "w", "SHUFFLE", (1,), (2,), {"reshape_dims": weight}),
        ReadLayer(2, "r", "SHUFFLE", (0,), (3,), {"reshape_dims": own}),
        ReadLayer(3, "y", "ELEMENTWISE", (3, 2), (4,), {"op": "SUM"}),
    )
    piece = Piece("y", ("x",), (0, 1, 2, 3), (0,), True, frozenset())
    return ReadNetwork(tensors, layers, (0,), (4,)), piece


@pytest.mark.parametrize(
    ("own", "fed", "weight"),
    [
        ((1, 16, 128, 96), (1, 16, 8, 96), (1, 1, 1, 384)),
        ((1, 1, 16384, 256), (1, 1, 8, 16), (1, 1, 1, 256)),
        ((1, 12, 1025, 1025), (1, 12, 9, 9), (1, 1, 1, 1025)),
    ],
)
def test_constants_keep_their_sizes(own: Shape, fed: Shape, weight: Shape) -> None:
    network, piece = piece_of(own, weight)
    part = part_of(network, piece, {"x": 0, "y": 4}, {"x": fed}, {"x": own})
    assert part.layers[1].values["reshape_dims"] == weight
    assert part.layers[2].values["reshape_dims"] == fed
    assert part.tensors[0].shape == fed
    assert part.tensors[4].shape == (-1,) * len(own)


def test_sizes_that_become_one_are_left_as_they_are() -> None:
    network, piece = piece_of((1, 1, 16384, 256), (1, 1, 1, 256))
    part = part_of(network, piece, {"x": 0, "y": 4}, {"x": (1, 1, 8, 8)}, {"x": (1, 1, 16384, 256)})
    assert part.layers[2].values["reshape_dims"] == (1, 1, 16384, 256)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [(None, True), ((1, 16, -1, 96), True), ((1, 16, -1, 95), False), ((1, 16, -1), False), ((0, 16, 8, 96), False)],
)
def test_what_tensorrt_does_not_know_fits_any_size(shape: Shape | None, fits: bool) -> None:
    network, piece = piece_of((1, 16, 128, 96), (1, 1, 1, 96))
    tensors = (dataclasses.replace(network.tensors[0], shape=shape), *network.tensors[1:])
    network = dataclasses.replace(network, tensors=tensors)
    part = part_of(network, piece, {"x": 0, "y": 4}, {"x": (1, 16, 8, 96)}, {"x": (1, 16, 128, 96)})
    assert part.layers[2].values["reshape_dims"] == (1, 16, 128 if fits else 8, 96)
    assert (part.tensors == tensors) is fits


@pytest.mark.parametrize(("own", "fed"), [((1, 16, None, 96), (1, 16, 8, 96)), ((1, 16, 128, 96), (1, 16, 0, 96))])
def test_what_is_not_known_or_empty_tells_of_no_smaller_sizes(own: tuple[int | None, ...], fed: Shape) -> None:
    network, piece = piece_of((1, 16, 128, 96), (1, 1, 1, 96))
    part = part_of(network, piece, {"x": 0, "y": 4}, {"x": fed}, {"x": own})
    assert part.layers[2].values["reshape_dims"] == (1, 16, 128, 96)


@pytest.mark.parametrize(
    ("sizes", "smaller"),
    [
        ((1, 16, 12288), (1, 16, 768)),
        ((2048, 96), (128, 96)),
        # Smaller than any that changes, or no multiple of the factor: a constant.
        ((128, 112, 16), (8, 112, 16)),
        ((1, 127, 130), (1, 127, 130)),
    ],
)
def test_multiples_of_sizes_that_are_divided_are_divided_too(sizes: Shape, smaller: Shape) -> None:
    network, piece = piece_of((1, 16, 128, 96), (1, 1, 1, 96))
    first = dataclasses.replace(network.layers[2], values={"reshape_dims": sizes})
    network = dataclasses.replace(network, layers=(*network.layers[:2], first, network.layers[3]))
    part = part_of(network, piece, {"x": 0, "y": 4}, {"x": (1, 16, 8, 96)}, {"x": (1, 16, 128, 96)})
    assert part.layers[2].values["reshape_dims"] == smaller
    assert all(isinstance(size, int) for size in part.layers[2].values["reshape_dims"])


def test_small_sizes_differ_where_large_ones_do() -> None:
    (small, *_) = schemes({"x": (1, 1, 16384, 256), "z": (1, 1, 256, 9)}, 0, 1, ())
    assert small["x"][2] % 8 == small["x"][3] % 8 == 0
    assert len({small["x"][2], small["x"][3], 9, 1}) == 4
    assert small["z"][2] == small["x"][3]


@pytest.mark.parametrize(
    ("source", "target", "bound"),
    [
        ((1, 1024, 768), (1, -1, 12, 64), {768, 12, 64}),
        ((1, 1024, 768), (1, 1024, 12, 64), {1024, 768, 12, 64}),
        ((1, 32, 128, 128), (0, 0, -1), {128, 16384}),
        ((2, 9), (0, -1), set()),
    ],
)
def test_reshapes_bind_what_they_state(source: Shape, target: Shape, bound: set[int]) -> None:
    result = np.zeros(source, np.int8).reshape([source[i] if n == 0 else n for i, n in enumerate(target)]).shape
    shape = numpy_helper.from_array(np.array(target, np.int64), "s")
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, source)],
        [helper.make_tensor_value_info("y", 1, result)],
        [shape],
    )
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), Path("m.onnx"))
    tensors = (ReadTensor(0, "x", "float32", source), ReadTensor(1, "y", "float32", result))
    network = ReadNetwork(tensors, (ReadLayer(0, "y", "SHUFFLE", (0,), (1,), {"reshape_dims": result}),), (0,), (1,))
    piece = Piece("y", ("x",), (0,), (0,), True, frozenset())
    # The list of sizes is a constant, too, and has a size of its own.
    assert Description.of(network, model, piece, {"x": source, "y": result}).bound == bound | {len(target)}


@pytest.mark.parametrize("size", [640, 641])
def test_a_slice_of_too_much_is_seen(tmp_path: Path, size: int) -> None:
    shape = (1, 3, size, 480)
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["x", "begin", "end", "axis"], ["y"]),
            helper.make_node("ReduceMax", ["y"], ["z"], axes=[2, 3], keepdims=1),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info("z", 1, (1, 3, 1, 1))],
        [
            numpy_helper.from_array(np.array([n], np.int64), name)
            for name, n in (("begin", 0), ("end", 320), ("axis", 2))
        ],
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    values = {"start": (0, 0, 0, 0), "shape": shape, "stride": (1, 1, 1, 1), "mode": "STRICT_BOUNDS", "axes": None}
    tensors = tuple(ReadTensor(n, "xyz"[n], "float32", (shape, shape, (1, 3, 1, 1))[n]) for n in range(3))
    layers = (
        ReadLayer(0, "y", "SLICE", (0,), (1,), values),
        ReadLayer(1, "z", "REDUCE", (1,), (2,), {"op": "MAX", "axes": 12, "keep_dims": True}),
    )
    network = ReadNetwork(tensors, layers, (0,), (2,))
    model = OnnxModel.load(path)
    seams = Seams(network, model)
    pieces = Pieces(network, model, seams, list(seams.pieces()), None, {"x": shape}, 1, time.monotonic() + 60, 4000.0)
    divergence = pieces.run().divergence
    assert divergence is not None
    assert divergence.tensor == "y"
