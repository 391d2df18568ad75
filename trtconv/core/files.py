"""Writing files so that a killed process leaves the old file or none, never half of one; and their checksums."""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import hashlib
import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from trtconv.core.errors import FULL, EnvironmentMissing, InputError, TrtconvError
from trtconv.core.leftovers import left_in, mark_as_held, names_in, remove
from trtconv.core.scratch import is_scratch, temporary_folder

_PART = ".part"
_LONG_NAME = 180
MOST_FILES = 100_000
"""How many files a folder of models, samples or reports may have, in those below it too."""
_MOST_PATH = 4096
"""PATH_MAX of Linux."""
LOCK_SECONDS = 60.0
"""How long a lock is waited for."""
_LOCK_POLL_SECONDS = 0.02


def report_beside(engine: Path) -> Path:
    """Returns where the report of an engine is, unless somebody says otherwise."""
    return Path(f"{engine}.json")


def with_ending(path: Path, ending: str) -> Path:
    """Returns a path with another suffix. Unlike `Path.with_suffix`, it takes folders without a name: `.` and `/`."""
    return path.parent / f"{path.stem}{ending}"


def files_below(folder: Path, ending: str = "", *, plain: bool = True) -> list[Path]:
    """Returns the files in a folder and below, as far as they may be looked at; links to folders are not followed.

    Args:
        folder: The folder.
        ending: Of the files' names.
        plain: Whether pipes, devices, and links that lead nowhere are left out.

    Raises:
        InputError: There are more files than anybody means: it is the root of the file system, for example.
    """
    walked = ((where, name) for where, _, names in os.walk(folder) for name in names)
    paths = []
    for number, (where, name) in enumerate(walked):
        if number >= MOST_FILES:
            raise InputError(f"{folder} has more than {MOST_FILES} files", "Give a folder with fewer.")
        path = Path(where, name)
        # Unlike `Path.is_file`, this says no where one may not look.
        if name.endswith(ending) and (not plain or os.path.isfile(path)):  # noqa: PTH113
            paths.append(path)
    return sorted(paths)


def real_path(path: Path) -> Path:
    """Returns what a path leads to. Unlike `Path.resolve`, it takes links that lead in a circle.

    Raises:
        InputError: No file can have that path: it has a null character, or is too long.
    """
    text = str(path)
    # Finding out where it leads would take time that grows as the square of its length.
    if len(text) > _MOST_PATH:
        raise InputError(
            f"{text[:40]!r}... is not a path: it has {len(text):,} characters, a path at most {_MOST_PATH:,}",
            "Choose another path.",
        )
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:
        raise InputError(f"{str(path)!r} is not a path: {error}", "Choose another path.") from error


def place_of(path: Path) -> Path:
    """Returns where a path leads, but for a link in its last part: the file that is written, or the link to it.

    A part that is not there, and is left again (`a/../b`), leads nowhere for the system; who writes makes it first.

    Raises:
        InputError: No file can have that path.
    """
    return real_path(path.parent) / path.name if path.name not in ("", "..") else real_path(path)


def openable(path: Path) -> Path:
    """Returns a path by which what is written there can be opened: of `a/../b`, where there is no `a`, `b`.

    Raises:
        InputError: No file can have that path.
    """
    if ".." not in path.parts or path.parent.exists():
        return path
    place = place_of(path)
    return place if path.is_absolute() else Path(os.path.relpath(place))


def atomic_write(path: Path, data: bytes | memoryview, *, through_links: bool = False) -> None:
    """Writes a file by way of a temporary file beside it, fsync and rename; see `atomic_stream`."""
    with atomic_stream(path, through_links=through_links) as file:
        file.write(data)


