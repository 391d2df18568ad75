"""A child that does a command's work: a fork of this process, which watches it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from typing import NamedTuple

from trtconv.cli.process import signals, status
from trtconv.core.forking import die_with

CAN_FORK = sys.platform == "linux"


class Forked(NamedTuple):
    """A child, as its parent has it.

    Args:
        pid: Its number.
        status: Pipe on which it tells where it is.
        stderr: Pipe on which what native code writes to stderr comes.
    """

    pid: int
    status: int
    stderr: int


def fork() -> Forked | None:
    """Makes the child. Returns what the parent knows of it; None in the child itself."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    status_fd, tell = os.pipe()
    output, show = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(tell)
        os.close(show)
        return Forked(pid, status_fd, output)
    os.close(status_fd)
    os.close(output)
    _become_child(parent, tell, show)
    return None


def _become_child(parent: int, tell: int, show: int) -> None:
    """Sets the child up: its own group, a status pipe, and native stderr apart from Python's."""
    # Ctrl-C goes to the parent alone, which passes it on once; and writing to a terminal must not stop the child.
    os.setpgid(0, 0)
    # What came for both before that, too.
    signals.forget()
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    status.report_to(tell)
    # Native code ends processes with its last words on descriptor 2: the parent shows and keeps them. Progress and
    # messages of our own stay where a terminal can be recognised.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr = open(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)  # noqa: SIM115, PTH123
        os.dup2(show, 2)
    os.close(show)
    faulthandler.enable(tell, all_threads=False)
    die_with(parent, signal.SIGTERM)
