"""The console entry, and the one place where exceptions become exit codes."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from trtconv.cli.process import ahead, signals, status
from trtconv.cli.process.outcome import (
    FailedWithResult,
    OutputLost,
    drop_stdout,
    stdout_failures_named,
    write_result,
)
from trtconv.core.errors import (
    Bug,
    EnvironmentMissing,
    InputError,
    TrtconvError,
    endless_number,
    starved,
    unusable_path,
)
from trtconv.core.text import indented

if TYPE_CHECKING:
    import click

INTERRUPTED = 130
TERMINATED = 143
COLLECT_EVERY = 3_000_000
"""Objects that the process makes between two searches for cycles; Python's own 700 makes large models superlinear."""


def main(args: Sequence[str] | None = None, *, isolated: bool = False) -> int:
    """Runs the command line.

    Args:
        args: Arguments after the program's name; default: those of the process.
        isolated: Commands that call TensorRT do so in a child process; for a process that does nothing else.

    Returns:
        The exit status, as the group's help lists them. After an interruption it does not return but ends the
        process, because a native build that cannot be stopped may still be running in a thread.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    return guarded_work(lambda: _command_line(arguments, isolated), arguments)


def guarded_work(work: Callable[[], int], arguments: list[str]) -> int:
    """Does what a process is for; whatever comes of it becomes an exit status.

    Args:
        work: Returns the exit status where nothing fails.
        arguments: Of the command line.

    Returns:
        As `main`.
    """
    _prepare_streams()
    try:
        signals.unwind_on_signals()
        return _flushed(_status_of(work, arguments))
    except KeyboardInterrupt as error:
        _die(TERMINATED if isinstance(error, signals.Terminated) else INTERRUPTED, arguments)


def run() -> NoReturn:
    """Is the console entry: runs `main` for a process that does nothing else, and ends it.

    Neither collecting cycles while modules load nor taking the interpreter and TensorRT apart at the end helps such a
    process; together they cost a tenth of a small build.
    """
    _open_standard_descriptors()
    gc.set_threshold(COLLECT_EVERY)
    gc.enable()
    # numpy's BLAS, which nothing here multiplies with, starts a thread a core that spins for a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # ONNX Runtime would write a file of its own where temporary files go.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    arguments = sys.argv[1:]
    order = ahead.begin(arguments)
    end_process(main(isolated=True) if order is None else guarded_work(order, arguments))


def end_process(code: int) -> NoReturn:
    """Ends this process with a status, at once."""
    signals.ignore()
    ahead.dismiss()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    status.finish(code)
    os._exit(code)


def _command_line(arguments: list[str], isolated: bool) -> int:
    """Reads the arguments, and runs the command that they name; see `main`."""
    # Loaded only here: a process that was forked ahead has nothing to read.
    import click

    from trtconv.cli.group import cli

    try:
        completion = os.environ.get("_TRTCONV_COMPLETE")
        if completion:
            from trtconv.cli.complete import answer

            return answer(cli, completion)
        from trtconv.cli.process.command import Isolation

        with cli.make_context("trtconv", arguments.copy(), obj=Isolation(arguments) if isolated else None) as context:
            cli.invoke(context)
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code


def _status_of(work: Callable[[], int], arguments: list[str]) -> int:
    """Returns what work comes to; everything but an interruption becomes an exit status."""
    try:
        return work()
    except BrokenPipeError:
        # Only click's own pages (--help, --version) get here: results are written by write_result.
        drop_stdout()
        return 0
    except Exception as error:
        # Native code that is interrupted may make another exception of it.
        signals.raise_received()
        return _report(error, arguments)


def _report(error: Exception, arguments: list[str]) -> int:
    """Tells the user of a failure and returns its exit status."""
    document, annotations = "", False
    if isinstance(error, FailedWithResult):
        document, annotations, error = error.text, error.annotations, error.cause
    as_json = wants_json(arguments)
    usage = _usage_error(error)
    if usage is not None and not as_json and usage.ctx is not None:
        _say(usage.ctx.get_usage() + "\n")
    failure = _blamed(error, arguments) or _as_failure(error)
    kind = type(error).__name__ if failure.exit_code == Bug.exit_code else type(failure).__name__
    _say_failure(failure)
    if as_json or document:
        try:
            write_result(document or error_document(failure, kind), annotations)
        except OutputLost as lost:
            _say_failure(InputError(str(lost)))
    return failure.exit_code


def _usage_error(error: Exception) -> click.UsageError | None:
    """Returns an error of click's about the arguments as that; None for another one."""
    # Where click is not loaded, the error is not one of its.
    click = sys.modules.get("click")
    return error if click is not None and isinstance(error, click.UsageError) else None


