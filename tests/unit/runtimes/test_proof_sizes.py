"""The sizes and inputs at which a whole network is compared with its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

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
    assert {each.shapes["x"][0] for each in sizes if not each.besides} == {1}


def besides(text: str, *profiles: ShapeProfile) -> list[tuple[int, ...]]:
    free = OnnxModel(onnx.parser.parse_model(MODEL.partition(" g ")[0] + f" g {text}"), Path("m.onnx"))
    return [size.shapes["x"] for size in proof_sizes(free, profiles, "quick", {}, 50.0) if size.besides]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("n,3,h,w", [(2, 3, 11, 13), (2, 3, 7, 9), (2, 3, 5, 7), (2, 3, 3, 5), (2, 3, 24, 32), (2, 3, 32, 48)]),
        # Where three sizes and more are multiplied, smaller ones.
        ("n,d,h,w", [(2, 5, 7, 9), (2, 3, 5, 7), (2, 1, 1, 1), (2, 8, 16, 24), (2, 16, 32, 48), (2, 32, 64, 96)]),
        ("1,h,3", [(1, 9, 3), (1, 5, 3), (1, 3, 3), (1, 1, 3), (1, 16, 3), (1, 32, 3), (1, 64, 3)]),
        # A size that occurs twice is one.
        ("h,h,w", [(2, 2, 9), (2, 2, 5), (2, 2, 3), (2, 2, 1), (2, 2, 16), (2, 2, 32), (2, 2, 64)]),
    ],
)
def test_other_sizes_are_small_and_odd_and_then_multiples(shape: str, expected: list[tuple[int, ...]]) -> None:
    found = besides(f"(float[{shape}] x) => (float[{shape}] y) {{ y = Relu (x) }}")
    assert found[: len(expected)] == expected
    assert sum(len(found) == count for count in (len(expected), len(expected) + 1, len(expected) + 2)) == 1


def test_bounds_are_kept_and_fixed_sizes_stay() -> None:
    relu = "(float[n,3,h,w] x) => (float[n,3,h,w] y) { y = Relu (x) }"
    assert besides(relu, profile((1, 3, 16, 20), (1, 3, 40, 20)))[0] == (1, 3, 19, 20)
    assert besides(relu, profile((3, 3, 16, 10), (8, 3, 16, 12)))[0] == (3, 3, 16, 12)
    shaped = ShapeProfile({"x": InputRange((1, 3), (1, 3), (1, 3))}, {}, {"s": InputRange((1,), (2,), (3,))})
    assert besides(relu, shaped) == []


def test_sizes_that_count() -> None:
    first, second = profile((1, 3, 8, 8), (4, 3, 8, 8)), profile((4, 3, 8, 8), (9, 3, 8, 8))

    def counting(level: str, *profiles: ShapeProfile) -> list[tuple[str, int]]:
        sizes = proof_sizes(model(), profiles, level, {}, 50.0)
        assert all(size.magnitude == 1 and not size.group for size in sizes if not size.besides)
        return [(size.name, size.shapes["x"][0]) for size in sizes if not size.besides]

    assert counting("quick", first, second) == [("min of profile 0", 1)]
    assert counting("quick", first) == [("min", 1)]
    # Each size once: in these profiles opt is min, and the second begins where the first ends.
    assert counting("full", first) == [("min", 1), ("max", 4)]
    assert counting("required", first, second) == [
        ("min of profile 0", 1),
        ("max of profile 0", 4),
        ("max of profile 1", 9),
    ]


def test_a_sample_gives_its_values_at_each_size() -> None:
    sample = {"x": np.full((1, 3, 8, 8), 7, np.float32)}
    sizes = proof_sizes(model(), [profile((1, 3, 8, 8), (4, 3, 9, 9))], "full", sample, 50.0)
    for size in sizes:
        assert size.values["x"].shape == size.shapes["x"] and (size.values["x"] == 7).all()
        assert size.magnitude == 1
