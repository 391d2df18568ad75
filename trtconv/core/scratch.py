"""Temporary folders, for the user's eyes alone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

from trtconv.core.errors import EnvironmentMissing
from trtconv.core.leftovers import left_in, mark_as_held, names_in, remove

_BEGIN = "trtconv-"
_NAME = re.compile(rf"{_BEGIN}.+-[0-9]+-\w+")
_FILES = "files"


class Scratch(contextlib.AbstractContextManager["Scratch"]):
    """A temporary folder, removed at the end of the process, or earlier; that of a killed process, by the next one.

    Args:
        what: What it is for; its name begins with that and with the number of the process.

    Attributes:
        path: The folder.
        remove: Removes it.
    """

    def __init__(self, what: str) -> None:
        begin = f"{_BEGIN}{what}-"
        around = temporary_folder()
        for entry in left_in(around, names_in(around), begin):
            remove(entry)
        folder = Path(tempfile.mkdtemp(prefix=f"{begin}{os.getpid()}-"))
        self.remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # Not the folder that is marked: whoever writes an engine locks the folder that it goes to.
        self.path = folder / _FILES
        self.path.mkdir(mode=0o700)
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            weakref.finalize(self, os.close, handle)
            mark_as_held(handle)

    def __exit__(self, *_: object) -> None:
        self.remove()


def temporary_folder() -> Path:
    """Returns where temporary files go.

    Raises:
        EnvironmentMissing: None of the usual folders can be written to.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        why = "no temporary folder can be written to: it is full or read-only, or files may have no bytes (ulimit -f)"
        raise EnvironmentMissing(why, "Make room, or let TMPDIR name a folder.") from error


def is_scratch(path: Path) -> bool:
    """Whether a path lies in a folder that a `Scratch` made, here or in a process that this one works for."""
    around = Path(tempfile.gettempdir())
    # By the whole form of a name: a user may have a folder trtconv-models there.
    return any(
        parent.name == _FILES and parent.parent.parent == around and _NAME.fullmatch(parent.parent.name)
        for parent in path.parents
    )


def remove_scratch(pid: int) -> None:
    """Removes the temporary folders of a process that was killed."""
    for folder in temporary_folder().glob(f"trtconv-*-{pid}-*"):
        remove(folder)
