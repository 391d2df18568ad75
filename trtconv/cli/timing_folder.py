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
        return Path(base).expanduser() / "trtconv" / name if base else None
    except RuntimeError:  # A user without a home.
        return None
