"""Where files may be written, and what becomes of what was there."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from trtconv.core import files
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import atomic_write, locked, moved, real_path, streams_together
from trtconv.core.process import SystemProgram
from trtconv.core.reading import read_plain, sha256_of
from trtconv.core.scratch import Scratch
from trtconv.core.spots import check_writable


def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names here")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path(os.devnull), pipe):
        with pytest.raises(InputError, match="a device or a pipe"):
            check_writable(path)


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", b"new", through_links=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_links_that_lead_in_a_circle_are_no_bug(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert real_path(tmp_path / "a").parent == tmp_path.resolve()


def test_checksum(tmp_path: Path) -> None:
    data = bytes(range(256)) * (1 << 13)
    (tmp_path / "f").write_bytes(data)
    assert sha256_of(tmp_path / "f") == hashlib.sha256(data).hexdigest()


def dead_process() -> int:
    """Returns the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive = dead_process(), os.getppid()
    parts = [tmp_path / f".e.engine.{pid}.abc.part" for pid in (dead, alive)]
    scratch = [tmp_path / f"trtconv-proof-{pid}-abc" for pid in (dead, alive)]
    for part, folder in zip(parts, scratch, strict=True):
        part.write_bytes(b"half")
        folder.mkdir()
    atomic_write(tmp_path / "e.engine", b"whole")
    with Scratch("proof") as own:
        assert [path.exists() for path in (*parts, *scratch, own.path)] == [False, True, False, True, True]
    assert not own.path.exists()


def test_a_scratch_folder_is_no_obstacle_to_whoever_writes_an_engine_into_it() -> None:
    fcntl = pytest.importorskip("fcntl")
    with Scratch("reduce") as own:
        folder = os.open(own.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(folder)


def test_the_umask_is_looked_at_without_a_change(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        threads = [threading.Thread(target=atomic_write, args=(tmp_path / str(n), b"x")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
@pytest.mark.parametrize("what", ["/dev/zero", "pipe", "."])
def test_what_has_no_end_is_not_read(tmp_path: Path, what: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / what)
    for read in (read_plain, sha256_of):
        with pytest.raises(OSError, match=r"not a plain file|directory"):
            read(link)


def test_files_that_belong_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with streams_together({one: True, two: True}) as (first, second):
        first.write(b"1")
        second.write(b"2")
        assert not one.exists()
    assert (one.read_bytes(), two.read_bytes()) == (b"1", b"2")

    def broken() -> None:
        with streams_together({one: True, two: True}) as (first, _):
            first.write(b"half")
            raise ValueError

    with pytest.raises(ValueError):
        broken()
    assert (one.read_bytes(), two.read_bytes()) == (b"1", b"2")
    with (
        pytest.raises(InputError, match=r"one/two cannot be written"),
        streams_together({two: True, one / "two": True}),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_of_the_file_that_is_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    opened = io.FileIO
    # The file of "there" has no room, as on a disk of its own.
    monkeypatch.setattr(
        io, "FileIO", lambda name, mode: opened("/dev/full", "wb") if ".there." in str(name) else opened(name, mode)
    )

    def write(large: bool) -> None:
        with streams_together({here: True, there: True}) as (first, second):
            first.write(b"1")
            second.write(b"2" * (1 << 20 if large else 1))

    for large in (True, False):
        with pytest.raises(EnvironmentMissing, match=r"there cannot be written: No space left") as caught:
            write(large)
        assert caught.value.exit_code == 4
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["a/" * 400_000, "a" * 5000, "a\0b"])
def test_what_no_file_is_called_is_refused_at_once(text: str) -> None:
    with pytest.raises(InputError, match="is not a path") as raised:
        real_path(Path(text))
    assert len(str(raised.value)) < 200


def test_no_temporary_folder_is_a_fault_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(EnvironmentMissing, match="temporary folder") as error:
        Scratch("proof")
    assert error.value.exit_code == 4
    with pytest.raises(EnvironmentMissing):
        SystemProgram(["true"])


def test_temporary_files_are_not_the_users_to_move(tmp_path: Path) -> None:
    with Scratch("test") as scratch:
        (scratch.path / "file").touch()
        for write in (check_writable, lambda path: atomic_write(path, b"")):
            with pytest.raises(EnvironmentMissing, match="temporary files") as caught:
                write(scratch.path / "file" / "x")
            assert "TMPDIR" in caught.value.hint
    with tempfile.TemporaryDirectory(prefix="trtconv-models-") as users:
        for folder in (tmp_path, Path(users), Path(users) / "files"):
            folder.mkdir(exist_ok=True)
            (folder / "file").touch()
            with pytest.raises(InputError, match="cannot be written"):
                check_writable(folder / "file" / "x")


def test_the_checksum_of_the_sources_is_of_each_name_and_content() -> None:
    package = Path(files.__file__).resolve().parents[1]
    names = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    # By folder, and in each by name.
    names.sort(key=lambda name: (str(package / name).rpartition("/")[0], name.rpartition("/")[2]))
    sha = hashlib.sha256()
    for name in names:
        sha.update(name.encode() + b"\0" + (package / name).read_bytes())
    assert files.source_checksum() == sha.hexdigest()[:16]


def test_a_lock_keeps_others_from_a_folder_until_it_ends(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with locked(tmp_path / "e.engine"), pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)


def test_a_file_is_moved_or_stays_where_another_disk_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    source.write_bytes(b"data")
    for number in (errno.EXDEV, errno.EACCES):

        def refuse(path: Path, place: Path, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", refuse)
            if number == errno.EXDEV:
                assert not moved(source, target)
            else:
                with pytest.raises(InputError, match="target cannot be written"):
                    moved(source, target)
        assert source.read_bytes() == b"data" and not target.exists()
    assert moved(source, target)
    assert target.read_bytes() == b"data" and not source.exists()
