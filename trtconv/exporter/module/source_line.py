"""Finding the line of the user's Python that a failure comes from."""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
import traceback
from pathlib import Path
from types import FrameType

from trtconv.core.documents.export import Blame

_OURS = tuple(f"{path.parents[1]}{os.sep}" for path in (Path(__file__), Path(__file__).resolve()))
"""Frames have the path that Python found us by, which may lead through links."""
_INTERNAL = (
    "torch",
    "onnxscript",
    "onnx_ir",
    "einops",
    "importlib",
    "contextlib.py",
    "logging",
    "copy.py",
    "functools.py",
)
_SERIALIZED = re.compile(r'File "([^"]+)", line (\d+), in \w+\n((?:.*\n)*?)\s*~+ <--- HERE')


def is_ours(filename: str) -> bool:
    """Whether a frame's file belongs to this package."""
    return filename.startswith(_OURS)


def is_users(filename: str) -> bool:
    """Whether a frame's file is neither torch's, nor Python's machinery, nor ours."""
    if filename.startswith("<") or is_ours(filename):
        return False
    return not any(f"/{name}/" in filename or filename.endswith(f"/{name}") for name in _INTERNAL)


def short_path(filename: str) -> str:
    """Returns a path that says nothing of the machine: relative to the working or package folder, else its name."""
    path = Path(filename)
    roots = (Path.cwd(), *map(Path, site.getsitepackages()), *map(Path, sys.path))
    folders = [root for root in roots if root.is_absolute() and root != Path(root.anchor)]
    # A script's own folder is on Python's path too, but says less than the way to it from where the user is.
    if path.is_relative_to(Path.cwd()) and "site-packages" not in path.parts:
        return path.relative_to(Path.cwd()).as_posix()
    names = [path.relative_to(root).as_posix() for root in folders if path.is_relative_to(root)]
    return min(names, key=len, default=path.name)


def blame_exception(error: BaseException) -> Blame | None:
    """Returns the innermost line of the user's code in an exception's traceback, or None."""
    serialized = _SERIALIZED.findall(str(error))
    if serialized:
        file, _, code = serialized[-1]
        return _serialized_blame(file, int(serialized[-1][1]), code, first_line(error))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    if not frames:
        return None
    last = frames[-1]
    return Blame(short_path(last.filename), last.lineno or 0, (last.line or "").strip(), first_line(error))


def _serialized_blame(file: str, first: int, code: str, why: str) -> Blame:
    """TorchScript names the first line that it quotes, and underlines the one that failed."""
    lines = [line for line in code.splitlines() if line.strip()]
    real = linecache.getline(file, first).strip()
    offset = max(len(lines) - 1, 0)
    # TorchScript says the failing line itself, and quotes three lines before it.
    return Blame(short_path(file), first, real or lines[offset].strip() if lines else real, why)


def blame_frame(frame: FrameType | None) -> Blame | None:
    """Returns the innermost line of the user's code on a live stack."""
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name):
            return Blame(short_path(name), frame.f_lineno, linecache.getline(name, frame.f_lineno).strip())
        frame = frame.f_back
    return None


def blame_stack_text(text: str) -> Blame | None:
    """Returns the innermost user's line of a stack trace that torch keeps as text."""
    blame = None
    for match in re.finditer(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', text):
        if is_users(match[1]):
            blame = Blame(short_path(match[1]), int(match[2]), match[3].strip())
    return blame


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message that says something, cut to a sensible length."""
    for line in str(error).splitlines():
        if line.strip() and "TorchScript interpreter" not in line:
            return line.strip()[:300]
    return type(error).__name__
