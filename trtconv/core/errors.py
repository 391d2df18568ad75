"""Every exception that trtconv raises on purpose.

A problem *in the model* is a `trtconv.core.findings.Finding`, a value. A problem *doing the work* is one of these::

    TrtconvError                exit code
    |-- InputError              2   a bad call or an unreadable input
    |-- EnvironmentMissing      4   this machine cannot: runtime, GPU or capability missing
    |-- BuildFailed             1   TensorRT refused to parse or build the model
    |-- ExportFailed            1   the module cannot be exported as asked
    `-- EngineFailed            1   an engine does not load or does not run

Anything else that escapes is a bug in trtconv (exit code 3), and told as `Bug`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
"""Errors of the system where a disk has no room, or a user none left."""
_SPENT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


_PYTHON_WORDS: list[Callable[[str], str]] = []


def in_python(hint: str) -> str:
    """Returns a hint with arguments of requests in the place of flags; as it is where nobody has made a request."""
    return _PYTHON_WORDS[0](hint) if _PYTHON_WORDS else hint


def say_in_python(words: Callable[[str], str]) -> None:
    """Takes what says hints in Python: it knows the requests, which raise the errors of this module."""
    _PYTHON_WORDS[:] = [words]


class TrtconvError(Exception):
    """A failure with a message for the user and, where there is one, a way forward.

    Args:
        message: What went wrong; names the file, node, dimension or flag.
        hint: What to do about it, or an empty string.
    """

    exit_code = 1
    usual_hint = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.usual_hint

    @property
    def python_hint(self) -> str:
        """The hint with arguments of requests in the place of flags."""
        return in_python(self.hint)

    @property
    def python_message(self) -> str:
        """The message with arguments of requests in the place of flags."""
        return in_python(self.message)

    @property
    def __notes__(self) -> list[str]:
        """What Python writes below the message where nobody catches it (3.11 on)."""
        # Said once more only where it is another sentence.
        notes = [f"in Python: {other}" for other in {self.python_message} - {self.message}]
        return [*notes, *([f"hint: {self.python_hint}"] if self.hint else [])]


class InputError(TrtconvError):
    """A bad call, or an input file that cannot be read.

    Args:
        lacks_bounds: Whether it is bounds of dynamic dimensions that the call lacks.
    """

    exit_code = 2
    usual_hint = "Check the path, the file and the options; --help after a command lists what it takes."

    def __init__(self, message: str, hint: str = "", *, lacks_bounds: bool = False) -> None:
        super().__init__(message, hint)
        self.lacks_bounds = lacks_bounds


class EnvironmentMissing(TrtconvError):
    """This machine lacks the runtime, GPU or capability that the call needs."""

    exit_code = 4
    usual_hint = "Ask 'trtconv doctor' what this machine has."


class BuildFailed(TrtconvError):
    """TensorRT refused the model.

    Args:
        findings: Why, one finding a cause.
    """

    def __init__(self, message: str, hint: str = "", findings: tuple[object, ...] = ()) -> None:
        super().__init__(message, hint)
        self.findings = findings


class ExportFailed(TrtconvError):
    """A PyTorch module cannot be exported as it was asked for."""


class EngineFailed(TrtconvError):
    """An engine does not load, or does not run to its end."""


class Bug(TrtconvError):
    """Something in trtconv itself broke."""

    exit_code = 3


def starved(error: BaseException) -> EnvironmentMissing | None:
    """Returns what is told where the system gave no more room, processes, descriptors or memory."""
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:
        return EnvironmentMissing(f"the disk is full: {error}", "Make room there; TMPDIR names another folder.")
    if number in _SPENT:
        return EnvironmentMissing(f"the system refuses: {error}", "Raise the limits of this shell (ulimit -a).")
    return None


def endless_number(error: BaseException) -> InputError | None:
    """Returns the failure for a number of so many digits that Python reads it no more: no size, version or count is
    one, and wherever numbers are read somebody may write it."""
    if isinstance(error, ValueError) and "for integer string conversion" in str(error):
        return InputError(
            "a number that was given has thousands of digits", "Give one of a size, a version or a count."
        )
    return None


def unusable_path(error: Exception) -> InputError | None:
    """Returns the failure for a path that the system does not look at, or `core.reading` does not read to its end.

    Any question about a file may meet it.
    """
    unread = (errno.EFBIG, errno.EINVAL, errno.EISDIR, errno.ENXIO, errno.EIO)
    refused = (errno.ENAMETOOLONG, errno.EACCES, errno.ELOOP, *unread)
    if not isinstance(error, OSError) or error.errno not in refused or error.filename is None:
        return None
    name = os.fsdecode(error.filename)
    return InputError(f"{name}: {error.strerror}", "Give another path, or let it be read.")


CUT_SHORT = "a file was cut short while it was read, or its disk failed (SIGBUS)"


def cut_short(doing: str) -> InputError:
    """Returns what tells that a process ended because a file that it had mapped has no such bytes any more.

    Args:
        doing: What it was at, or with which file.
    """
    return InputError(f"{doing}: {CUT_SHORT}", "Leave the model and its data as they are until the command has ended.")
