"""One declaration of an option: a field of a request whose default is an `Option`.

The flag with its help and validation, the default, the key of trtconv.toml with its schema and, in a class whose
settings are reported, the entry of the report are all made of it. docs/extending.md shows how to add one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from trtconv.core.encode import plain
from trtconv.core.errors import InputError
from trtconv.core.suggest import TYPES, did_you_mean
from trtconv.core.typed import wording

Request = TypeVar("Request")
Schema = Mapping[str, Any]
"""A JSON schema."""


class Flag(NamedTuple):
    """One flag of the command line.

    Args:
        names: As they are written: "--force", "-o --output", "--tf32/--no-tf32".
        help: Its text on the help page.
        metavar: What stands for its value there.
        takes: bool: it is given or not; str, int or float: a value; a tuple: one of these words.
        many: Whether it may be given several times; what is read is then a tuple.
        absent: What is read where it is not given; shown on the help page where it says something.
        least: Smallest number.
        most: Largest number.
        above: Number that it must be above.
    """

    names: str
    help: str
    metavar: str | None = None
    takes: type | tuple[str, ...] = str
    many: bool = False
    absent: Any = None
    least: Any = None
    most: Any = None
    above: Any = None

    @property
    def option(self) -> str:
        """How it is written in full: "--output" for "-o --output"."""
        return self.names.split()[-1].partition("/")[0]

    def admits(self, number: float) -> bool:
        """Returns whether a number is in its range; NaN is in none."""
        low = self.least is None or number >= self.least
        high = self.most is None or number <= self.most
        return number == number and low and high and (self.above is None or number > self.above)

    @property
    def span(self) -> str:
        """Its range in words."""
        if self.least is not None and self.most is not None:
            return f"{self.least} to {self.most}"
        bounds = {"above": self.above, "at least": self.least, "at most": self.most}
        return " and ".join(f"{word} {bound}" for word, bound in bounds.items() if bound is not None) or "a number"

    @property
    def name(self) -> str:
        """What the value is called: "cast_io" for "--cast-io"."""
        return self.option.lstrip("-").replace("-", "_")


class Requirement(NamedTuple):
    """What an option has no effect without: an error where a user asks for both, and nothing where it is inherited.

    Args:
        flags: Names of the flags that decide whether it has one.
        holds: Whether a request has what the option needs.
        why: What is wrong where it has not; {flag} is the option's, {precision} what the request has.
        fix: What to do then; {key} is the option's key in trtconv.toml.
    """

    flags: frozenset[str]
    holds: Callable[[Any], bool]
    why: str
    fix: str


class Option(NamedTuple):
    """What a field of a request is on the command line and in trtconv.toml.

    Args:
        default: The field's value where nothing says otherwise.
        flags: The flags that it is made of; none where the command line cannot say it.
        read: Makes the field's value of the flags' values; called where one of them is given.
        write: Makes the values of the first flag of the field's value, to repeat a call; default: its text.
        settings: Keys of trtconv.toml that it is made of, with their JSON schemas.
        load: Makes the field's value of the settings' values, None for one that is left out; called where one is
            there. The schema has been checked.
        group: A class whose fields are options; the only setting, if any, is the table that has theirs.
        save: Makes the settings' values of the field's value, as `load` reads them; default: the value itself, which
            is the only setting's.
        requires: What it has no effect without.
        reads: What the file that it names is to the command, as in "the samples"; empty: it names none, or one that is
            written.
        writes: Whether it names a file that is written.
    """

    default: Any
    flags: tuple[Flag, ...] = ()
    read: Callable[..., Any] | None = None
    write: Callable[[Any], list[str]] | None = None
    settings: Mapping[str, Mapping[str, Any]] = {}
    load: Callable[..., Any] | None = None
    group: type | None = None
    save: Callable[[Any], tuple[Any, ...]] | None = None
    requires: Requirement | None = None
    reads: str = ""
    writes: bool = False

    def defaulting(self, default: Any) -> Option:
        """Returns the same option, which is one flag, with another default."""
        return self._replace(default=default, flags=(self.flags[0]._replace(absent=default),))

    def of_flags(self, values: Mapping[str, Any]) -> Any:
        """Returns the field's value.

        Args:
            values: Name of every flag to its value.
        """
        if self.group is not None:
            return self.group(**of_flags(self.group, values))
        arguments = [values[flag.name] for flag in self.flags]
        if arguments == [flag.absent for flag in self.flags]:
            return self.default
        if self.read is not None:
            return self.read(*arguments)
        return False if self.default is True else arguments[0]

    def of_settings(self, table: Mapping[str, Any]) -> Any:
        """Returns the field's value; one of `settings` must be in the table."""
        arguments: list[Any] = [table.get(key) for key in self.settings]
        if self.group is not None:
            return self.group(**of_settings(self.group, arguments[0]))
        return arguments[0] if self.load is None else self.load(*arguments)


