"""Deconvolutions that take the size of their skip: equal to a model with just the output_padding of that size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from support.onnx_models import RTX
from support.paths import MODELS
from support.session import Array, run
from support.sizes import unet
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, PassResult, run_passes
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.skip_connections import unmatched

PASS = next(each for each in PASSES if each.name == "match-skip-size")
SIZES = [*range(8, 26), 31, 40]


def matched(proto: onnx.ModelProto) -> tuple[OnnxModel, PassResult]:
    model = OnnxModel(proto, Path("m.onnx"))
    return model, run_passes(model, [PASS], RTX)


def outputs(x: Array, *models: onnx.ModelProto) -> list[Array]:
    return [run(model, {"x": x})[0] for model in models]


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
                *outputs(x, model.proto, unet(pooled, join=join, paddings=own)), rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    model, done = matched(unet(False, rank))
    assert len(done.edits) == 2
    for size in (8, 9, 10, 11):
        x = np.ones((1, 2, *[size] * rank), np.float32)
        own = [[n] * rank for n in needed(size, False)]
        np.testing.assert_allclose(*outputs(x, model.proto, unet(False, rank, paddings=own)), rtol=1e-5, atol=1e-4)


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
    first, *others = unmatched(OnnxModel.load(MODELS / "unet.onnx"))
    assert [skip.reason for skip in done.skipped] == [first.refusal]
    assert others and all(other.refusal != first.refusal for other in others)


def test_nothing_to_do() -> None:
    for name in ("vocoder", "gan_generator"):
        _, done = matched(onnx.load(MODELS / f"{name}.onnx"))
        assert done == PassResult()


def test_only_on_request() -> None:
    assert PASS.on_request
    assert not PASS.flag


@pytest.mark.parametrize(("opset", "edits"), [(9, 0), (10, 2)])
def test_opsets_whose_slice_takes_no_sizes_are_left(opset: int, edits: int) -> None:
    proto = unet(False)
    proto.opset_import[0].version = opset
    assert len(matched(proto)[1].edits) == edits
