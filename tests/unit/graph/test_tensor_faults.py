"""Tensors of files: what holds as many values as its sizes say, and nothing else, is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from trtconv.graph.external_data import array_of
from trtconv.graph.tensor_checker import BITS, MOST_DIMENSIONS, nbytes, sparse_faults, tensor_faults

TYPES = [*BITS, TensorProto.STRING]


def made(code: int, count: int, *, raw: bool) -> onnx.TensorProto:
    """Returns a vector as ONNX's own helpers write it."""
    values: object = [b"a"] * count if code == TensorProto.STRING else np.zeros(count)
    if code in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        values = np.zeros(count, complex)
    if raw:
        bits = count * BITS[code]
        return helper.make_tensor("t", code, [count], bytes((bits + 7) // 8), raw=True)
    return helper.make_tensor("t", code, [count], values)


def faults(tensor: onnx.TensorProto) -> list[str]:
    return list(tensor_faults(tensor))


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_as_many_values_as_the_sizes_say(code: int, count: int) -> None:
    for raw in (False, True) if code in BITS else (False,):
        tensor = made(code, count, raw=raw)
        assert not faults(tensor)
        field = next((name.name for name, _ in tensor.ListFields() if name.name.endswith("_data")), "")
        if raw:
            assert nbytes(tensor) == len(tensor.raw_data)
            tensor.raw_data += b"\0"
            assert len(faults(tensor)) == 1
        elif field:
            getattr(tensor, field).append(b"a" if code == TensorProto.STRING else 0)
            assert len(faults(tensor)) == 1
            del getattr(tensor, field)[-2:]
            assert len(faults(tensor)) == 1


@pytest.mark.parametrize("code", BITS)
def test_values_without_their_last_one_are_missed(code: int) -> None:
    for raw in (False, True):
        tensor = made(code, 9, raw=raw)
        tensor.dims[0] = 8 + 9
        assert len(faults(tensor)) == 1


@pytest.mark.parametrize(
    ("dims", "wrong"),
    [
        ([2, -1], True),
        ([0], False),
        ([0, -1], True),
        ([1] * MOST_DIMENSIONS, False),
        ([1] * (MOST_DIMENSIONS + 1), True),
        ([1 << 31, 1 << 31], False),
        ([1 << 31, 1 << 31, 2], True),
        ([1 << 62, 2, 0], False),
    ],
)
def test_sizes_that_no_tensor_has(dims: list[int], wrong: bool) -> None:
    tensor = TensorProto(name="t", dims=dims, data_type=TensorProto.FLOAT)
    # Its values would be elsewhere: the sizes alone are looked at.
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    assert bool(faults(tensor)) == wrong
    sparse = onnx.SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "v"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    assert bool(list(sparse_faults(sparse))) == wrong


@pytest.mark.parametrize("part", ["values", "indices"])
def test_both_parts_of_a_sparse_tensor_are_looked_at(part: str) -> None:
    sparse = onnx.SparseTensorProto(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "v"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    assert not list(sparse_faults(sparse))
    getattr(sparse, part).raw_data = b""
    assert len(list(sparse_faults(sparse))) == 1


BREAKS: dict[str, Callable[[onnx.TensorProto], object]] = {
    "a type that is none": lambda tensor: setattr(tensor, "data_type", 999),
    "no type": lambda tensor: tensor.ClearField("data_type"),
    "text that is none": lambda tensor: (
        tensor.CopyFrom(TensorProto(dims=[1], data_type=TensorProto.STRING, string_data=[b"\xff"])),
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_a_tensor_cannot_hold(name: str) -> None:
    tensor = made(TensorProto.FLOAT, 2, raw=True)
    BREAKS[name](tensor)
    assert len(faults(tensor)) == 1


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("code", BITS)
def test_values_are_those_that_onnx_reads(code: int, raw: bool) -> None:
    tensor = made(code, 8, raw=raw)
    if raw:
        tensor.raw_data = bytes(range(len(tensor.raw_data)))
    values, expected = array_of(tensor, Path("m.onnx")), numpy_helper.to_array(tensor)
    assert (values.dtype, values.shape, values.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    tensor.segment.end = 4
    # Of a larger tensor these are some values, and not its.
    with pytest.raises(ValueError, match="segment"):
        array_of(tensor, Path("m.onnx"))