def option(names: str, help: str, *, default: Any, key: str = "", about: str = "", **extra: Any) -> Any:
    """Declares an option that is one flag and, where it has a key, one setting.

    Args:
        names: The flag, as in `Flag`; that of a field that is true by default switches it off ("--no-rewrite").
        help: Its text on the help page.
        default: The field's value where nothing says otherwise.
        key: The setting's name in trtconv.toml; empty: it is none.
        about: The setting's description.
        extra: More of `Flag` and `Option`; `schema` is the setting's schema where `takes` does not say it, and `read`
            serves as `load` too where a setting is text.
    """
    many = bool(extra.pop("many", False))
    kind = bool if isinstance(default, bool) or "/" in names else str
    flag_only = {name: extra.pop(name) for name in Flag._fields if name in extra}
    flag_only.setdefault("takes", kind)
    flag_only.setdefault("absent", () if many else _absent(default, flag_only["takes"]))
    flag = Flag(names, help, many=many, **flag_only)
    schema = {**extra.pop("schema", _schema(flag)), **({"description": about} if about else {})}
    return Option(default, (flag,), settings={key: schema} if key else {}, **extra)


def group(of: type, key: str = "", about: str = "") -> Any:
    """Declares a field that is an object whose fields are options, with the table of their settings."""
    table = {"type": "object", "description": about, "properties": schemas(of), "additionalProperties": False}
    return Option(of(), settings={key: table} if key else {}, group=of)


def options(kind: type) -> tuple[tuple[str, Option], ...]:
    """Returns the options of a class with the names of their fields: its own, then those of the classes above it."""
    # Asked a dozen times for every request, of which there may be thousands.
    result = _OPTIONS.get(kind)
    if result is not None:
        return result
    inherited = {name for above in kind.__mro__[1:] for name in getattr(above, "__dataclass_fields__", ())}
    declared = [(f.name, f.metadata["option"]) for f in dataclasses.fields(kind) if "option" in f.metadata]
    return _OPTIONS.setdefault(kind, tuple(sorted(declared, key=lambda pair: pair[0] in inherited)))


_OPTIONS: dict[type, tuple[tuple[str, Option], ...]] = {}


def flags(kind: type) -> Iterator[Flag]:
    """Yields the flags of a class, in the order of the help page."""
    for _, option in options(kind):
        yield from option.flags if option.group is None else flags(option.group)


def schemas(kind: type) -> dict[str, Schema]:
    """Returns the keys of trtconv.toml that say what a class holds, each with its JSON schema."""
    return {key: schema for _, option in options(kind) for key, schema in option.settings.items()}


