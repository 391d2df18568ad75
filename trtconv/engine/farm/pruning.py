"""What is removed from a store: what is wrong or half-written, and what nobody has used for long."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from trtconv.core.decode import Fault
from trtconv.core.documents.farm import StoreEntry, StorePruned
from trtconv.core.errors import InputError
from trtconv.engine.farm.store import RESULT, Store

_DAY = 86_400.0
_PART = re.compile(r"\.[0-9a-f]{64}(\.json|\.result\.json)?\.[0-9]+\.[0-9a-f]+\.part")
_NAME = re.compile(r"[0-9a-f]{64}")
_WRITING_SECONDS = 3600.0
"""How long somebody may be at writing a file."""


def prune(folder: Path, days: float, most_bytes: int | None, *, remove: bool) -> StorePruned:
    """Removes what is wrong in a store, and what was not used for long; nothing but what has a store's names.

    Args:
        folder: The store.
        days: Days after which what was not used goes.
        most_bytes: Bytes that may be left, the least used going first; None: any number.
        remove: Whether it is; else only told.

    Raises:
        InputError: There is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "Give the store of the farm: --store DIR.")
    removed: list[StoreEntry] = []
    entries: list[tuple[float, int, Path]] = []
    for path, why, used, size in _entries(Store(folder), time.time(), days):
        if why:
            _remove(folder, path, why, size, removed, remove)
        else:
            entries.append((used, size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if most_bytes is None or total <= most_bytes:
            break
        _remove(
            folder, path, "the store is larger than it may be, and this was not used for longest", size, removed, remove
        )
        total -= size
    files = {entry.file for entry in removed}
    sizes = [size for _, size, path in entries if str(path.relative_to(folder)) not in files]
    return StorePruned(tuple(removed), len(sizes), sum(sizes))


def _entries(store: Store, now: float, days: float) -> Iterator[tuple[Path, str, float, int]]:
    """Yields each file of a store, why it should go, when it was last used, and its bytes."""
    for path in _files(store.root):
        with contextlib.suppress(OSError):
            status = path.lstat()
            used = now - status.st_mtime
            yield path, _fault(store, path, used, days), status.st_mtime, status.st_size


def _files(root: Path) -> Iterator[Path]:
    contents = root / "sha256"
    for folder in (root, *sorted(contents.glob("[0-9a-f][0-9a-f]"))):
        if folder.is_symlink() or (folder != root and contents.is_symlink()):
            continue
        for path in sorted(folder.iterdir()):
            match = _NAME.fullmatch(path.name.partition(".")[0]) or _PART.fullmatch(path.name)
            if match and path.is_file() and not path.is_symlink():
                yield path


def _fault(store: Store, path: Path, used: float, days: float) -> str:
    """Returns why a file should go; empty where it may stay."""
    if path.suffix == ".part":
        return "it was never written to its end" if used > _WRITING_SECONDS else ""
    if path.name.endswith(RESULT):
        name = path.name.removesuffix(RESULT)
        result = store.finished(name, ())
        if result is None:
            return "it is no result of a job that ended well"
        with contextlib.suppress(Fault):
            if result.engine is not None and not store.has(result.engine.sha256 or ""):
                return "its engine is not there, or is another one"
    elif path.parent != store.root and not store.has(path.name):
        return "it is not what its name says"
    return f"nobody has used it for {used / _DAY:.0f} days" if used > days * _DAY else ""


def _remove(folder: Path, path: Path, why: str, size: int, removed: list[StoreEntry], remove: bool) -> None:
    with contextlib.suppress(OSError):
        if remove:
            path.unlink()
        removed.append(StoreEntry(str(path.relative_to(folder)), why, size))