@contextlib.contextmanager
def streams_together(paths: Mapping[Path, bool]) -> Iterator[list[BinaryIO]]:
    """Is `atomic_stream` for files that belong together: where two write them at once, both files are of one writer.

    Args:
        paths: The files, and whether each is written through a link; see `atomic_stream`.

    Raises:
        InputError: A file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(_Part(path, through)) for path, through in paths.items()]
        first = next(iter(paths))
        with _told_as_unwritable(first):
            yield [part.file for part in parts]
        # Once all are written: what a file system does for the first serves the others too.
        for part in parts:
            part.sync()
        with locked(first):
            for part in parts:
                part.replace()


@contextlib.contextmanager
def atomic_stream(path: Path, *, through_links: bool = False) -> Iterator[BinaryIO]:
    """Opens a temporary file that becomes `path` when the block ends well, and vanishes when it does not.

    Args:
        path: The file.
        through_links: Whether a link is followed, as where the user typed the path; the link itself is replaced
            otherwise, which somebody else may have put there.

    Raises:
        InputError: The file cannot be written (folder missing or read-only).
        EnvironmentMissing: The disk is full.
    """
    with _Part(path, through_links) as part:
        with _told_as_unwritable(path):
            yield part.file
        part.sync()
        part.replace()


def moved(source: Path, path: Path) -> bool:
    """Moves a file that nobody else knows to a path, and is as atomic there as `atomic_stream`.

    Returns:
        False where that would be a copy: the path is on another file system.

    Raises:
        InputError: The path cannot be written.
    """
    place = place_of(path)
    with _told_as_unwritable(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file:
            os.fsync(file.fileno())
        try:
            source.replace(place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
    return True


class _Stream(io.BufferedWriter):
    """A new file for a path, which a failure names: several may be written at once, on disks of their own."""

    def __init__(self, path: Path, name: Path) -> None:
        super().__init__(io.FileIO(name, "xb"))
        self._path = path

    def write(self, data: Any) -> int:
        with _told_as_unwritable(self._path):
            return super().write(data)


class _Part(contextlib.AbstractContextManager["_Part"]):
    """A temporary file beside a path, which it may become; what goes wrong is an InputError.

    Args:
        path: What is to be written.
        through_links: As for `atomic_stream`.

    Attributes:
        file: The temporary file, open.
    """

    def __init__(self, path: Path, through_links: bool) -> None:
        # What a link points to is written, not the link: /dev/stdout is one.
        self._path = real_path(path) if through_links else place_of(path)
        folder, begin = self._path.parent, _beginning(self._path)
        with _told_as_unwritable(path):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self._path)
            # The number says who may remove it: a process that was killed cannot.
            name = folder / f"{begin}{os.getpid()}.{os.urandom(6).hex()}{_PART}"
            self.file: BinaryIO = _Stream(path, name)
        self._temporary: Path | None = name
        mark_as_held(self.file.fileno())

    def sync(self) -> None:
        """Ends writing: what is in the file is on the disk."""
        assert self._temporary is not None
        with _told_as_unwritable(self._path):
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()

    def replace(self) -> None:
        """Puts the file in its place."""
        assert self._temporary is not None
        with _told_as_unwritable(self._path):
            self._temporary.replace(self._path)
        self._temporary = None

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink()


@contextlib.contextmanager
def _told_as_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(real_path(path), error) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps others, processes of trtconv or threads, from writing files that belong together into `path`'s folder.

    The folder itself is locked, so that no lock file is left behind; where the system has no such locks (Windows, some
    network file systems) nothing is. Nor is it where somebody else holds the lock for longer than any write takes
    (`flock . trtconv build ...`): the files are whole all the same, one by one.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            folder = real_path(path).parent
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            stack.callback(os.close, handle)
            until = time.monotonic() + LOCK_SECONDS
            while time.monotonic() < until:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_LOCK_POLL_SECONDS)
        yield


def remove_parts(pid: int, outputs: Iterable[Path]) -> None:
    """Removes what a process that was killed has left beside the files that it was to write."""
    for path in map(real_path, outputs):
        for left in path.parent.glob(f"{glob.escape(_beginning(path))}{pid}.*{_PART}"):
            remove(left)


def _beginning(path: Path) -> str:
    """Returns what the names of temporary files for `path` begin with; a long name is not made longer."""
    name = path.name if len(os.fsencode(path.name)) < _LONG_NAME else hashlib.sha256(os.fsencode(path.name)).hexdigest()
    return f".{name}."


def remove_abandoned(paths: Iterable[Path]) -> None:
    """Removes temporary files for paths whose writers are dead, those that died just now among them."""
    _parts_in.cache_clear()
    for path in paths:
        _remove_abandoned(path)


def _remove_abandoned(path: Path) -> None:
    """Removes temporary files for `path` whose writers are dead: killed together with whoever would have cleaned up."""
    for left in left_in(path.parent, _parts_in(path.parent, int(time.monotonic())), _beginning(path)):
        remove(left)


@functools.lru_cache(maxsize=8)
def _parts_in(folder: Path, _second: int) -> list[str]:
    """Returns the temporary files of a folder, looked at once a second: it may get thousands of engines in a minute."""
    return [name for name in names_in(folder) if name.endswith(_PART)]


def cannot_write(path: Path, error: Exception) -> TrtconvError:
    """Returns what tells that a file cannot be written, and what to do."""
    if is_scratch(path):
        # Nobody chose that path.
        why = f"temporary files cannot be written to {temporary_folder()}: {_why(error)}"
        return EnvironmentMissing(why, "Make room there, or let TMPDIR name another folder.")
    if getattr(error, "errno", None) in FULL:
        return EnvironmentMissing(f"{path} cannot be written: {_why(error)}", "Make room there, or write it elsewhere.")
    return InputError(f"{path} cannot be written: {_why(error)}", "Choose another output path.")


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


@functools.cache
def source_checksum() -> str:
    """Returns a checksum of this package's own code: checkouts of one version may make different engines."""
    package = str(Path(__file__).resolve().parents[1])
    sha = hashlib.sha256()
    # A Path for each of hundreds of files takes longer than to read them.
    for folder, _, names in sorted(os.walk(package)):
        within = folder[len(package) + 1 :].replace(os.sep, "/") + "/" if folder != package else ""
        for name in sorted(name for name in names if name.endswith(".py")):
            with open(f"{folder}{os.sep}{name}", "rb", buffering=0) as file:  # noqa: PTH123
                sha.update(f"{within}{name}".encode() + b"\0" + file.readall())
    return sha.hexdigest()[:16]
