"""A child that is forked before the arguments are read: it loads what the work needs while this process loads click.

`build` and `check` of one model hand their work over to it; whatever else turns out to be asked for dismisses it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trtconv.cli.process.outcome import Outcome, stdout_kept_clean, tell

if TYPE_CHECKING:
    from trtconv.cli.process.child import Forked
    from trtconv.core.budget import Budget

_BOTH = ("trtconv.core.requests.build", "trtconv.core.requests.check", "trtconv.core.documents.build")
"""What both processes need, and so is loaded once."""
_NEEDED = {
    "build": (
        "trtconv.cli.commands.alone",
        "trtconv.runtimes.tensorrt.early.runtime",
        "numpy",
        "onnx",
        "trtconv.graph.model",
        "trtconv.passes",
        "trtconv.pipeline.building",
    ),
    "check": (
        "trtconv.cli.commands.alone",
        "numpy",
        "onnx",
        "trtconv.graph.model",
        "trtconv.passes",
        "trtconv.pipeline.checking",
    ),
}
"""Of each command what its work loads, in the order in which it does; between two of them work may come."""
_ELSEWHERE = frozenset(("-h", "--help", "--help-all", "--on", "--partition", "--data"))
"""Flags of calls that do not hand over their work."""
_MODEL = ".onnx"

_child: _Child | None = None


class Errand(NamedTuple):
    """Work that is handed over.

    Args:
        work: A function of a module, which returns what the command ends with.
        arguments: Of the function; all of it can be pickled.
        command: The command's name.
        output_format: What `--format` asked for.
        limits: What the arguments say that a model may ask for.
    """

    work: Callable[..., Outcome]
    arguments: tuple[Any, ...]
    command: str
    output_format: str
    limits: Budget

    def run(self) -> int:
        """Does it, writes the result, and returns the exit status."""
        from trtconv.core import budget

        with budget.allowed(self.limits), stdout_kept_clean():
            outcome = self.work(*self.arguments)
        tell(outcome, self.command, self.output_format)
        return outcome.exit_code


class _Child(NamedTuple):
    """The child.

    Args:
        forked: What is known of it.
        orders: Pipe to it.
    """

    forked: Forked
    orders: int


def begin(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Forks the child where the arguments look as if one model were built or checked.

    Args:
        arguments: Of the command line, not read yet.

    Returns:
        None in this process; in the child, once work has come, what does that and returns the exit status.
    """
    global _child
    if not _is_promising(arguments):
        return None
    # Loaded only here, and below: most commands fork nothing ahead.
    from trtconv.cli.process import child

    # With one processor nothing is won.
    if not child.CAN_FORK or len(os.sched_getaffinity(0)) < 2:
        return None
    for module in _BOTH:
        importlib.import_module(module)
    orders, work = os.pipe()
    try:
        forked = child.fork()
    except OSError:
        # Without a process to be had, the work is done as ever.
        os.close(orders)
        os.close(work)
        return None
    if forked is None:
        os.close(work)
        return _ordered(orders, _NEEDED[arguments[0]])
    os.close(orders)
    _child = _Child(forked, work)
    return None


def _is_promising(arguments: Sequence[str]) -> bool:
    return (
        arguments[:1] in (["build"], ["check"])
        and sum(argument.endswith(_MODEL) for argument in arguments) == 1
        and _ELSEWHERE.isdisjoint(arguments)
        and "_TRTCONV_COMPLETE" not in os.environ
    )


def _ordered(orders: int, modules: Sequence[str]) -> Callable[[], int]:
    """Loads modules until work comes, and returns that; ends the process where none does."""
    import pickle
    import select

    from trtconv.cli.process.loading import load

    for module in modules:
        if select.select([orders], [], [], 0)[0]:
            break
        # Whoever needs it finds out what is wrong with it.
        with contextlib.suppress(Exception):
            load(module)
    with os.fdopen(orders, "rb") as pipe:
        data = pipe.read()
    if not data:
        os._exit(0)
    return lambda: int(pickle.loads(data).run())


def is_there() -> bool:
    """Whether there is a child that waits for work."""
    return _child is not None


def hand_over(errand: Errand) -> Forked | None:
    """Gives the child its work; None where there is no child, or no longer."""
    global _child
    waiting, _child = _child, None
    if waiting is None:
        return None
    import pickle

    try:
        with os.fdopen(waiting.orders, "wb") as pipe:
            pipe.write(pickle.dumps(errand))
    except OSError:
        _end(waiting)
        return None
    return waiting.forked


def dismiss() -> None:
    """Ends the child, if there is one: it gets no work."""
    global _child
    waiting, _child = _child, None
    if waiting is not None:
        os.close(waiting.orders)
        _end(waiting)


def _end(waiting: _Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(waiting.forked.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(waiting.forked.pid, 0)
    for pipe in (waiting.forked.status, waiting.forked.stderr):
        os.close(pipe)
