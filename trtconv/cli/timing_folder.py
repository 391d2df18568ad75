"""Where caches lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def timing_folder() -> Path | None:
    """Returns the folder for timing caches in the user's cache folder; None where there is no place for it."""
    return cache_folder("timing")


def cache_folder(name: str) -> Path | None:
    """Returns a folder of ours in the user's cache folder; None where there is no place for it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(base).expanduser() / "trtconv" / name if base else None
    except RuntimeError:  # A user without a home.
        return None
    return folder if folder is not None and all(map(_is_own, (folder, folder.parent))) else None


def _is_own(folder: Path) -> bool:
    """Whether nobody else can put anything into a folder: what lies there decides forms, scales and kernels."""
    try:
        status = folder.stat()
    except OSError:
        return True
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o002)
