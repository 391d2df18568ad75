"""Ctrl-C and SIGTERM: both unwind the stack, so that no half-written file stays."""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False  # What typing.TYPE_CHECKING is; its import is what an early Ctrl-C would break.
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

RETRY_SECONDS = 0.02
INSIST = 3
"""So many signals end the process even in the middle of an import."""

SETTLE_SECONDS = 0.5
"""A signal so soon after another is the same wish."""

_received: list[int] = []
"""Numbers of the signals that asked the process to end."""
_raised: list[float] = []
"""When (on the clock of `time.monotonic`) that became an exception."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def hold() -> None:
    """Keeps the signals that come while the command line is loaded, for `unwind_on_signals`."""
    _take_over(_keep)


def unwind_on_signals() -> None:
    """Takes over SIGTERM, and SIGINT where it is not ignored; does nothing outside the main thread.

    Raises:
        KeyboardInterrupt: SIGINT came already.
        Terminated: SIGTERM came already.
    """
    _raised.clear()
    if signal.getsignal(signal.SIGTERM) is not _keep:
        _received.clear()
    _take_over(_on_signal)
    raise_received()


def ignore() -> None:
    """Lets nothing come between the last things that a process does."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)


def forget() -> None:
    """Drops the signals that came while they were blocked."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.signal(number, signal.SIG_IGN))


def _take_over(handler: Callable[[int, FrameType | None], None]) -> None:
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, handler)
        # A shell starts what it runs in the background with SIGINT ignored; that is left so.
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _keep):
            signal.signal(signal.SIGINT, handler)
        # Whoever ignores it and starts a program has that not hear how its own children end.
        if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _keep(number: int, _: FrameType | None) -> None:
    _received.append(number)
    if len(_received) >= INSIST:
        os._exit(128 + number)


def note(number: int) -> None:
    """Takes a signal for `raise_received`; one that comes soon after it is the same wish, and raises nothing."""
    _received.append(number)
    _raised.append(time.monotonic())


def raise_received() -> None:
    """Raises the interruption that came, if one did.

    Raises:
        KeyboardInterrupt: SIGINT came first.
        Terminated: SIGTERM came first.
    """
    if _received:
        raise_as_received(_received[0])


def raise_as_received(number: int) -> NoReturn:
    """Raises what stands for a signal: KeyboardInterrupt for SIGINT, Terminated for SIGTERM."""
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _on_signal(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    _raise_outside_imports(number, frame)


def _raise_outside_imports(number: int, frame: FrameType | None) -> None:
    """Raises now, or soon: an exception inside the import of a native module can crash the interpreter."""
    # Windows has no timer; there the risk is taken.
    if len(_received) < INSIST and _importing(frame) and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _raise_outside_imports)
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        return
    if not _raised or time.monotonic() - _raised[-1] > SETTLE_SECONDS:
        _raised.append(time.monotonic())
        raise_received()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
