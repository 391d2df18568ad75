"""The command classes: how arguments are read, help pages written, and what a command returns told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trtconv.cli.process.outcome import Outcome, stdout_failures_named, stdout_kept_clean, tell

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
        tell(outcome, self.name or "", ctx.params.get("output_format", "text"))
        ctx.exit(outcome.exit_code)


def _write_whole_page(ctx: click.Context, option: click.Parameter, is_set: bool) -> None:
    """Writes the page with all options, and ends the command."""
    if is_set and not ctx.resilient_parsing:
        ctx.meta[WHOLE_PAGE] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
