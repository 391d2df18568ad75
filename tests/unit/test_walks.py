"""How far a reader has to go who follows a command: data flows one way, through few files."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import FrameType

import click
import pytest

import trtconv
from support.paths import ROOT
from trtconv.cli.commands import build, check

PACKAGE = Path(trtconv.__file__).parent
FOLLOWED = ("cli/commands/", "pipeline/")
"""What a reader follows from call to call; of other rooms only the first file is opened, and core is the vocabulary."""
MOST_CLIMBS = 8


class Walk:
    """Watches calls.

    Attributes:
        files: The files that the followed ones call, in the order of the first call.
        climbs: Calls into a file that was opened before the one that calls.
    """

    def __init__(self, first: str) -> None:
        self.files = [first]
        self.climbs: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        place = _file(frame.f_code.co_filename)
        if not place or place.startswith("core/") or frame.f_code.co_name.startswith("<"):
            return
        caller = frame.f_back
        while caller is not None and not _file(caller.f_code.co_filename):
            caller = caller.f_back
        source = "" if caller is None else _file(caller.f_code.co_filename)
        if source == place or not source.startswith(FOLLOWED):
            return
        if (source, place) in self._seen:
            return
        self._seen.add((source, place))
        if place not in self.files:
            self.files.append(place)
        elif source in self.files and self.files.index(place) < self.files.index(source):
            self.climbs.add((source, place))


@functools.cache
def _file(name: str) -> str:
    path = Path(name)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def walk(command: click.Command, *args: str) -> Walk:
    """Runs a command in this process, and returns which files it went through."""
    watch = Walk(f"cli/commands/{command.name}.py")
    sys.setprofile(watch)
    try:
        command.main(args=list(args), standalone_mode=False)
    finally:
        sys.setprofile(None)
    return watch


SIZES = ("--dim", "batch=1", "--dim", "height=64:128:256", "--dim", "width=64:128:256")


@pytest.mark.parametrize(("command", "most"), [(check.command, 29), (build.command, 29)], ids=["check", "build"])
def test_a_command_goes_one_way_through_few_files(tmp_path: Path, command: click.Command, most: int) -> None:
    """Where this fails: hand on what a file needs as a value, or have the room that knows it do the step itself."""
    pytest.importorskip("tensorrt_rtx")
    model = ROOT / "models" / "unet.onnx"
    writes = ("-o", str(tmp_path / "m.engine"), "--timing-cache", "none") if command is build.command else ()
    seen = walk(command, str(model), *SIZES, *writes, "--quiet", "--format", "json")
    assert len(seen.files) <= most, seen.files
    assert len(seen.climbs) <= MOST_CLIMBS, seen.climbs
