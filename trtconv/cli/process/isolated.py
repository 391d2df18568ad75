"""Commands that call TensorRT run in a child process: what kills it leaves a message, a log and a way to repeat it.

The child is a fork, made before anything heavy is imported and before there is a thread, so that it costs a millisecond
and not a second start of Python. The parent waits. It passes signals on, shows what native code writes to stderr and
keeps the end of it; where the child is killed it removes what was half written and leaves a reproduction.

Where a process cannot be forked safely (Windows, macOS) commands run in the calling process, unwatched.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import click

from trtconv.cli.process import ahead, child, signals, status
from trtconv.cli.process.command import Command, Isolation
from trtconv.cli.process.outcome import Outcome
from trtconv.core import budget

_LATER = "trtconv.isolated_later"
"""Key in a call's `meta`: a child is made once the command says so."""


class IsolatedCommand(Command):
    """A command whose work is done in a child process.

    Args:
        alone: Whether these parameters are of a call that works in its own process, as usual; others start processes
            anyway.
        hands_over: Whether the command says itself when its work begins, by `hand_over` or `isolate`.
    """

    def __init__(
        self,
        *args: Any,
        alone: Callable[[dict[str, Any]], bool] = lambda _: True,
        hands_over: bool = False,
        **extra: Any,
    ) -> None:
        super().__init__(*args, **extra)
        self._alone = alone
        self._hands_over = hands_over

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, in a child unless it says itself when one is to be made."""
        if not self._alone(ctx.params):
            ahead.dismiss()
        elif self._hands_over and ahead.is_there():
            ctx.meta[_LATER] = True
        else:
            _isolate(ctx)
        return super().invoke(ctx)


def hand_over(work: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Has the child that was forked ahead do a command's work, and ends as that does; does it here where none was.

    Args:
        work: A function of a module.
        arguments: Its arguments, which can be pickled.
    """
    if ahead.is_there():
        ctx = click.get_current_context()
        output_format, limits = ctx.params.get("output_format", "text"), budget.current()
        errand = ahead.Errand(work, arguments, ctx.info_name or "", output_format, limits)
        _watch(ctx, lambda: ahead.hand_over(errand))
        # It was gone.
        isolate()
    return work(*arguments)


def isolate() -> None:
    """Forks for work that is not handed over, where that was left to the command: the child goes on, the parent watches
    it and ends as it does."""
    ctx = click.get_current_context()
    if ctx.meta.pop(_LATER, False):
        _isolate(ctx)


def _isolate(ctx: click.Context) -> None:
    """Forks, unless this process works in a child already or is not one of its own."""
    if ctx.find_object(Isolation) is not None and child.CAN_FORK and not status.is_watched():
        ahead.dismiss()
        _watch(ctx, child.fork)


def _watch(ctx: click.Context, make: Callable[[], child.Forked | None]) -> None:
    """Watches a child, and ends as it does; returns in the child, or where there is none.

    Args:
        ctx: The call.
        make: Returns the child.
    """
    isolation = ctx.find_object(Isolation)
    # What came during an import would come again, to one of two processes.
    signals.raise_received()
    # Signals wait until it is decided who handles them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    forked = make()
    if forked is None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    from trtconv.cli.process.watching import watch

    ctx.exit(watch(forked, mask, isolation.arguments if isolation else [], ctx.params))
