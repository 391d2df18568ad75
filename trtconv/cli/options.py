"""Flags as click takes them: those that the fields of a request declare, and the few that every command has."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click
from click.core import ParameterSource

from trtconv.cli.process.command import Word
from trtconv.cli.process.outcome import Outcome
from trtconv.core.agreement import AGREE
from trtconv.core.errors import InputError
from trtconv.core.options import Flag, Option, flags, of_flags, options

if TYPE_CHECKING:
    from trtconv.engine.farm.code import HeldCode

_SIZES = frozenset(("dims", "profiles", "values", "split"))
"""Fields that are about sizes: where the command line has one of them, it says all."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Request = TypeVar("Request")


class Flags(Generic[Request]):
    """What the command line says of a request.

    Args:
        kind: The request's class.
        values: Name of every flag that its fields declare to its value.
    """

    def __init__(self, kind: Callable[..., Request], values: dict[str, Any]) -> None:
        self._kind = kind
        self.values = values

    @property
    def flags(self) -> frozenset[str]:
        """Names of the flags that the command line has."""
        context = click.get_current_context()
        return frozenset(
            name for name in self.values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        )

    def request(self, **others: Any) -> Request:
        """Returns the request.

        Args:
            others: Fields that are no flags.

        Raises:
            InputError: A value cannot be read.
        """
        return self._kind(**of_flags(self._kind, self.values), **others)  # type: ignore[arg-type]

    def over(self, configured: Request) -> Request:
        """Returns a request of trtconv.toml, with what the command line says in place of what the file does.

        Raises:
            InputError: A value cannot be read.
        """
        changed: dict[str, Any] = {}
        for name, option in options(self._kind):  # type: ignore[arg-type]
            if option.group is not None:
                own = {key: member.of_flags(self.values) for key, member in options(option.group) if self._has(member)}
                changed |= {name: dataclasses.replace(getattr(configured, name), **own)} if own else {}
            elif self._has(option):
                changed[name] = option.of_flags(self.values)
        if changed.keys() & _SIZES:
            changed = {**{name: option.default for name, option in options(self._kind) if name in _SIZES}, **changed}  # type: ignore[arg-type]
        return dataclasses.replace(configured, **changed)  # type: ignore[type-var]

    def _has(self, option: Option) -> bool:
        return not self.flags.isdisjoint(flag.name for flag in option.flags)

    def refuse_single(self, *allowed: str) -> None:
        """Refuses what is about one model where the configuration says it all.

        Args:
            allowed: Names of flags that are about many models too.

        Raises:
            InputError: There is a flag that is about one model.
        """
        excess = self.flags.difference(allowed)
        for parameter in click.get_current_context().command.params:
            if parameter.name in excess:
                raise InputError(
                    f"{parameter.opts[-1]} goes with a MODEL",
                    "Without one, the configuration says it, for all models or each: docs/config.md has the keys.",
                )


def asking(kind: Callable[..., Request]) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Gives a command the flags of a request, and the command `Flags` in their place.

    Args:
        kind: The request's class.
    """
    declared = list(flags(kind))  # type: ignore[arg-type]

    def decorate(command: Callable[..., Outcome]) -> Callable[..., Outcome]:
        @functools.wraps(command)
        def run(*arguments: Any, **values: Any) -> Outcome:
            return command(*arguments, Flags(kind, {flag.name: values.pop(flag.name) for flag in declared}), **values)

        for flag in reversed(declared):
            run = _option(flag)(run)
        return run

    return decorate


def _option(flag: Flag) -> Callable[[Decorated], Decorated]:
    """Returns a flag as click's decorator."""
    kind: dict[str, Any] = {"multiple": flag.many, "metavar": flag.metavar}
    if flag.takes is bool:
        kind["is_flag"] = True
    elif not flag.many:
        kind |= {"type": _type(flag), "show_default": flag.absent is not None}
    if not flag.many:
        kind["default"] = flag.absent
    return click.option(*flag.names.split(), flag.name, help=flag.help, **kind)


