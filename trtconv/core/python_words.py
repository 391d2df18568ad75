"""Hints as they are said in Python: arguments of requests in the place of flags."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trtconv.core.options import Flag, options
from trtconv.core.requests.base import Request

_WORD = r"""(?:'[^']*'|[^\s,;()"'])*(?:'[^']*'|[^\s,;()"'.:])"""
_FLAG = re.compile(rf"(?<![\w-])(--[A-Za-z][A-Za-z-]*)(?:[ =]({_WORD}))?")
_PAIR = re.compile(r"[^=]+=.+")
_REST = re.compile(r"(?:,[^\s,;()\"'.]+)*")
"""What follows the first of several names of axes: `,_,height,width`."""
_CALL = re.compile(r"\btrtconv ([a-z]+)((?: (?:[A-Z]+|[\w/-]*[./][\w./-]*\w))+)(?=[.,;)]*(?:\s|$))(?! --)")
_COMMAND = re.compile(r"\b(?:trtconv|pip|polygraphy|trtexec) [a-z](?:[^.;(]|\.(?=\S))*$")
_VALUE = re.compile(r"auto|[A-Z_.:=]+|[\w./:+-]*\d[\w./:+-]*")
_CALLS = ("build", "check", "verify", "bench", "inspect")
"""Commands whose arguments are the first fields of their requests, and which need no more."""


class _Argument(NamedTuple):
    """A field of a request.

    Args:
        name: Its name, with the class that holds it where that is not the request.
        flag: The flag.
        default: Its value where nothing else is said.
        pairs: Whether it maps names to values.
    """

    name: str
    flag: Flag
    default: object
    pairs: bool

    def of(self, values: list[str]) -> str:
        """Returns the argument with values as the flag has them."""
        if self.flag.takes is bool:
            value: object = self.default is not True
        elif self.pairs:
            parts = [value.rpartition("=") for value in values]
            value = {name: bound.split(",") if "," in bound else bound for name, _, bound in parts}
        elif self.flag.takes in (int, float):
            return self._with(values[0])
        else:
            value = values if self.flag.many else values[0]
        return self._with(_double_quoted(value))

    def _with(self, value: str) -> str:
        outer, _, inner = self.name.rpartition(":")
        return f"{outer}({inner}={value})" if outer else f"{inner}={value}"


def _double_quoted(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{name}": {_axes(axes)}' for name, axes in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(f'"{entry}"' for entry in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _axes(value: str | list[str]) -> str:
    """Returns a value of a mapping; several are names of axes, of which _ is none."""
    if isinstance(value, str):
        return f'"{value}"'
    return f"({', '.join('None' if name == '_' else _double_quoted(name) for name in value)})"


@functools.cache
def _arguments(requests: tuple[type, ...]) -> Mapping[str, _Argument]:
    """Returns what each flag is in Python, by the first request that has it."""
    arguments: dict[str, _Argument] = {}
    for kind in requests:
        for flag, argument in _of(kind):
            arguments.setdefault(flag, argument)
    return arguments


def _requests(above: type = Request) -> Iterator[type]:
    """Yields the requests that are loaded: whoever meets a hint in Python has made one of them."""
    subclasses: list[type] = above.__subclasses__()
    for request in subclasses:
        if dataclasses.is_dataclass(request):
            yield request
        yield from _requests(request)


def _of(kind: type, outer: str = "") -> Iterator[tuple[str, _Argument]]:
    for name, setting in options(kind):
        if setting.group is not None:
            yield from _of(setting.group, f"{name}=trtconv.{setting.group.__name__}")
            continue
        pairs = isinstance(setting.default, Mapping)
        for flag in setting.flags[:1]:
            spelled = f"{outer}:{name}"
            for option in flag.names.replace("/", " ").split():
                yield option, _Argument(spelled if outer else name, flag, setting.default, pairs)


def in_python(text: str) -> str:
    """Returns a hint with arguments in the place of flags: `dims={"batch": "1:1:8"}` for `--dim batch=1:1:8`.

    Flags behind a command to be typed in a shell stay, as do those that no request has. A command without any is the
    call that does the same.
    """
    text = _CALL.sub(_called, text)
    arguments = _arguments(tuple(_requests()))
    parts: list[str] = []
    end = 0
    pending: tuple[_Argument, list[str]] | None = None
    for match in _FLAG.finditer(text):
        argument = arguments.get(match[1])
        if argument is None or _COMMAND.search(text, 0, match.start()):
            continue
        length, value = _value(argument, match)
        between = text[end : match.start()]
        if pending is not None and pending[0] is argument and not between.strip() and value:
            pending[1].append(value)
        else:
            parts += [_argument_text(pending), between]
            pending = argument, [value] if value else []
        end = match.start() + length
    return "".join([*parts, _argument_text(pending), text[end:]])


def _called(match: re.Match[str]) -> str:
    """Returns the call that does what a command without flags does; the command itself where there is none."""
    request = next((kind for kind in _requests() if kind.__name__ == f"{match[1].capitalize()}Request"), None)
    words = match[2].split()
    if request is None or match[1] not in _CALLS:
        return match[0]
    strings = ", ".join(f'"{word}"' for word in words)
    return f"trtconv.{match[1]}(trtconv.{request.__name__}({strings}))"


def _value(argument: _Argument, match: re.Match[str]) -> tuple[int, str]:
    """Returns how many letters a flag takes with its value, and that; no value where a word of the sentence follows."""
    alone, value = len(match[1]), match[2] or ""
    if argument.flag.takes is bool or not value:
        return alone, ""
    bare = shlex.split(value)[0] if "'" in value else value
    words = argument.flag.takes if isinstance(argument.flag.takes, tuple) else ()
    if argument.pairs and not _PAIR.fullmatch(bare):
        return alone, ""
    if not argument.pairs and not (value in words or _VALUE.fullmatch(value)):
        return alone, ""
    if not argument.pairs or "'" in value:
        return len(match[0]), bare
    rest = _REST.match(match.string, match.end())
    more = rest[0] if rest else ""
    return len(match[0]) + len(more), bare + more


def _argument_text(argument: tuple[_Argument, list[str]] | None) -> str:
    if argument is None:
        return ""
    if argument[1] or argument[0].flag.takes is bool:
        return argument[0].of(argument[1])
    return argument[0].name.rpartition(":")[2]
