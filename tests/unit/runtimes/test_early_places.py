"""Weights of a network found in the file of its model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from trtconv.graph import wire
from trtconv.runtimes.tensorrt.early import places
from trtconv.runtimes.tensorrt.early.memory import SharedMemory
from trtconv.runtimes.tensorrt.early.places import Places

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux alone")
COUNT = wire.LARGE_BYTES // 4
"""Elements of the smallest weight that is looked for."""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedMemory]:
    monkeypatch.setattr(wire, "LARGE_FILE", 0)
    memory = SharedMemory()
    yield memory
    memory.close()


def weights(*counts: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(count).astype(np.float32) for count in counts]


def save(arrays: list[np.ndarray], path: Path) -> bytes:
    """Writes a model of these initializers; returns its bytes."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    tensors = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(arrays)]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [value], tensors)
    onnx.save(helper.make_model(graph), path)
    return path.read_bytes()


def test_weights_are_found_where_they_lie(memory: SharedMemory, tmp_path: Path) -> None:
    arrays = weights(COUNT, 2 * COUNT, COUNT, COUNT, 3 * COUNT)
    data = save(arrays, tmp_path / "m.onnx")
    memory.append_file(tmp_path / "m.onnx")
    found = Places(memory)
    # In any order, and as often as they are read.
    for index in (2, 2, 0, 4, 3, 1, 0, 2):
        part = found.find(memoryview(arrays[index].tobytes()))
        assert part is not None
        assert data[part.begin : part.begin + part.length] == arrays[index].tobytes()


def test_what_is_no_weight_of_the_file_is_not_found(memory: SharedMemory, tmp_path: Path) -> None:
    arrays = weights(COUNT, COUNT // 2)
    save(arrays, tmp_path / "m.onnx")
    memory.append_file(tmp_path / "m.onnx")
    found = Places(memory)
    other = bytearray(arrays[0].tobytes())
    other[-1] ^= 1
    assert found.find(memoryview(other)) is None
    assert found.find(memoryview(arrays[0].tobytes()[:-4])) is None
    # So small a one is copied.
    assert found.find(memoryview(arrays[1].tobytes())) is None


def test_few_of_many_weights_of_a_size_are_looked_at(
    memory: SharedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = weights(*[COUNT] * 6)
    save(arrays, tmp_path / "m.onnx")
    memory.append_file(tmp_path / "m.onnx")
    monkeypatch.setattr(places, "_MOST_TRIES", 2)
    found = Places(memory)
    assert found.find(memoryview(arrays[5].tobytes())) is None
    # Those that were looked at come last now.
    assert found.find(memoryview(arrays[1].tobytes())) is None
    assert found.find(memoryview(arrays[5].tobytes())) is not None
    assert found.find(memoryview(arrays[0].tobytes())) is not None


@pytest.mark.parametrize("content", [b"no model", b"\x3a\x05\x2a"])
def test_of_what_is_no_model_all_is_copied(memory: SharedMemory, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    memory.append_file(tmp_path / "m.onnx")
    assert Places(memory).find(memoryview(content)) is None


def test_a_small_file_is_not_looked_through(
    memory: SharedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = weights(COUNT)
    size = len(save(arrays, tmp_path / "m.onnx"))
    memory.append_file(tmp_path / "m.onnx")
    for least, is_found in ((size, True), (size + 1, False)):
        monkeypatch.setattr(wire, "LARGE_FILE", least)
        assert (Places(memory).find(memoryview(arrays[0].tobytes())) is not None) is is_found
