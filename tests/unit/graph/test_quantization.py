"""The arithmetic of linear quantisation against ONNX Runtime and plain numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from support.session import Array, run
from trtconv.graph.quantization import (
    along,
    dequantize,
    dequantize_blocks,
    limits,
    over_blocks,
    quantize,
    quantize_symmetric,
    scale_fault,
    symmetric_cover,
    symmetric_scale,
)


def linear(op: str, x: Array, scale: Array, point: Array, axis: int) -> Array:
    """Runs one QuantizeLinear or DequantizeLinear."""
    node = helper.make_node(op, ["x", "s", "z"], ["y"], axis=axis)
    into = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    kind = helper.np_dtype_to_tensor_dtype((scale if op.startswith("De") else point).dtype)
    constants = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(point, "z")]
    graph = helper.make_graph([node], "g", [into], [helper.make_tensor_value_info("y", kind, None)], constants)
    return run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), {"x": x})[0]


AXES = st.sampled_from([0, 1, 2, -1, -2, -3])


@given(st.sampled_from(["int8", "uint8", "int16", "uint16", "int32"]), AXES, st.booleans(), st.integers(0, 9))
def test_dequantising_is_onnx_runtimes(dtype: str, axis: int, channels: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    low, high = limits(dtype)
    q = random.integers(low, high, (3, 4, 5), dtype=dtype, endpoint=True)
    shape = q.shape[axis : axis + 1 or None][:1] if channels else ()
    scale = np.asarray(random.uniform(1e-3, 2, shape), np.float32)
    point = np.asarray(random.integers(0, 99 if dtype != "int32" else 1, shape), dtype)
    assert np.array_equal(dequantize(q, scale, point, axis), linear("DequantizeLinear", q, scale, point, axis))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("scale", [1e-5, 0.0371, 3.0])
def test_float16_scales_are_multiplied_in_float32(dtype: str, scale: float) -> None:
    low, high = (-200000, 200000) if dtype == "int32" else limits(dtype)
    q = np.linspace(low, high, 999).astype(dtype)
    half, point = np.asarray(scale, np.float16), np.zeros((), dtype)
    got = dequantize(q, half, point, 0)
    assert got.dtype == np.float16 and np.array_equal(got, linear("DequantizeLinear", q, half, point, 0))
    assert np.isfinite(got).all() or (dtype, scale) != ("int32", 1e-5)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4])
def test_small_types_are_not_cut_to_integers(dtype: type) -> None:
    q = np.array([0, 1.5, 3, 7], np.float32).astype(dtype)
    scale = np.array([0.5, 2, 1, 1], np.float32)
    expected = q.astype(np.float32) * scale
    assert np.array_equal(dequantize(q, scale, np.zeros(4, dtype), 0), expected)
    brain = dequantize(q, scale.astype(ml_dtypes.bfloat16), None, 0)
    assert brain.dtype == ml_dtypes.bfloat16 and np.array_equal(brain.astype(np.float32), expected)


@given(AXES, st.booleans(), st.integers(0, 9))
def test_quantising_is_onnx_runtimes(axis: int, channels: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = (random.standard_normal((3, 4, 5)) * 3).astype(np.float32)
    x.flat[:2] = 0.5, 1.5
    shape = x.shape[axis : axis + 1 or None][:1] if channels else ()
    scale = np.asarray(random.choice([0.01, 0.25, 1], shape), np.float32)
    point = np.zeros(shape, np.int8)
    assert np.array_equal(quantize_symmetric(x, scale, axis), linear("QuantizeLinear", x, scale, point, axis))


def test_scales_map_the_largest_magnitude_to_127() -> None:
    x = np.array([[1, -254], [0, 0], [1e-45, 0]], np.float32)
    assert symmetric_scale(x, None) == 2
    assert symmetric_scale(x, 0).tolist() == [2, 1, 1]
    assert symmetric_scale(x, -2).tolist() == [2, 1, 1]
    half = symmetric_scale(x * np.float32(1e-6), 0, np.float16)
    assert half.dtype == np.float16 and (half > 0).all()


@given(st.sampled_from([("int8", 3), ("uint8", 0), ("uint8", 255), ("uint8", 7), ("uint16", 9)]), st.floats(1e-5, 1e5))
def test_a_symmetric_scale_covers_the_range(kind: tuple[str, int], scale: float) -> None:
    dtype, point = kind
    low, high = limits(dtype)
    cover = symmetric_cover(scale, point, dtype)
    assert -128 * cover <= (low - point) * scale * (1 - 1e-12) or low == point
    assert 127 * cover >= (high - point) * scale * (1 - 1e-12)
    assert symmetric_cover(scale, 0, "int8") == pytest.approx(scale)


def test_values_are_shaped_along_their_axis() -> None:
    assert along(np.ones(1), 1, 4).shape == ()
    assert along(np.ones(3), 1, 4).shape == (1, 3, 1, 1)
    assert along(np.ones(3), -1, 2).shape == (1, 3)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ([0.1, 1], None),
        (0.0, "scale 0 is"),
        ([0.1, -1.0, np.nan], "scale -1 at channel 1 and 1 more is not a positive finite number"),
        ([np.nan, 1], "scale nan at channel 0"),
        (np.inf, "scale inf"),
    ],
)
def test_scales_that_make_no_sense(scale: object, words: str | None) -> None:
    fault = scale_fault(np.asarray(scale, np.float32))
    assert fault is None if words is None else fault is not None and words in fault


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_each_block_of_an_axis_has_a_scale(axis: int, block: int) -> None:
    random = np.random.default_rng(0)
    q = random.integers(-128, 127, (5, 6), np.int8)
    shape = [-(-size // block) if at == axis % 2 else size for at, size in enumerate(q.shape)]
    scale, point = random.uniform(0.1, 2, shape).astype(np.float32), random.integers(-9, 9, shape, np.int8)
    places = np.indices(q.shape)
    places[axis % 2] //= block
    expected = (q.astype(np.float32) - point[tuple(places)]) * scale[tuple(places)]
    assert np.array_equal(dequantize_blocks(q, scale, point, axis, block), expected)  # type: ignore[arg-type]
    plain = dequantize_blocks(q, scale, None, axis, block)
    assert plain is not None
    assert np.array_equal(plain, q.astype(np.float32) * scale[tuple(places)])
    for wrong in (scale[:-1], scale[:, :-1], scale.reshape(-1), np.float32(1)):
        assert dequantize_blocks(q, np.asarray(wrong), None, axis, block) is None
    assert dequantize_blocks(q, scale, point[:-1], axis, block) is None
    assert over_blocks(np.ones(()), (), axis, block) is None


@given(st.sampled_from(["int8", "uint8", "int16", "uint16"]), AXES, st.booleans(), st.integers(0, 9))
def test_quantising_with_zero_points_is_onnx_runtimes(dtype: str, axis: int, channels: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = (random.standard_normal((3, 4, 5)) * 300).astype(np.float32)
    x.flat[:4] = 0.5, 1.5, 1e9, -1e9
    shape = x.shape[axis : axis + 1 or None][:1] if channels else ()
    scale = np.asarray(random.choice([0.01, 0.25, 1], shape), np.float32)
    point = np.asarray(random.integers(*limits(dtype), shape), dtype)
    assert np.array_equal(quantize(x, scale, point, axis), linear("QuantizeLinear", x, scale, point, axis))
