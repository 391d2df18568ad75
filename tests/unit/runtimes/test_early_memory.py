"""Memory that two processes share."""

from __future__ import annotations

import dataclasses
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from trtconv.core.requests.build import BuildRequest
from trtconv.runtimes.tensorrt.adapter import Installed
from trtconv.runtimes.tensorrt.base import EngineBlob
from trtconv.runtimes.tensorrt.early import worker
from trtconv.runtimes.tensorrt.early.memory import MOST_BYTES, Extent, FilePart, Memories, SharedMemory
from trtconv.runtimes.tensorrt.early.messages import Snapshot
from trtconv.runtimes.tensorrt.early.runtime import EarlyRuntime
from trtconv.runtimes.tensorrt.early.worker import _Worker
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux alone")


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    memory = SharedMemory()
    yield memory
    memory.close()


def test_what_is_appended_is_seen(memory: SharedMemory) -> None:
    extents = [memory.append(data) for data in (b"abc", b"", bytes(10_000), memoryview(b"xyz"))]
    assert [bytes(memory.view(extent)) for extent in extents] == [b"abc", b"", bytes(10_000), b"xyz"]


def test_who_looks_cannot_write(memory: SharedMemory) -> None:
    assert memory.view(memory.append(b"abc")).readonly


@pytest.mark.parametrize("size", [10, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 200_000])
def test_what_it_holds_is_compared_to_the_last_byte(memory: SharedMemory, size: int) -> None:
    memory.append(b"before")
    data = os.urandom(size)
    extent = memory.append(data)
    memory.append(b"behind")
    assert memory.holds(data, extent)
    assert not memory.holds(data[:-1], extent)
    assert not memory.holds(data + b"b", extent)
    for place in (0, size // 2, size - 1):
        assert not memory.holds(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], extent)


