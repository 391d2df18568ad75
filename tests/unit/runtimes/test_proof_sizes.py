"""The sizes and inputs at which a whole network is compared with its model."""

from __future__ import annotations

from pathlib import Path

import onnx

from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.sizes import proof_sizes

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[n,3,h,w] x) => (float[n,3,h,w] y) { y = Relu (x) }"""


def model() -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(MODEL), Path("m.onnx"))


def profile(low: tuple[int, ...], high: tuple[int, ...]) -> ShapeProfile:
    return ShapeProfile({"x": InputRange(low, low, high)}, {})


def test_other_sizes_are_odd_and_unlike_first() -> None:
    sizes = proof_sizes(model(), [profile((1, 3, 16, 16), (4, 3, 512, 512))], "quick", {}, 50.0)
    counting, first, *others = sizes
    assert (counting.shapes["x"], counting.besides) == ((1, 3, 16, 16), False)
    batch, _, height, width = first.shapes["x"]
    assert batch == 2
    assert height % 2
    assert width % 2
    assert height != width
    assert {each.group for each in (first, *others)} == {"besides"}
    assert all(each.magnitude == 50 for each in (first, *others))


def test_other_sizes_stay_within_the_bounds() -> None:
    low, high = (2, 3, 16, 20), (2, 3, 18, 20)
    for size in proof_sizes(model(), [profile(low, high)], "quick", {}, 50.0):
        assert all(a <= n <= b for a, n, b in zip(low, size.shapes["x"], high, strict=True))


def test_without_bounds_one_of_the_guesses_is_enough() -> None:
    sizes = proof_sizes(model(), [], "quick", {}, 50.0)
    assert len({each.group for each in sizes if not each.besides}) == 1
    assert any(each.besides for each in sizes)
