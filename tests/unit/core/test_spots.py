"""Where files go, looked at once: the same answers as looking at each path by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtconv.core.errors import InputError
from trtconv.core.spots import Spots, check_writable, file_id

PATHS = (
    *("file", "none", "folder", "folder/none", "link", "dangling", "round", "hard", "no/such/folder", "file/below"),
    *("none/../file", "none/../none", "none/none/../../link", "folder/..", "out/file", "out/none", ".", ".."),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.link(tmp_path / "file", tmp_path / "hard")
    for name, to in (("link", "file"), ("dangling", "none"), ("round", "round"), ("out", ".")):
        (tmp_path / name).symlink_to(to)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", PATHS)
def test_a_spot_is_the_same_file_as_its_path(folder: Path, path: str) -> None:
    spots = Spots()
    for spelling in (Path(path), folder / path):
        assert spots.of(spelling).id == file_id(Path(path))


def test_a_folder_is_looked_at_once_in_a_check_and_anew_in_the_next(folder: Path) -> None:
    spots = Spots()
    assert spots.of(folder / "new" / "a").folder is None
    (folder / "new").mkdir()
    assert spots.of(folder / "new" / "b").folder is None
    assert Spots().of(folder / "new" / "b").folder is not None


@pytest.mark.parametrize(
    ("path", "said"), [("folder", "is a folder"), ("file/below", "cannot be written"), ("round", "cannot be written")]
)
def test_where_no_file_can_be_made(folder: Path, path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_writable(Path(path))


@pytest.mark.parametrize("path", ["file", "none", "link", "dangling", "no/such/folder", "none/../none"])
def test_where_a_file_can_be_made(folder: Path, path: str) -> None:
    check_writable(Path(path))
