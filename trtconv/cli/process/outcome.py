"""What a command ends with, and the one place where that is written.

A command returns an `Outcome`; only `tell` writes it to stdout. While a command works, whatever else writes to stdout
(a library's print, a native library's printf) is sent to stderr, so that stdout has the result and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from trtconv.cli.process import status
from trtconv.core.errors import TrtconvError
from trtconv.core.text import guarded


class Told(Protocol):
    """A report that a command ends with."""

    @property
    def exit_code(self) -> int:
        """The process's exit status."""
        ...

    def to_json(self) -> dict[str, object]:
        """Returns it as a document."""
        ...


Report = TypeVar("Report", bound=Told)


class Outcome(NamedTuple):
    """What a command ends with.

    Args:
        text: What goes to stdout, without the last newline.
        exit_code: The process's exit status.
        annotations: Whether lines of the text are annotations for GitHub.
        verdict: What came of it, in a line, for whoever sees nothing of a text that programs read; may be empty.
    """

    text: str
    exit_code: int = 0
    annotations: bool = False
    verdict: str = ""

    @classmethod
    def of(cls, report: Report, output_format: str, text: Callable[[Report], str], verdict: str = "") -> Outcome:
        """Returns what a command ends with that made a report: that as JSON if asked for, else in words."""
        if output_format == "json":
            from trtconv.cli.formats.json import render

            return cls(render(report.to_json()), report.exit_code, verdict=verdict)
        return cls(text(report), report.exit_code, verdict=verdict)


class FailedWithResult(Exception):
    """A command failed, and has a result all the same.

    Args:
        text: What goes to stdout.
        cause: What happened.
        annotations: Whether lines of the text are annotations for GitHub.
    """

    def __init__(self, text: str, cause: TrtconvError, annotations: bool = False) -> None:
        super().__init__(str(cause))
        self.annotations = annotations
        self.text = text
        self.cause = cause


class OutputLost(Exception):
    """Stdout cannot be written, for another reason than a reader that went away."""


def tell(outcome: Outcome, command: str, output_format: str) -> None:
    """Writes what a command ends with.

    Args:
        outcome: That.
        command: The command's name.
        output_format: What `--format` asked for.

    Raises:
        OutputLost: As `write_result`.
    """
    write_result(outcome.text, outcome.annotations)
    if outcome.exit_code and output_format != "text":
        from trtconv.cli.process.terminal import say_error

        # The document goes to a file or a program: a log of CI would not say why the job ends here.
        say_error(outcome.verdict or f"trtconv {command} ends with {outcome.exit_code}; its document says why")


def write_result(text: str, annotations: bool = False) -> None:
    """Writes a result to stdout.

    Args:
        text: The result.
        annotations: Whether lines of it are annotations for GitHub.

    A reader that went away (`| head`) has seen what it wanted: the exit status stays that of the work.

    Raises:
        OutputLost: For a full disk, for example; or stdout is closed.
    """
    if sys.stdout is None:
        raise OutputLost("cannot write to stdout: it is closed")
    from trtconv.cli.process.terminal import dressed

    status.announce(status.RESULT)
    try:
        with stdout_failures_named():
            # Not click.echo: it would write UTF-8 where the locale says ASCII.
            sys.stdout.write(dressed(guarded(text, annotations), sys.stdout) + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()


@contextlib.contextmanager
def stdout_failures_named() -> Iterator[None]:
    """Turns the failure of a write to stdout into `OutputLost`; a reader that went away stays `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise OutputLost(f"cannot write to stdout: {error.strerror or error}") from error


def drop_stdout() -> None:
    """Sends what is still buffered for stdout to nowhere, so that Python's own flush at exit does not fail."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Sends everything that is written to stdout meanwhile to stderr, by Python or by native code."""
    with contextlib.ExitStack() as stack:
        try:
            saved = os.dup(1)
            os.dup2(2, 1)
        except OSError:
            # Stdout or stderr is closed: there is nothing to keep clean, or nowhere to send it.
            pass
        else:
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield
