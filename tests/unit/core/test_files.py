"""Where files may be written, and what becomes of what was there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write, check_writable, real_path, sha256_of


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
    atomic_write(tmp_path / "link", b"new")
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
