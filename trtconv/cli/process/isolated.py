"""Commands that call TensorRT run in a child process: what kills it leaves a message, a log and a way to repeat it.

The child is a fork, made before anything heavy is imported and before there is a thread, so that it costs a millisecond
and not a second start of Python. The parent waits. It passes signals on, shows what native code writes to stderr and
keeps the end of it; where the child is killed it removes what was half written and leaves a reproduction.

Where a process cannot be forked safely (Windows, macOS) commands run in the calling process, unwatched.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtconv.cli.process import signals, status
from trtconv.cli.process.outcome import Command, Isolation
from trtconv.cli.progress import show_progress
from trtconv.core.forking import die_with
from trtconv.core.progress import Progress

if TYPE_CHECKING:
    from trtconv.cli.process.watching import Child
    from trtconv.core.requests.build import BuildRequest

CAN_FORK = sys.platform == "linux"


class IsolatedCommand(Command):
    """A command whose work is done in a child process.

    Args:
        alone: Whether these parameters are of a call that works in its own process, as usual; others start processes
            anyway.
    """

    def __init__(self, *args: Any, alone: Callable[[dict[str, Any]], bool] = lambda _: True, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self._alone = alone

    def invoke(self, ctx: click.Context) -> Any:
        """Forks; the child goes on with the command, the parent watches it and ends as it does."""
        isolation = ctx.find_object(Isolation)
        if isolation is None or not CAN_FORK or not self._alone(ctx.params):
            return super().invoke(ctx)
        # What came during an import would come again, to one of two processes.
        signals.raise_received()
        # Signals wait until it is decided who handles them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        child = _fork()
        if child is None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return super().invoke(ctx)
        from trtconv.cli.process.watching import watch

        return ctx.exit(watch(child, mask, isolation.arguments, ctx.params))


@contextlib.contextmanager
def at_work(quiet: bool, *outputs: Path, before: Path | None = None) -> Iterator[Progress]:
    """Has TensorRT serve this process alone, and shows progress while the block runs.

    Args:
        quiet: Show nothing.
        outputs: What will be written; who watches removes what is half written of it.
        before: The report of the same work done before, which tells how long its stages took; None, or no file, where
            there is none.
    """
    _own_tensorrt()
    for path in outputs:
        status.announce(status.OUTPUT, str(path.absolute()))
    with show_progress(quiet, _seconds_before(before)) as progress:
        yield progress


def start_early(task: str) -> None:
    """Starts the process of a task as `core.process.start_early`: as a fork of this one, where that works alone."""
    from trtconv.core import process

    process.start_early(task, fork=status.is_watched())


def build_early(request: BuildRequest) -> contextlib.AbstractContextManager[None]:
    """Has what a request asks for parsed and built beside the block, where this process ends with its command."""
    if not status.is_watched():
        return contextlib.nullcontext()
    from trtconv.runtimes.tensorrt.early.runtime import begun

    return begun(request)


def _seconds_before(report: Path | None) -> Mapping[str, float]:
    """Returns what the stages of the last build took; nothing where that is not known."""
    if report is None or not report.is_file():
        return {}
    # Loaded only here: other commands read no reports.
    from trtconv.core.documents.saved import load_report
    from trtconv.core.errors import InputError

    with contextlib.suppress(OSError, InputError):
        return load_report(report).report.seconds
    return {}


def _own_tensorrt() -> None:
    """Has TensorRT serve a process that does nothing else, where it is one: what it logs is told to who watches."""
    if status.is_watched():
        from trtconv.runtimes import tensorrt

        tensorrt.follow_log(lambda severity, text: status.announce(status.LOG, f"[{severity}] {text}"))
        tensorrt.keep_network()


def _fork() -> Child | None:
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
        from trtconv.cli.process.watching import Child

        return Child(pid, status_fd, output)
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
