"""An event loop that Ctrl-C and SIGTERM end in good order: what it runs is cancelled, not interrupted midway."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any

from trtconv.cli.process import signals


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs until `main` ends, or a signal has it cancelled.

    An exception raised by a signal would come up in whichever task has its turn, and end that one as an error of its
    own would: whom it talks with would never hear why.

    Raises:
        KeyboardInterrupt: SIGINT came.
        Terminated: SIGTERM came.
    """
    try:
        asyncio.run(_cancelled_by_signals(main))
    except asyncio.CancelledError:
        signals.raise_received()
        raise


async def _cancelled_by_signals(main: Coroutine[Any, Any, None]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)

    def cancel(number: int, _: FrameType | None) -> None:
        # Whoever insists ends the ending too.
        restore()
        signals.note(number)
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, cancel)
    try:
        await task
    finally:
        restore()
