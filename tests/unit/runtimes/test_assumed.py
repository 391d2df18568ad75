"""Sizes that are assumed without bounds: what costs little first, and all that a model may accept."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from support.float_nets import net
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.assumed import Cost, assumed_shapes
from trtconv.runtimes.onnxruntime import compare_models

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def deconvolution(rank: int, kernel: int, stride: int, ins: int, outs: int) -> OnnxModel:
    sizes = ",".join(("d", "h", "w")[-rank:])
    weight = "_".join(map(str, (ins, outs, *[kernel] * rank)))
    text = (
        f"{HEAD}(float[n,{ins},{sizes}] x) => (float[n,{outs},{sizes}] y) "
        f"{{ y = ConvTranspose <strides = {[stride] * rank}> (x, w_{weight}) }}"
    )
    return OnnxModel(net(text), Path("m.onnx"))


@pytest.mark.parametrize("case", [(3, 4, 2, 8, 12), (3, 7, 5, 64, 64), (2, 7, 5, 64, 64), (1, 1, 5, 64, 64)])
def test_the_first_sizes_are_cheap_to_run(case: tuple[int, int, int, int, int]) -> None:
    rank, kernel, stride, ins, outs = case
    model = deconvolution(*case)
    first = next(assumed_shapes(model))
    places = math.prod(first["x"][2:]) * first["x"][0]
    assert places * ins * outs * kernel**rank < 4e9
    assert places * outs * max(kernel, stride) ** rank * 4 < 256e6
    assert compare_models(model, model).max_relative_error == 0


def test_a_small_network_runs_at_usual_sizes() -> None:
    assert next(assumed_shapes(deconvolution(2, 3, 2, 4, 4)))["x"] == (2, 4, 64, 64)


def test_all_sizes_come_in_the_end() -> None:
    model = deconvolution(3, 7, 5, 64, 64)
    shapes = [each["x"] for each in assumed_shapes(model, batches=(1,))]
    assert len(set(shapes)) == len(shapes)
    assert {(1, 64, size, size, size) for size in (1, 2, 4, 8, 16, 32, 48, 64, 128, 256)} <= set(shapes)
    cost = Cost.of(model)
    low = [cost.is_low({"x": shape}) for shape in shapes]
    assert low == sorted(low, reverse=True)
    dear = [math.prod(shape) for shape, cheap in zip(shapes, low, strict=True) if not cheap]
    assert dear == sorted(dear)
