"""Ctrl-C and SIGTERM: both unwind the stack, so that no half-written file stays."""

from __future__ import annotations

import contextlib
import signal
from types import FrameType
from typing import NoReturn

RETRY_SECONDS = 0.02
INSIST = 3
"""So many signals end the process even in the middle of an import."""

_received: list[int] = []
"""Numbers of the signals that asked the process to end."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def unwind_on_signals() -> None:
    """Takes over SIGTERM, and SIGINT where it is not ignored; does nothing outside the main thread."""
    _received.clear()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, _on_signal)
        # A shell starts what it runs in the background with SIGINT ignored; that is left so.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _on_signal)


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
    raise_received()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