def test_a_file_is_copied(memory: SharedMemory, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    extent = memory.append_file(path)
    path.write_bytes(b"another")
    assert bytes(memory.view(extent)) == b"content"


def test_a_pipe_is_left_to_others(memory: SharedMemory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="plain"):
        memory.append_file(tmp_path / "pipe")


def test_a_file_that_is_too_large_is_not_copied(memory: SharedMemory, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(OSError, match="bytes"):
        memory.append_file(tmp_path / "file")
    assert not os.fstat(memory.descriptor).st_size


def test_what_is_cleared_takes_no_memory(memory: SharedMemory) -> None:
    memory.append(bytes(100_000))
    memory.clear()
    assert not os.fstat(memory.descriptor).st_blocks
    assert memory.append(b"abc") == Extent(0, 3)


def test_what_is_closed_lives_as_long_as_what_looks_at_it(memory: SharedMemory) -> None:
    array = np.arange(100_000, dtype=np.float32)
    descriptor, seen = memory.descriptor, memory.load(memory.dump([array]), Path("none"))
    number = os.fstat(descriptor).st_ino

    def mapped() -> bool:
        return any(f" {number} " in line for line in Path("/proc/self/maps").read_text().splitlines())

    memory.close()
    memory.close()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)
    np.testing.assert_array_equal(seen[0], array)
    assert mapped()
    del seen
    assert not mapped()


def test_arrays_lie_where_they_were_put(memory: SharedMemory) -> None:
    random = np.random.default_rng(0)
    large = random.standard_normal((30, 50)).astype(np.float32)
    arrays = {
        "large": large,
        "small": np.arange(4),
        "turned": large.T,
        "cut": large[::2, 1:],
        "bfloat16": large.astype(ml_dtypes.bfloat16),
        "none": np.empty((0, 3), np.float16),
    }
    layer = ReadLayer(0, "conv", "CONVOLUTION", (0, None), (0,), arrays, "node", ("if (If)",))
    network = ReadNetwork((ReadTensor(0, "x", "float32", (1, -1)),), (layer,), (0,), (0,))
    memory.append(b"something")
    extent = memory.dump(network)
    result = memory.load(extent, Path("none"))
    values = result.layers[0].values
    for name, array in arrays.items():
        assert values[name].dtype == array.dtype
        assert values[name].shape == array.shape
        assert values[name].tobytes() == array.tobytes()
        assert values[name].flags.aligned
    # No copy: it cannot be written.
    assert not values["large"].flags.writeable
    # Of what is small there is one, which holds nothing.
    assert values["small"].flags.writeable
    assert (result.tensors, result.inputs, result.outputs) == (network.tensors, network.inputs, network.outputs)


def test_arrays_of_a_file_are_looked_at_there(memory: SharedMemory, tmp_path: Path) -> None:
    path, array = tmp_path / "m.onnx", np.arange(3000, dtype=np.float32)
    path.write_bytes(b"abc" + array.tobytes() + b"behind")
    places = [FilePart(3, array.nbytes), None]
    extent = memory.dump([array, array + 1], lambda data: places.pop(0))
    # There is room for one of the two.
    assert array.nbytes < os.fstat(memory.descriptor).st_size < 2 * array.nbytes
    found, other = memory.load(extent, path)
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(other, array + 1)
    assert not found.flags.writeable
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="too short"):
        memory.load(extent, path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        memory.load(extent, path)


def test_neither_process_keeps_what_the_other_has_no_use_for(memories: Memories) -> None:
    """File and network are the command's alone once it has them, so that they go when it gives them back."""
    memories.model.append(b"model")
    snapshot: Any = SimpleNamespace(**dict.fromkeys(field.name for field in dataclasses.fields(Snapshot)))
    info: Any = None
    process: Any = SimpleNamespace(
        memories=memories,
        request=SimpleNamespace(model=Path("m.onnx")),
        snapshot=lambda: snapshot,
        has_parsed=lambda model: True,
        pass_on=lambda words: None,
    )
    model: Any = SimpleNamespace(path=Path("m.onnx"))
    assert EarlyRuntime(process, info).network(model) is not None
    assert (os.fstat(memories.model.descriptor).st_size, memories.networks.descriptor) == (0, -1)


@pytest.mark.parametrize("plan", [None, object()])
def test_another_model_is_parsed_by_who_waits_for_what_to_build_alone(memories: Memories, plan: object) -> None:
    parsed: list[bytes] = []
    process: Any = SimpleNamespace(
        memories=memories,
        request=SimpleNamespace(model=Path("m.onnx")),
        snapshot=lambda: SimpleNamespace(model=memories.model.append(b"model"), plan=plan),
        has_parsed=lambda model: False,
        parse=parsed.append,
    )
    model: Any = SimpleNamespace(path=Path("m.onnx"), serialize=lambda: b"other")
    info: Any = None
    assert EarlyRuntime(process, info).network(model) is None
    assert parsed == ([b"other"] if plan is None else [])


def test_the_process_has_no_network_any_more_while_it_builds(memories: Memories) -> None:
    def build(*_: object) -> EngineBlob:
        assert memories.networks.descriptor == -1
        return EngineBlob(memoryview(b"engine"), ())

    told: list[Any] = []
    process: Any = SimpleNamespace(
        _networks=memories.networks, _engine=memories.engine, _phase=None, _tell=told.append, _new_words=lambda: None
    )
    network: Any = SimpleNamespace(build=build)
    plan: Any = None
    _Worker._hand_over(process, *_Worker._engine_of(process, network, plan))
    assert bytes(memories.engine.view(told[0].engine)) == b"engine"


def test_there_is_no_network_any_more_when_its_engine_is_copied(
    memories: Memories, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")

    class Network:
        inputs = outputs = shape_inputs = deconvolutions = ()
        layer_count = 1

        def build(self, *_: object) -> EngineBlob:
            return EngineBlob(memoryview(b"engine"), ())

    class Builder(Installed):
        info: Any = SimpleNamespace(capabilities=SimpleNamespace(builds_without_gpu=True), family="rtx")

        def __init__(self) -> None:
            pass

        def accept(self, *_: object) -> Any:
            network = Network()
            living.append(weakref.ref(network))
            return network

    living: list[Any] = []
    copied: list[object] = []
    monkeypatch.setattr(worker, "load", lambda _: Builder())
    monkeypatch.setattr(worker, "_plan_of", lambda *_: object())
    monkeypatch.setattr(worker, "follow_log", lambda _: None)
    monkeypatch.setattr(memories.engine, "append", lambda data: copied.append(living[-1]()) or Extent(0, 6))
    process = _Worker.__new__(_Worker)
    process._request = BuildRequest(tmp_path / "m.onnx", prove="none")
    process._model, process._networks, process._engine = memories.model, memories.networks, memories.engine
    process._log, process._phase_time = [], 0.0
    monkeypatch.setattr(process, "_tell", lambda _: None)
    process.run()
    assert copied == [None] and len(living) == 1
