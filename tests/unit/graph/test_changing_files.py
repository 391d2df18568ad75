"""Weights in files that somebody else changes, cuts short or replaces while they are read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trtconv.core.errors import InputError
from trtconv.graph.external_data import FileStates, read_chunks


def _change(path: Path) -> None:
    path.write_bytes(b"y" * 10)


def _cut(path: Path) -> None:
    os.truncate(path, 3)


def _replace(path: Path) -> None:
    (path.parent / "new").write_bytes(b"x" * 10)
    (path.parent / "new").replace(path)


@pytest.mark.parametrize("act", [_change, _cut, _replace, Path.unlink])
def test_a_file_that_was_changed_meanwhile_is_told(tmp_path: Path, act: Callable[[Path], object]) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"x" * 10)
    os.utime(path, (1, 1))
    before = FileStates.of([path, tmp_path / "none"])
    before.require()
    act(path)
    with pytest.raises(InputError, match="w was changed while it was read"):
        before.require()


def test_a_file_that_became_too_short_is_no_smaller_tensor(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"x" * 10)
    assert b"".join(read_chunks(tmp_path / "w", 2, 10)) == b"x" * 8
    with pytest.raises(InputError, match="too short"):
        list(read_chunks(tmp_path / "w", 2, 11))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
def test_a_pipe_in_the_place_of_weights_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w")
    with pytest.raises(OSError, match="not a plain file"):
        list(read_chunks(tmp_path / "w", 0, 10))
