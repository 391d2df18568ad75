"""Weights that several models share lie in one file, each at a place that can be mapped."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from trtconv.graph.external_data import ALIGNMENT, SMALL_BYTES, external_entry
from trtconv.graph.model import OnnxModel
from trtconv.graph.weight_file import WeightFile


def model(*arrays: np.ndarray) -> OnnxModel:
    tensors = [numpy_helper.from_array(values, f"w{number}") for number, values in enumerate(arrays)]
    proto = onnx.ModelProto(ir_version=8, graph=onnx.GraphProto(name="g", initializer=tensors))
    return OnnxModel(proto, Path("m.onnx"))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 2 * SMALL_BYTES), min_size=1, max_size=5))
def test_large_weights_are_moved_and_read_again(sizes: list[int]) -> None:
    arrays = [np.random.default_rng(size).integers(0, 99, size).astype(np.int8) for size in sizes]
    file, moved = WeightFile("m.onnx"), model(*arrays)
    file.move(moved)
    end = 0
    for tensor, values in zip(moved.proto.graph.initializer, arrays, strict=True):
        assert file.holds(tensor) == (values.nbytes > SMALL_BYTES)
        np.testing.assert_array_equal(moved.main.values(tensor.name), values)
        if file.holds(tensor):
            begin = int(external_entry(tensor)["offset"])
            # At the next place that can be mapped, and nowhere farther.
            assert begin % ALIGNMENT == 0 and 0 <= begin - end < ALIGNMENT
            end = begin + values.nbytes
    again = file.store("more", np.ones(2 * SMALL_BYTES, np.int8))
    assert file.holds(again) and int(external_entry(again)["offset"]) >= end
    assert not file.holds(file.store("few", np.ones(3, np.int8)))


def test_what_is_there_already_is_not_written_twice() -> None:
    file, moved = WeightFile("m.onnx"), model(np.ones(2 * SMALL_BYTES, np.int8))
    file.move(moved)
    before = external_entry(moved.proto.graph.initializer[0])
    file.move(moved)
    assert external_entry(moved.proto.graph.initializer[0]) == before


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, ml_dtypes.int4, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("size", [6, 2 * SMALL_BYTES])
def test_a_stored_constant_is_the_one_that_was_given(dtype: type, size: int) -> None:
    file, shared = WeightFile("m.onnx"), model(np.ones(3, np.int8))
    file.move(shared)
    # Not as it lies in memory, and of a type whose elements a file may pack.
    values = np.arange(2 * size).reshape(size, 2).astype(np.int8).astype(dtype).T
    stored = file.store("v", values)
    assert (stored.name, list(stored.dims)) == ("v", [2, size])
    assert stored.data_type == numpy_helper.from_array(values).data_type
    np.testing.assert_array_equal(np.asarray(shared.array(stored), dtype), values)
