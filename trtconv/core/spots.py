"""Where files are to be written, looked at once: asking the disk is most of what planning thousands of builds takes."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, TypeAlias

from trtconv.core.errors import InputError
from trtconv.core.files import cannot_write, place_of, real_path

FileId: TypeAlias = tuple[object, ...]
_GIVE_FILE = "Give the path of a file to write."


class Spot(NamedTuple):
    """Where a path leads.

    Attributes:
        place: The file that is written, or a link to it, as `place_of` says.
        status: Of what is there, be it a link; None where nothing is, or it cannot be looked at.
        fault: Why it cannot; also that nothing is there.
        folder: Status of the folder around it; None where there is none yet.
    """

    place: Path
    status: os.stat_result | None
    fault: OSError | None
    folder: os.stat_result | None

    @property
    def is_link(self) -> bool:
        """Whether a link is there."""
        return self.status is not None and stat.S_ISLNK(self.status.st_mode)

    @property
    def id(self) -> FileId:
        """What tells the file from all others, as `file_id` says."""
        if self.is_link:
            return file_id(self.place)
        if self.status is not None:
            return self.status.st_dev, self.status.st_ino
        if self.folder is not None:
            return self.folder.st_dev, self.folder.st_ino, self.place.name
        return (str(self.place),)

    def check_writable(self, spelling: Path) -> None:
        """Raises InputError unless a file can be made there; asked before work that takes long.

        Args:
            spelling: The path as it was given, for the message.
        """
        try:
            mode = self._mode()
            # Missing folders are made when the file is written, not for a request that may fail.
            folder, around = self.place.parent, self.folder
            if around is None:
                folder = next(parent for parent in self.place.parents if parent.exists())
                around = folder.stat()
        except OSError as error:
            raise cannot_write(spelling, error) from error
        if stat.S_ISDIR(mode):
            raise InputError(f"{spelling} is a folder", _GIVE_FILE)
        if not stat.S_ISREG(mode):
            # The rename would put a file in the place of /dev/null.
            raise InputError(f"{spelling} is a device or a pipe, no file", _GIVE_FILE)
        try:
            _try_to_write(folder, around.st_mode, int(time.monotonic()))
        except OSError as error:
            raise cannot_write(spelling, error) from error

    def _mode(self) -> int:
        """Returns the mode of the file that would be replaced; that of a plain file where there is none yet."""
        if self.is_link:
            try:
                return self.place.stat().st_mode
            except FileNotFoundError:
                return stat.S_IFREG
        if self.fault is not None and not isinstance(self.fault, FileNotFoundError):
            raise self.fault
        return stat.S_IFREG if self.status is None else self.status.st_mode


class Spots:
    """Spots that belong together; a folder and a file are looked at once, so this is for one check and not kept."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[Path, os.stat_result | None]] = {}
        self._spots: dict[str, Spot] = {}

    def real(self, folder: Path) -> Path:
        """Returns what the path of a folder leads to; raises as `real_path`."""
        return self._folder(folder)[0]

    def of(self, path: Path) -> Spot:
        """Returns where a path leads.

        Raises:
            InputError: No file can have that path.
        """
        # By its text, of which Python remembers the hash.
        spot = self._spots.get(str(path))
        if spot is None:
            spot = self._spots[str(path)] = self._look(path)
        return spot

    def _look(self, path: Path) -> Spot:
        whole = path if path.name not in ("", "..") else place_of(path)
        real, folder = self._folder(whole.parent)
        place = real / whole.name
        try:
            return Spot(place, place.lstat(), None, folder)
        except ValueError as error:
            raise InputError(f"{str(path)!r} is not a path: {error}", "Choose another path.") from error
        except OSError as error:
            return Spot(place, None, error, folder)

    def _folder(self, folder: Path) -> tuple[Path, os.stat_result | None]:
        key = str(folder)
        entry = self._folders.get(key)
        if entry is None:
            real, status = real_path(folder), None
            with contextlib.suppress(OSError):
                status = real.stat()
            entry = self._folders[key] = real, status
        return entry


def check_writable(path: Path) -> None:
    """Raises InputError unless a file can be made at a path; asked before work that takes long."""
    Spots().of(path).check_writable(path)


@functools.lru_cache(maxsize=8)
def _try_to_write(folder: Path, _mode: int, _second: int) -> None:
    """Makes a file; once a second, since file systems get slow where thousands of them come and go in a minute."""
    # It disappears with the handle, also where a signal comes in between.
    with tempfile.TemporaryFile(dir=folder):
        pass


def file_id(path: Path) -> FileId:
    """Returns what tells a file from all others, whatever its path is; of one that is not there, where it would be."""
    try:
        status = path.stat()
        return status.st_dev, status.st_ino
    except (OSError, ValueError):
        pass
    with contextlib.suppress(OSError, ValueError):
        if path.name not in ("", "..") and not os.path.lexists(path):
            folder = path.parent.stat()
            return folder.st_dev, folder.st_ino, path.name
    # As it is written: of a/../b, where there is no a, the system knows nothing.
    real = real_path(path)
    try:
        status = real.stat()
        return status.st_dev, status.st_ino
    except OSError:
        pass
    try:
        folder = real.parent.stat()
        return folder.st_dev, folder.st_ino, real.name
    except OSError:
        return (str(real),)
