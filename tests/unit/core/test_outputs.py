"""What may be written: what a stranger's folder or configuration names is never written through a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtconv.core import config
from trtconv.core.errors import InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.pipeline.outputs import check_outputs


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "victim"
    path.parent.mkdir()
    path.write_text("mine")
    return path


@pytest.mark.parametrize("link", ["r.engine", "r.engine.json"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_configuration_writes_through_no_link(tmp_path: Path, victim: Path, link: str, inside: bool) -> None:
    folder = victim.parent if inside else tmp_path / "checkout"
    folder.mkdir(exist_ok=True)
    (folder / link).symlink_to(victim)
    (folder / "trtconv.toml").write_text('[[models]]\npath = "g.onnx"\nengine = "r.engine"\n')
    with pytest.raises(InputError, match="is a link"):
        config.load(folder / "trtconv.toml")


@pytest.mark.parametrize("link", ["m.engine", "m.engine.json"])
def test_paths_that_nobody_typed_are_no_links(tmp_path: Path, victim: Path, link: str) -> None:
    (tmp_path / link).symlink_to(victim)
    with pytest.raises(InputError, match="is a link"):
        check_outputs(BuildRequest(tmp_path / "m.onnx"))


def test_a_link_that_the_user_typed_is_followed(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "m.engine").symlink_to(victim)
    check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "m.engine"))
