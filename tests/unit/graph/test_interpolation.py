"""Resize by matrices: the same as ONNX's reference implementation, axis by axis."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from trtconv.graph.interpolation import Interpolation, ResizedAxis, coordinates, nearest, weights

SIZES = [(5, 10), (5, 13), (7, 3), (4, 4), (3, 1), (1, 4), (8, 5)]
LINEAR = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")


def by_reference(x: np.ndarray, count: int, attributes: dict[str, object]) -> np.ndarray:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [1], [count])
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, [count])], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(y)


def axis_of(size: int, count: int) -> ResizedAxis:
    return ResizedAxis(size, count, count / size)


@pytest.mark.parametrize("transform", LINEAR)
@pytest.mark.parametrize(("size", "count"), SIZES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weights_are_those_of_onnx(mode: str, size: int, count: int, transform: str) -> None:
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)
    kernel = Interpolation(mode, transform)
    expected = by_reference(x, count, {"mode": mode, "coordinate_transformation_mode": transform})
    assert weights(axis_of(size, count), kernel) @ x == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("size", "count"), [(5, 10), (7, 3), (8, 5)])
@pytest.mark.parametrize("changes", [{"antialias": 1}, {"exclude_outside": 1}, {"cubic_coeff_a": -0.5}])
def test_attributes_of_cubic_are_those_of_onnx(size: int, count: int, changes: dict[str, float]) -> None:
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)
    made = weights(axis_of(size, count), Interpolation("cubic", **changes))  # type: ignore[arg-type]
    assert made @ x == pytest.approx(by_reference(x, count, {"mode": "cubic", **changes}), abs=1e-4)
    assert made.sum(axis=1) == pytest.approx(np.ones(count))


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("transform", [*LINEAR, "tf_half_pixel_for_nn"])
@pytest.mark.parametrize(("size", "count"), SIZES)
def test_nearest_elements_are_those_of_onnx(size: int, count: int, transform: str, rounding: str) -> None:
    x = np.arange(size, dtype=np.float32)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    if transform == "tf_half_pixel_for_nn":
        # Not in ONNX's implementation any more: where the middle of an output lies, in the input.
        places = np.clip(_ROUND[rounding]((np.arange(count) + 0.5) * size / count), 0, size - 1)
    else:
        places = by_reference(x, count, attributes)
    assert nearest(axis_of(size, count), Interpolation("nearest", transform, rounding)).tolist() == places.tolist()


_ROUND = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}


def test_a_crop_takes_the_ends_of_its_range() -> None:
    axis = ResizedAxis(9, 5, 5 / 9, 0.25, 0.75)
    made = weights(axis, Interpolation("linear", "tf_crop_and_resize")) @ np.arange(9)
    assert made == pytest.approx([2, 3, 4, 5, 6])


@pytest.mark.parametrize("scale", [1.3, 0.7, 2.0])
def test_a_size_that_was_rounded_down_keeps_its_middle_where_that_is_asked(scale: float) -> None:
    size = 5
    axis = ResizedAxis(size, int(size * scale), scale)
    plain = (np.arange(axis.count) + 0.5) / scale - 0.5
    lost = size / 2 * (1 - axis.count / (size * scale))
    assert coordinates(axis, "half_pixel") == pytest.approx(plain)
    assert coordinates(axis, "half_pixel_symmetric") == pytest.approx(plain + lost)


@pytest.mark.parametrize("antialias", [0, 1])
def test_what_lies_far_beyond_the_input_takes_nothing_of_it(antialias: int) -> None:
    kernel = Interpolation("linear", "asymmetric", antialias=antialias, exclude_outside=1)
    made = weights(ResizedAxis(2, 4, 1.0, 0.0, 1.0), kernel)
    assert made.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
