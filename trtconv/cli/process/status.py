"""What an isolated command tells the process that watches it: one line a message, through a pipe.

Outside an isolated command there is nobody to tell, and telling costs nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal

STAGE, PHASE, LOG, OUTPUT, RESULT, DONE = "stage", "phase", "log", "output", "result", "done"
"""Where it is, where in that, what TensorRT logged, a file that it will write, that it writes its result,
and its exit status when nothing is left to do."""

_pipe: int | None = None


def report_to(pipe: int) -> None:
    """Sends what is announced from here on into a pipe."""
    global _pipe
    _pipe = pipe


def is_watched() -> bool:
    """Whether somebody is told."""
    return _pipe is not None


def finish(code: int) -> None:
    """Tells that nothing is left to do but to end with a status; who watches then no longer waits."""
    if _pipe is not None:
        # With the end of who watches, SIGTERM comes.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        announce(DONE, str(code))


def announce(kind: str, text: str = "") -> None:
    """Tells one thing.

    Args:
        kind: One of the constants of this module.
        text: Its value.
    """
    if _pipe is None:
        return
    line = f"{kind} {json.dumps(text)}\n"
    # Who no longer listens need not be told.
    with contextlib.suppress(OSError):
        os.write(_pipe, line.encode())
