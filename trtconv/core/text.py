"""The door through which foreign text goes out: names, paths, operators and messages that a file or a library chose.

A line break in a name would make a line that looks like one of ours; control characters move a terminal's cursor, and
log viewers of CI services run what stands in a log: GitHub a line that begins with `::`, whatever blanks are before
it, Azure and GitHub what follows `##[` or `##vso[` anywhere. So a line of ours is made of `clean` text; what follows a
line break that is not ours is marked by a bar; and everything that leaves the process is `guarded` once more.
"""

from __future__ import annotations

import json
import re

LONGEST = 4000
"""Characters of a line; what is longer is cut in the middle."""
MOST_LINES = 2000
"""Lines of one message."""
BAR = "| "
"""What a further line of a message begins with, so that none begins with foreign text."""
_COMMAND = re.compile(r"#(?=#\w*\[)")
_ORDINARY = re.compile(r"(?!:)[\w./\\+@=,~:\[\]-]+")
_LEADING = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_ANNOTATION = re.compile(r"::(error|warning|notice) (file|title)=")


def clean(text: str) -> str:
    """Returns a text as one line that terminals and logs can show: what is not printable escaped, and not long."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... ({len(text)} characters) ... {text[-LONGEST // 4 :]}"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return _COMMAND.sub(r"\\x23", text) if "##" in text else text


def leading(text: str) -> str:
    """Returns a text to begin a line with: in quotes unless it is made of what file names are mostly made of."""
    plain = clean(text)
    return plain if _ORDINARY.fullmatch(plain) else f'"{plain}"'


def indented(text: str, prefix: str, first: str | None = None) -> list[str]:
    """Returns the lines of a message; those after the first begin with a bar.

    Args:
        text: The message.
        prefix: What every line begins with.
        first: What the first line begins with instead.
    """
    begin, *rest = text.split("\n")
    if len(rest) > MOST_LINES:
        rest = [*rest[:MOST_LINES], f"... and {len(rest) - MOST_LINES} more lines"]
    lines = [(prefix if first is None else first) + clean(begin)]
    return [line.rstrip() for line in (*lines, *(f"{prefix}{BAR}{clean(line)}" for line in rest))]


def guarded(text: str, annotations: bool = False) -> str:
    """Returns what may leave the process, whatever was forgotten before: lines that nothing takes for a command.

    Args:
        text: Lines of ours, with line breaks of ours.
        annotations: Whether lines may be annotations for GitHub, as `annotation` makes them.
    """
    if not text.isascii() or not text.replace("\n", "").isprintable():
        text = "\n".join(map(_visible, text.split("\n")))
    if "##" in text:
        text = _COMMAND.sub(r"\\x23", text)
    if "::" not in text:
        return text
    if not annotations:
        return _LEADING.sub(r"\1\\x3a", text)
    return "\n".join(line if _ANNOTATION.match(line) else _LEADING.sub(r"\1\\x3a", line) for line in text.split("\n"))


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def toml_string(text: str) -> str:
    """Returns a text as a string of TOML, which has JSON's escapes but no surrogates.

    Raises:
        ValueError: It has characters that no TOML file can have: bytes of a name that are not UTF-8.
    """
    text.encode()
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))


def annotation(kind: str, properties: dict[str, str], message: str) -> str:
    """Returns a workflow command of GitHub's, in one line.

    Args:
        kind: "error", "warning" or "notice".
        properties: Such as file, line and title.
        message: Its lines are shown as lines.
    """
    where = ",".join(
        f"{key}={_escaped(clean(value)).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items()
    )
    return f"::{kind} {where}::" + "%0A".join(_escaped(line) for line in indented(message, ""))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
