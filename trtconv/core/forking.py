"""A process forked from this one, which need not import again what this one has imported.

It is to be as one that was started anew: a session of its own, no descriptors but the standard ones, no handlers of
signals, no traces of the work that this process does.
"""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

_OWN_DESCRIPTORS = Path("/proc/self/fd")
_OWN_THREADS = Path("/proc/self/task")
_PR_SET_PDEATHSIG = 1
_COLLECT_EVERY = (700, 10, 10)
"""Python's own thresholds (`gc.get_threshold`)."""


UNHEARD = 255
"""Stands for the exit status of a process that nobody heard end."""
_allowing: set[int] = set()
"""Threads that allow forks, by the system's numbers."""


@contextlib.contextmanager
def allow_forks() -> Iterator[None]:
    """Says of the thread that calls it, meanwhile, that a fork beside it is safe: it is Python's alone, and what it may
    hold at any moment no fork waits for."""
    number = threading.get_native_id()
    _allowing.add(number)
    try:
        yield
    finally:
        _allowing.discard(number)


def can_fork() -> bool:
    """Whether a fork of this process is safe: no other thread, native ones counted, holds a lock that the child would
    wait for."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):
        others = _allowing - {threading.get_native_id()}
        return len({int(entry.name) for entry in _OWN_THREADS.iterdir()} - others) == 1
    return False


class Fork:
    """A forked process, to be used as a `subprocess.Popen`.

    Args:
        work: What it does; it ends when that returns.
        path: Its `sys.path`.
        stderr: What it writes to stderr goes there; None: to where this process does.
        shared: Other descriptors that it keeps.
        freezes: Whether what both have is no garbage any more, ever: neither then copies pages to look for some there.

    Attributes:
        stdin: What it reads.
        stdout: What it writes.
        pid: Its number.
    """

    def __init__(
        self,
        work: Callable[[], None],
        path: Sequence[str],
        stderr: IO[bytes] | None,
        shared: Sequence[int] = (),
        *,
        freezes: bool = True,
    ) -> None:
        self._code: int | None = None
        self._lock = threading.Lock()
        if freezes:
            gc.freeze()
        with contextlib.ExitStack() as undo:
            (reads, requests), (answers, writes) = _pipe(undo), _pipe(undo)
            self.pid = os.fork()
            undo.pop_all()
        if not self.pid:
            _work(work, path, (reads, writes, 2 if stderr is None else stderr.fileno()), shared)
        os.close(reads)
        os.close(writes)
        self.stdin: IO[bytes] = os.fdopen(requests, "wb")
        self.stdout: IO[bytes] = os.fdopen(answers, "rb")

    def wait(self) -> int:
        """Waits for its end; returns its exit status, the negative number of the signal where one ended it, and
        `UNHEARD` where that is not known."""
        with self._lock:
            if self._code is None:
                code = UNHEARD
                # Where SIGCHLD is ignored, children end unheard; so they do where somebody else waits for all.
                with contextlib.suppress(ChildProcessError):
                    code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                self._code = code
            return self._code

    def kill(self) -> None:
        """Ends it."""
        # Once it was waited for, its number may be another's.
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        undo.callback(os.close, end)
    return ends


def die_with(parent: int, number: int) -> None:
    """Has the system send this process a signal where its parent ends, however that ends.

    Args:
        parent: The process that forked this one; if it is gone already, the signal comes at once.
        number: The signal.
    """
    # Loaded only here: most processes have no such wish.
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _work(work: Callable[[], None], path: Sequence[str], streams: tuple[int, int, int], shared: Sequence[int]) -> None:
    """Works as the child, and ends it; never returns to what the parent was about."""
    status = 1
    try:
        os.setsid()
        faulthandler.disable()
        _take_streams(streams, shared)
        _forget_signals()
        gc.set_threshold(*_COLLECT_EVERY)
        # Their numbers may be those of others here.
        _allowing.clear()
        sys.path[:] = path
        contextvars.Context().run(work)
        status = 0
    except BaseException:  # Whatever it is, the parent's handlers are not to see it.
        traceback.print_exc()
    finally:
        os._exit(status)


def _take_streams(streams: tuple[int, int, int], shared: Sequence[int]) -> None:
    """Makes these the standard streams, and leads all other descriptors nowhere but those that are shared.

    None is closed: objects of the parent may still close theirs, which is then nobody else's.
    """
    for number, stream in enumerate([os.dup(descriptor) for descriptor in streams]):
        os.dup2(stream, number)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in [int(entry.name) for entry in _OWN_DESCRIPTORS.iterdir()]:
        # The folder itself was open while it was listed.
        with contextlib.suppress(OSError):
            if number not in (0, 1, 2, nowhere, *shared):
                os.fstat(number)
                os.dup2(nowhere, number, inheritable=False)
    # `sys.__stdin__` and its like keep the parent's.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115


def _forget_signals() -> None:
    """Has signals do what they do in a process that was started anew."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
