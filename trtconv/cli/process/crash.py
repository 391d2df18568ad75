"""What is kept of a bug: the traceback and the versions, in a file that can be sent to us."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback

from trtconv.cli.versions import versions


def save_traceback(error: BaseException) -> str:
    """Writes the traceback into a file in the user's temporary folder.

    Returns:
        "the file PATH", or the traceback itself where no file can be written.
    """
    packages = "\n".join(f"{name} {version or 'not installed'}" for name, version in versions().items())
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = f"{sys.argv}\nPython {sys.version}\n{platform.platform()}\n{packages}\n\n{trace}"
    try:
        handle, path = tempfile.mkstemp(prefix="trtconv-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return f"this text:\n{text}"
    return f"the file {path}"
