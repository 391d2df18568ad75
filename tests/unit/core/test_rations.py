"""What a child may take, and what does not count."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtconv.core import budget
from trtconv.core.rations import Ration, _bytes_with_data

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MEGABYTES = 50


@pytest.fixture
def ration() -> Iterator[Ration]:
    with budget.allowed(budget.Budget(megabytes=MEGABYTES)):
        yield Ration(os.getpid(), [])


def take(megabytes: int) -> bytearray:
    return bytearray(b"x") * (megabytes << 20)


def test_memory_of_a_stage_is_held_to_the_budget(ration: Ration) -> None:
    assert ration.breach("parse") is None
    taken = take(4 * MEGABYTES)
    breach = ration.breach("parse")
    assert taken and breach is not None and "stage 'parse' takes more than" in breach.message


@pytest.mark.parametrize("stage", ["runtime", "build"])
def test_what_tensorrt_itself_takes_does_not_count_later(ration: Ration, stage: str) -> None:
    assert ration.breach(stage) is None
    taken = [take(4 * MEGABYTES)]
    assert ration.breach(stage) is None
    assert ration.breach("parse") is None
    taken.append(take(4 * MEGABYTES))
    assert len(taken) == 2 and ration.breach("parse") is not None


def test_data_counts_once_and_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("m.onnx", "m.onnx.data", "m-data", "other.data", "n.onnx", "n_data", "m.txt"):
        (tmp_path / name).write_bytes(os.urandom(8192))
    held = {path.name: path.stat().st_blocks * 512 for path in tmp_path.iterdir()}
    wanted = sum(min(held[name], 8192) for name in ("m.onnx", "m.onnx.data", "m-data", "n.onnx", "n_data"))
    scans: list[object] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: scans.append(folder) or scan(folder))
    assert _bytes_with_data([tmp_path / "m.onnx", str(tmp_path / "n.onnx")]) == wanted
    assert scans == [tmp_path]
    assert _bytes_with_data([tmp_path / "gone" / "m.onnx"]) == 0