class UsageError(InputError):
    """The arguments are not what the command takes."""


def _as_failure(error: Exception) -> TrtconvError:
    """Turns any exception into one that has a message, a hint and an exit code."""
    if isinstance(error, TrtconvError):
        return error
    if (usage := _usage_error(error)) is not None:
        from trtconv.cli.process.suggestions import usage_failure

        return UsageError(*usage_failure(usage))
    if isinstance(error, OutputLost):
        return InputError(str(error), "Free some space, or send stdout elsewhere.")
    if isinstance(error, FileNotFoundError) and not _in_a_folder():
        return InputError("the working directory is gone", "Change to another one.")
    unusable = unusable_path(error) or endless_number(error)
    if unusable is not None:
        return unusable
    if (short := _starved(error)) is not None:
        return short
    if isinstance(error, MemoryError):
        return EnvironmentMissing("out of memory", "Use a machine with more memory, or narrower --dim bounds.")
    from trtconv.cli.process.crash import save_traceback

    summary = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    where = save_traceback(error)
    return Bug(f"internal error: {summary}", f"This is a bug in trtconv. Please report it with {where}")


def _blamed(error: Exception, arguments: list[str]) -> TrtconvError | None:
    """Returns the failure for a file that ONNX's own checker refuses, where work on it ended in no error of ours."""
    ours = (TrtconvError, OutputLost, OSError, MemoryError)
    if isinstance(error, ours) or _usage_error(error) is not None or _starved(error) is not None:
        return None
    from trtconv.cli.process.blame import blamed

    return blamed(arguments)


def _starved(error: Exception) -> EnvironmentMissing | None:
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return EnvironmentMissing(f"the system refuses: {error}", "Raise the limits of this shell (ulimit -a).")
    return starved(error)


def _in_a_folder() -> bool:
    """Whether the working directory still exists; relative paths mean nothing where it does not."""
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        return False
    return True


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--format json` is among the arguments; needed where they could not be parsed."""
    format_ = ""
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--format":
            format_ = arguments[index + 1] if index + 1 < len(arguments) else ""
        elif argument.startswith("--format="):
            format_ = argument.partition("=")[2]
    return format_.lower() == "json"


def error_document(failure: TrtconvError, kind: str) -> str:
    """Returns the JSON document that stands for a failure.

    Args:
        failure: What happened.
        kind: Name of the exception's class.
    """
    from trtconv.cli.formats.json import render
    from trtconv.core.documents.commands import ErrorReport, ErrorText
    from trtconv.core.findings import Finding

    findings = tuple(item for item in getattr(failure, "findings", ()) if isinstance(item, Finding))
    error = ErrorText(kind, failure.message, failure.hint)
    return render(ErrorReport(error, findings, failure.exit_code).to_json())


def _say(text: str) -> None:
    # Loaded only where there is something to say: --help has nothing.
    from trtconv.cli.process.terminal import say

    say(text)


def _say_failure(failure: TrtconvError) -> None:
    from trtconv.cli.process.terminal import say_error

    first, *rest = indented(failure.message, "  ", "")
    say_error("\n".join([first, *rest]))
    findings = getattr(failure, "findings", ())
    if findings:
        from trtconv.cli.formats.text import findings_text
        from trtconv.core.findings import Finding

        _say(findings_text("", [item for item in findings if isinstance(item, Finding)]))
    if failure.hint:
        _say("\n".join(indented(failure.hint, "  ", "hint: ")))


def _open_standard_descriptors() -> None:
    """Puts nothing in the place of closed descriptors: a pipe that took it would get what others write there."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _prepare_streams() -> None:
    """Makes text that the terminal's encoding lacks come out escaped instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _flushed(exit_code: int) -> int:
    """Writes out what is left in stdout's buffer, so that Python's own flush at exit finds nothing to fail on."""
    if sys.stdout is None:
        return exit_code
    try:
        with stdout_failures_named():
            sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OutputLost as lost:
        _say_failure(InputError(str(lost)))
        return exit_code or InputError.exit_code
    return exit_code


def _die(exit_code: int, arguments: Sequence[str]) -> NoReturn:
    """Ends the process at once: a native build that cannot be stopped would keep a usual exit waiting."""
    signals.ignore()
    name = "interrupted" if exit_code == INTERRUPTED else "terminated"
    _say(name)
    if wants_json(arguments):
        failure = TrtconvError(name)
        failure.exit_code = exit_code
        with contextlib.suppress(OutputLost):
            write_result(error_document(failure, name.capitalize()))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(exit_code)
