"""A timing cache that several builds share at the same time, and files that belong together."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trtconv.core import files
from trtconv.core.builder_options import BuilderOptions, parse_bytes
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write, locked
from trtconv.runtimes.tensorrt.timing_cache import TimingCache


class Cache:
    """An ITimingCache whose measurements are words."""

    def __init__(self, data: bytes) -> None:
        self.words = set(data.split())

    def combine(self, other: Cache, ignore_mismatch: bool) -> bool:
        self.words |= other.words
        return not ignore_mismatch

    def serialize(self) -> bytes:
        return b" ".join(sorted(self.words))


class Config:
    """An IBuilderConfig."""

    def __init__(self) -> None:
        self.cache = Cache(b"")

    def create_timing_cache(self, data: bytes) -> Cache:
        return Cache(data)

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return not ignore_mismatch

    def get_timing_cache(self) -> Cache:
        return self.cache


def test_builds_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.timing"
    together = threading.Barrier(8)

    def build(word: bytes) -> str:
        config = Config()
        cache = TimingCache(path, config)
        together.wait(timeout=30)
        config.cache.words.add(word)
        return cache.save()

    for turn in range(5):
        words = [b"%d-%d" % (turn, number) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(build, words)) == [""] * 8
    assert len(Cache(path.read_bytes()).words) == 40
    assert [each.name for each in tmp_path.iterdir()] == ["t.timing"]


def test_what_is_written_under_a_lock_belongs_together(tmp_path: Path) -> None:
    engine, report = tmp_path / "new" / "m.engine", tmp_path / "new" / "m.engine.json"

    def write(word: bytes) -> None:
        with locked(engine):
            atomic_write(engine, word)
            atomic_write(report, word)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, [b"%d" % number for number in range(64)]))
    assert engine.read_bytes() == report.read_bytes()
    assert sorted(each.name for each in engine.parent.iterdir()) == ["m.engine", "m.engine.json"]


def test_a_lock_that_is_never_given_back_is_waited_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.2)
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with locked(tmp_path / "m.engine"):
            atomic_write(tmp_path / "m.engine", b"whole")
    finally:
        os.close(handle)
    assert (tmp_path / "m.engine").read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("1.5g", 3 << 29), ("64 KiB", 65536), ("1000000", 1000000), ("1B", 1)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "2T", "G", "1e9", "nan", "0.0001K", "999999999999G"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "options",
    [
        {"hardware": "all"},
        {"profiling_verbosity": "loud"},
        {"optimization_level": 6},
        {"max_aux_streams": -1},
        {"workspace_bytes": 0},
        {"workspace_bytes": 2**63},
        {"compute_capabilities": ("75",)},
    ],
)
def test_options_that_mean_nothing(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        BuilderOptions(**options)  # type: ignore[arg-type]


def test_only_what_was_asked_for_is_in_the_plan() -> None:
    assert BuilderOptions().to_json() == {}
    options = BuilderOptions(workspace_bytes=1, tf32=False, compute_capabilities=("7.5",))
    assert options.to_json() == {"workspace_bytes": 1, "tf32": False, "compute_capabilities": ["7.5"]}
