"""`trtconv warm`: the runtime cache of a TensorRT-RTX engine, where there is a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import engines
from trtconv.core.documents.bench import BenchReport, BenchRow, GpuRuntime
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.requests.bench import BenchRequest

RTX = {"family": "rtx", "version": "1.7.1", "gpu": None}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> list[BenchRequest]:
    """Has engines run by something that notes what it is asked, and writes a cache."""
    asked: list[BenchRequest] = []

    def run(request: BenchRequest, progress: Any) -> Any:
        asked.append(request)
        assert request.cache is not None
        request.cache.write_bytes(b"compiled")
        row = BenchRow(0, 0, "opt", {"x": (1, 3, 8, 8)}, True, False)
        return BenchReport((), (row, row), GpuRuntime(**RTX))

    monkeypatch.setattr("trtconv.engine.warming.bench", run)
    return asked


def test_warm_runs_the_engine_with_a_cache(call, bench: list[BenchRequest], tmp_path: Path) -> None:
    built = engines.build(tmp_path, runtime=RTX)
    cache = tmp_path / "net.cache"
    ended = call("warm", str(built.engine), "-o", str(cache), "--dim", "h=8", "--format", "json", "-q")
    assert ended.code == 0
    document = json.loads(ended.out)
    assert document["cache"] == {"path": str(cache), "bytes": 8}
    assert document["sizes"] == [{"size": "opt of profile 0", "shapes": {"x": [1, 3, 8, 8]}}]
    assert (bench[0].engine, bench[0].cache, str(bench[0].dims["h"])) == (built.engine, cache, "8:8:8")


def test_full_tensorrt_has_no_such_cache(call, bench: list[BenchRequest], tmp_path: Path) -> None:
    built = engines.build(tmp_path)
    ended = call("warm", str(built.engine), "-o", str(tmp_path / "net.cache"), "-q")
    assert (ended.code, bench) == (2, [])
    assert "full TensorRT" in ended.err


def test_warm_says_where_the_cache_is_to_go(call, bench: list[BenchRequest], tmp_path: Path) -> None:
    built = engines.build(tmp_path, runtime=RTX)
    ended = call("warm", str(built.engine), "-q")
    assert (ended.code, bench) == (2, [])
    assert f"-o {built.engine}.cache" in ended.err


def test_without_a_gpu_the_machine_cannot(call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(request: BenchRequest, progress: Any) -> Any:
        raise EnvironmentMissing("there is no GPU here that CUDA offers", "Run it on a machine with one.")

    monkeypatch.setattr("trtconv.engine.warming.bench", run)
    built = engines.build(tmp_path, runtime=RTX)
    ended = call("warm", str(built.engine), "-o", str(tmp_path / "net.cache"), "-q")
    assert ended.code == 4
    assert "no GPU" in ended.err
