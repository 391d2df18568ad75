"""What is read is a plain file of a size that it may have; nothing that lies about waits, misleads or has no end."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from trtconv.core.errors import unusable_path
from trtconv.core.files import atomic_write
from trtconv.core.reading import open_plain, read_plain, sha256_of
from trtconv.core.scratch import Scratch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
DEAD = 4_194_305
"""The number of a process that no Linux has."""


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


KINDS = (_fifo, _socket, _device, _folder)


def within(seconds: float, work: Callable[[], object]) -> object:
    """Returns what a function returns, unless it hangs."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs"
    return found[0]


def handles(path: Path) -> int:
    """Returns how many descriptors of this process are open on a file; other threads may open and close others."""
    real, found = os.path.realpath(path), 0
    for each in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            found += os.readlink(each) == real  # noqa: PTH115
    return found


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("read", [read_plain, sha256_of, open_plain])
def test_only_plain_files_are_read(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    make(tmp_path / "f")

    def work() -> object:
        with pytest.raises(OSError, match=r".") as refused:
            read(tmp_path / "f")
        # Wherever it is met, it is told as an error of the user's files.
        assert unusable_path(refused.value) is not None
        return True

    before = handles(tmp_path / "f")
    within(10, work)
    assert handles(tmp_path / "f") == before


@pytest.mark.parametrize("size", [2 << 30, 1 << 40])
@pytest.mark.parametrize("read", [read_plain, sha256_of])
def test_a_file_of_holes_is_not_read(tmp_path: Path, read: Callable[[Path], object], size: int) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    with pytest.raises(OSError, match=str(size)) as refused:
        read(tmp_path / "sparse")
    failure = unusable_path(refused.value)
    assert failure is not None and "sparse" in failure.message


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="1099511627776 bytes"):
        read_plain(tmp_path / "sparse", 100)
    (tmp_path / "small").write_bytes(b"x" * 100)
    assert read_plain(tmp_path / "small", 100) == b"x" * 100


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    tracemalloc.start()
    try:
        assert read_plain(tmp_path / "small", 1 << 31) == b"abc"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", KINDS)
def test_what_others_leave_where_temporary_files_go_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planted = [tmp_path / f"trtconv-proof-{DEAD}-x", tmp_path / f".o.engine.{DEAD}.abc.part"]
    for path in planted:
        make(path)

    def work() -> object:
        with Scratch("proof") as own:
            assert own.path.stat().st_mode & 0o777 == own.path.parent.stat().st_mode & 0o777 == 0o700
        atomic_write(tmp_path / "o.engine", b"whole")
        return True

    within(10, work)
    assert (tmp_path / "o.engine").read_bytes() == b"whole"
    # An empty folder of our own may be a scratch folder; everything else stays.
    assert make is _folder or all(path.is_symlink() or path.exists() for path in planted)


def test_a_link_among_temporary_files_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (tmp_path / "tmp" / f"trtconv-proof-{DEAD}-x").symlink_to(tmp_path / "mine")
    with Scratch("proof"):
        pass
    assert (tmp_path / "mine" / "file").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_folders_of_others_are_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    foreign = tmp_path / f"trtconv-proof-{DEAD}-x"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)
    with Scratch("proof"):
        pass
    assert foreign.exists()