def of_flags(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that the command line says.

    Args:
        kind: The class whose options they are.
        values: Name of every flag to its value.

    Raises:
        InputError: A value cannot be read.
    """
    return {name: option.of_flags(values) for name, option in options(kind) if option.flags or option.group}


def of_settings(kind: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that a table of trtconv.toml says; one that it leaves out is not among them.

    Raises:
        InputError: A value cannot be read.
    """
    return {name: option.of_settings(table) for name, option in options(kind) if option.settings.keys() & table.keys()}


def to_settings(instance: object, kind: type) -> dict[str, Any]:
    """Returns what `of_settings` reads: the fields that are not as usual, as plain JSON values.

    Args:
        instance: An object that has the options of a class.
        kind: The class.
    """
    table: dict[str, object] = {}
    for name, option in _saved(kind):
        value = getattr(instance, name)
        # Most are the default itself, which is seen at once.
        if value is option.default or value == option.default:
            continue
        if option.group is not None:
            saved: tuple[Any, ...] = (to_settings(value, option.group),)
        else:
            saved = (plain(value),) if option.save is None else option.save(value)
        table |= {key: entry for key, entry in zip(option.settings, saved, strict=True) if entry not in ([], {})}
    return table


@functools.cache
def _saved(kind: type) -> tuple[tuple[str, Option], ...]:
    """Returns the options of a class that trtconv.toml can say."""
    return tuple((name, option) for name, option in options(kind) if option.settings)


def validate(instance: object) -> None:
    """Holds the fields of an object to what their flags take.

    Raises:
        InputError: One is none of the words, or out of the range.
    """
    for name, option in options(type(instance)):
        value = getattr(instance, name)
        # What is read of several flags, or made into something else, its own class checks.
        if len(option.flags) != 1 or value is option.default or (value is None and option.read is not None):
            continue
        flag = option.flags[0]
        is_parsed = option.read is not None and not isinstance(value, str) and isinstance(value, type(option.default))
        if isinstance(flag.takes, tuple) and not is_parsed and not (isinstance(value, str) and value in flag.takes):
            words = ", ".join(flag.takes)
            raise InputError(
                f"{name} of {type(instance).__name__} takes one of {words}, and was given {wording(value)}",
                did_you_mean(str(value), flag.takes, f"Use one of {words}.", synonyms=TYPES),
            )
        # What is read of text (24G) may be given as a number, and has a range where it says one.
        is_bounded = flag.takes in (int, float) if option.read is None else flag.least is not None
        if is_bounded and isinstance(value, (int, float)) and not flag.admits(value):
            raise InputError(f"{flag.option} {value} is not {flag.span}", "Leave it out, or change it.")


def refuse_unmet(request: object) -> None:
    """Refuses options that others leave without effect: one that is ignored is worse than an error.

    Raises:
        InputError: There is one; the message names both.
    """
    for _, requires, option in _unmet(request):
        words = {"flag": option.flags[0].option, "key": next(iter(option.settings), "")}
        precision = getattr(request, "precision", "")
        raise InputError(requires.why.format(**words, precision=precision), requires.fix.format(**words))


def without_unmet(request: Request, inherited: Collection[str], flags: Collection[str] = ()) -> Request:
    """Returns a request without what was said more generally, for other models too, and has no effect here.

    Args:
        request: What is asked.
        inherited: Fields that are defaults of the configuration.
        flags: Names of the flags that the command line has: what the configuration says stands back behind these.
    """
    for name, requires, option in _unmet(request):
        if name not in flags and (name in inherited or not requires.flags.isdisjoint(flags)):
            changed: Any = {name: option.default}
            # What needs this one has no effect either.
            return without_unmet(dataclasses.replace(request, **changed), inherited, flags)  # type: ignore[type-var]
    return request


def _unmet(request: object) -> Iterator[tuple[str, Requirement, Option]]:
    for name, option in options(type(request)):
        if option.requires and getattr(request, name) != option.default and not option.requires.holds(request):
            yield name, option.requires, option


def shared(request: object, kind: type) -> dict[str, Any]:
    """Returns the fields of a request that are options of another class too, to make one of that."""
    return {name: getattr(request, name) for name, _ in options(kind) if hasattr(request, name)}


def reported(instance: object, kind: type) -> dict[str, Any]:
    """Returns what an object has for the settings of a class, each under its key of trtconv.toml, for a report."""
    table: dict[str, object] = {}
    for name, option in options(kind):
        for key in option.settings:
            table[key.replace("-", "_")] = plain(getattr(instance, name))
    return table


def command_line(request: object, kind: type) -> list[str]:
    """Returns the flags that make a request what it is: those of `kind` alone, and of these no default."""
    words: list[str] = []
    for name, option in options(kind):
        value = getattr(request, name, option.default)
        if option.flags and value != option.default:
            flag = option.flags[0]
            texts = [str(value)] if option.write is None else option.write(value)
            words += [flag.option] if flag.takes is bool else [word for text in texts for word in (flag.option, text)]
    return words


def _absent(default: Any, takes: Any) -> Any:
    return False if takes is bool and isinstance(default, bool) else default


def _schema(flag: Flag) -> Schema:
    if isinstance(flag.takes, tuple):
        return {"type": "string", "enum": list(flag.takes)}
    if flag.takes is int and flag.most is not None:
        return {"type": "integer", "minimum": flag.least, "maximum": flag.most}
    return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[flag.takes]}
