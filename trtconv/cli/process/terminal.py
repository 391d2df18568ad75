"""How a result looks on a terminal: prose wrapped to its width, and the words in colour that one looks for."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from typing import TextIO

from trtconv.core.text import guarded

_WORDS = (
    (re.compile(r"^(  )(error)(?= [A-Z][A-Z0-9]+\d)", re.MULTILINE), "red"),
    (re.compile(r"^(  )(warning)(?= [A-Z][A-Z0-9]+\d)", re.MULTILINE), "yellow"),
    (re.compile(r"^(  )(info)(?= [A-Z][A-Z0-9]+\d)", re.MULTILINE), "cyan"),
    (re.compile(r"^()(FAILED|cannot|NOT VERIFIED:|THE ENGINE WAS NOT RUN:)(?= )", re.MULTILINE), "red"),
    (re.compile(r"^()(ok|built|verified:)(?= )", re.MULTILINE), "green"),
)
_NARROWEST = 40


def coloured(stream: TextIO) -> bool:
    """Whether colours are wanted: on a terminal, unless NO_COLOR is set; elsewhere where FORCE_COLOR is."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM", "dumb") != "dumb")


def say_error(text: str) -> None:
    """Writes to stderr what is wrong."""
    word = "error:"
    say(text, f"{_bold(word, 'red') if sys.stderr is not None and coloured(sys.stderr) else word} ")


def say(text: str, start: str = "") -> None:
    """Writes a text to stderr, behind a word that may be coloured."""
    # Loaded only here: most commands that work in a process of their own have nothing to say.
    import click

    try:
        # Left alone, click would take colours out where stderr is no terminal.
        click.echo(start + guarded(text), err=True, color=bool(start) or None)
    except (OSError, ValueError):
        # Nobody is listening on stderr; the exit status still tells.
        return


def _bold(word: str, colour: str) -> str:
    import click

    return click.style(word, fg=colour, bold=True)


def dressed(text: str, stream: TextIO) -> str:
    """Returns a result as a stream shows it: as it is, where that is neither a terminal nor to be coloured.

    Args:
        text: Lines that `core.text.guarded` has seen.
        stream: Where they go.
    """
    if stream.isatty():
        width = max(_NARROWEST, shutil.get_terminal_size().columns)
        text = "\n".join(part for line in text.split("\n") for part in _wrapped(line, width))
    if coloured(stream):
        for pattern, colour in _WORDS:
            text = pattern.sub(lambda match, fg=colour: match[1] + _bold(match[2], fg), text)  # type: ignore[misc]
    return text


def _wrapped(line: str, width: int) -> list[str]:
    """Wraps prose; a table, or flags that somebody will copy, are left to the terminal."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    if len(line) <= width or "  " in line[len(indent) :] or " --" in line:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False)
