"""Work that is done beside other work: in a thread, or in a fork of this process where it takes Python's own time."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from trtconv.core.forking import Fork, die_with

T = TypeVar("T")
_POLL_SECONDS = 0.1


class Background(Generic[T]):
    """Work in a thread, under the budget of whoever began it.

    Args:
        work: What is done.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._results: list[T] = []
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        # A thread forgets in the end what it was given, and so what the work refers to.
        self._thread = threading.Thread(target=context.run, args=(self._run, work), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._results.append(work())
        except BaseException as error:  # Nobody hears a thread: `result` tells.
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether it has ended, whatever came of it."""
        return not self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> None:
        """Waits for its end, whatever that is; not longer than so many seconds."""
        self._thread.join(seconds)

    def wait_while(self, goes_on: Callable[[], bool]) -> None:
        """Waits for its end as long as that is wanted."""
        # In short waits, so that Ctrl-C is heard.
        while self._thread.is_alive() and goes_on():
            self._thread.join(_POLL_SECONDS)

    def result(self) -> T:
        """Waits for the result; raises what the work raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]


class Apart(Generic[T]):
    """Work in a fork of this process, which has all that this one has, its budget too; only where `can_fork` says so.

    Args:
        work: What is done; its result must be such as can be pickled.

    Raises:
        OSError: The system has no process more.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        parent = os.getpid()
        # The limits on what a model may ask for, and the code of others that may be loaded.
        context = contextvars.copy_context()

        def tell() -> None:
            # It ends soon, and what it looks at is what the parent has.
            gc.disable()
            die_with(parent, signal.SIGKILL)
            # What fails is done again, and told, by whoever asks for the result.
            with contextlib.suppress(Exception), os.fdopen(os.dup(1), "wb") as answers:
                # Whatever prints in a library is not to lie before the answer.
                os.dup2(2, 1)
                answers.write(pickle.dumps(context.run(work)))

        # The parent may do the same of many models, and wants their memory back.
        self._fork = Fork(tell, sys.path, None, freezes=False)
        self._fork.stdin.close()
        self._result: T | None = None

    def result(self) -> T | None:
        """Waits for the result; None where there is none, whatever the cause."""
        if not self._fork.stdout.closed:
            with self._fork.stdout as answers:
                data = answers.read()
            self._result = pickle.loads(data) if self._fork.wait() == 0 and data else None
        return self._result

    def close(self) -> None:
        """Ends the work, if it still goes on."""
        self._fork.kill()