def _type(flag: Flag) -> Any:
    if isinstance(flag.takes, tuple):
        return Word(flag.takes)
    if flag.takes is int:
        return click.IntRange(flag.least, flag.most)
    if flag.takes is float:
        low = flag.least if flag.above is None else flag.above
        return FiniteRange(low, flag.most, min_open=flag.above is not None)
    return flag.takes


def agree_option(command: Decorated) -> Decorated:
    """Adds the flag that agrees to code which a configuration names, to a command that is about all of its builds."""
    (flag,) = AGREE.flags
    return _option(flag)(command)


class FiniteRange(click.FloatRange):
    """A number in a range; NaN, which is in every range of click's, and infinities are in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reads the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


model_argument = click.argument("model", metavar="MODEL")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress on stderr.")


def _follow_links(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from trtconv.core import budget

        context.with_resource(budget.allowed(dataclasses.replace(budget.current(), follow_links=True)))


links_option = click.option(
    "--follow-links",
    is_flag=True,
    expose_value=False,
    callback=_follow_links,
    help="Read external data also through links that leave the model's folder.",
)


def for_models(command: Decorated) -> Decorated:
    """Adds the flags of commands that read a model: what it may cost, and where its weights may lie."""
    return resources_option("--budget")(links_option(command))


def resources_option(flag: str) -> Callable[[Decorated], Decorated]:
    """Returns the flag that says what a model may cost, under a name."""

    def enter(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value or flag != "--budget":
            from trtconv.core import budget

            context.with_resource(budget.allowed(dataclasses.replace(budget.current(), flag=flag)))
            if value:
                context.with_resource(budget.allowed(budget.parse(value)))

    return click.option(
        flag,
        metavar="N|NAME=N,...",
        expose_value=False,
        callback=enter,
        help="What a model may cost: N times as much as usual, or limits: nodes, inputs, attributes, weights, tensors, "
        "entries, profiles, elements, candidates, bytes, seconds, megabytes (TC408).",
    )


_CODE = (
    ("--extend", "extend", "FILE.py|NAME", "extension"),
    ("--plugin", "plugins", "LIB", "library of plugins"),
    ("--reference", "references", "FILE.py", "file of references"),
)


def code_options(command: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Gives a command that builds jobs the flags of the code that they may need, and `load_code`, which loads it."""

    @functools.wraps(command)
    def run(
        *arguments: Any, extend: Sequence[str], plugins: Sequence[str], references: Sequence[str], **values: Any
    ) -> Outcome:
        def load_code() -> HeldCode:
            from trtconv.engine.farm.code import HeldCode

            return HeldCode.named(extend, plugins, references)

        return command(*arguments, load_code=load_code, **values)

    for flag, name, metavar, what in reversed(_CODE):
        help = f"Let jobs that name this {what}, by its SHA-256, be built with it. Repeatable."
        run = click.option(flag, name, multiple=True, metavar=metavar, help=help)(run)
    return run


quiet_anyway = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, help="Taken by every command; this one shows no progress."
)


def format_option(*formats: str) -> Callable[[Decorated], Decorated]:
    """Returns the `--format` flag of a command that has these formats; the first is the default."""
    return click.option(
        "--format",
        "output_format",
        type=Word(formats),
        default=formats[0],
        show_default=True,
        help="What stdout gets. Progress and diagnostics go to stderr.",
    )


def many_options(command: Decorated) -> Decorated:
    """Adds the flags of a command that does many models."""
    for decorator in (
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="List every finding, also of a rule that finds many, where the format is text.",
        ),
        quiet_option,
        click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Do so many of several models at a time."),
        click.option(
            "--config",
            metavar="FILE",
            help="The configuration, in place of the nearest trtconv.toml; without MODEL, all models in it.",
        ),
    ):
        command = decorator(command)
    return command
