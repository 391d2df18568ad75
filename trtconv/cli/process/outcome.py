"""What a command ends with, and the command class that writes it.

A command returns an `Outcome`; only `Command` writes to stdout. While a command works, whatever else writes to stdout
(a library's print, a native library's printf) is sent to stderr, so that stdout has the result and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click

from trtconv.cli.process import status
from trtconv.core.errors import TrtconvError
from trtconv.core.text import guarded

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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


class Isolation(NamedTuple):
    """What the console entry puts into click's context: commands that call TensorRT do so in a child process.

    Args:
        arguments: Those of the process; where the child dies they say how to repeat it.
    """

    arguments: list[str]


class Text(click.types.StringParamType):
    """A text that says something: an unset variable of a script, "$MODEL", is no path, and `Path("")` is a folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reads the text."""
        if value == "" and param is not None:
            name = param.opts[-1] if isinstance(param, click.Option) else (param.metavar or "").strip("[].")
            raise EmptyText(name, ctx)
        if (
            isinstance(value, str)
            and value.endswith((os.sep, f"{os.sep}."))
            and param is not None
            and "--output" in param.opts
        ):
            # A path forgets what ends it, and a file of the folder's name would be written.
            raise click.BadParameter(f"{value} names a folder; give the path of a file to write", ctx, param)
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Returns what a shell may complete the text with."""
        from trtconv.cli.complete import values

        return values(ctx, param.name or "", incomplete)


class NotAChoice(click.BadParameter):
    """A word that is not one of those that a parameter takes.

    Args:
        message: What is wrong.
        hint: What may have been meant.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Word(click.Choice):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.2
    """A choice of words that suggests the nearest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the word; raises NotAChoice for another one."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from trtconv.core.suggest import TYPES, did_you_mean

            words = list(map(str, self.choices))
            hint = did_you_mean(str(value), words, f"Use one of {', '.join(words)}.", synonyms=TYPES)
            refusal = NotAChoice(error.message, hint)
            refusal.param, refusal.ctx = param, ctx
            raise refusal from error


class EmptyText(click.UsageError):
    """An argument is there and says nothing.

    Args:
        parameter: Its name on the help page: "--output", "MODEL".
        ctx: The call.
    """

    def __init__(self, parameter: str, ctx: click.Context | None) -> None:
        super().__init__(f"{parameter} is empty", ctx)
        self.hint = f"Give {parameter} a value; a variable of the shell may be unset."


WHOLE_PAGE = "trtconv.whole_page"
"""Key in a call's `meta`: its help page is to have all options."""


class PageWriter(click.Command):
    """A command whose --help and --version pages fail as results do where stdout cannot be written."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parses the arguments; this is when click writes its pages, and the only input or output that happens."""
        with stdout_failures_named():
            return super().make_context(*args, **extra)


class Command(PageWriter):
    """A command that returns an `Outcome`, and takes no empty text."""

    def __init__(self, *args: Any, **extra: Any) -> None:
        super().__init__(*args, **extra)
        # Shells show all of a short help that is set, and cut one that is not.
        self.short_help = (self.help or "").partition("\n")[0]
        for parameter in self.params:
            if parameter.type is click.STRING:
                parameter.type = Text()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the parameters, and the option that lists them all, which `--help` tells of where they are many."""
        from trtconv.cli.help import HELP_ALL, has_two_pages

        params = super().get_params(ctx)
        page = click.Option(
            [HELP_ALL],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            hidden=not has_two_pages(params),
            help="Show all options, in groups, and all examples.",
            callback=_write_whole_page,
        )
        return [*params[:-1], page, params[-1]]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one screen where the options are many, unless all of them are wanted."""
        from trtconv.cli.help import has_two_pages, write_short

        if ctx.meta.get(WHOLE_PAGE) or not has_two_pages(super().get_params(ctx)):
            super().format_help(ctx, formatter)
        else:
            write_short(self, ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options in groups."""
        from trtconv.cli.help import write_options

        write_options(self.get_params(ctx), ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, writes its result and ends with its exit status."""
        with stdout_kept_clean():
            outcome: Outcome = super().invoke(ctx)
        write_result(outcome.text, outcome.annotations)
        if outcome.exit_code and ctx.params.get("output_format", "text") != "text":
            from trtconv.cli.process.terminal import say_error

            # The document goes to a file or a program: a log of CI would not say why the job ends here.
            say_error(outcome.verdict or f"trtconv {self.name} ends with {outcome.exit_code}; its document says why")
        ctx.exit(outcome.exit_code)


def _write_whole_page(ctx: click.Context, option: click.Parameter, is_set: bool) -> None:
    """Writes the page with all options, and ends the command."""
    if is_set and not ctx.resilient_parsing:
        ctx.meta[WHOLE_PAGE] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


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
