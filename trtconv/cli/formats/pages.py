"""The pages of rules as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtconv.rules import Page


def sections(page: str) -> list[tuple[str, str]]:
    """Divides a page after its first paragraph.

    Returns:
        Title and text of each section, in order; text before the first title has the title "".
    """
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in page.splitlines()[1:]:
        if line and not line[0].isspace() and line.endswith(":"):
            found.append((line[:-1], []))
        else:
            found[-1][1].append(line)
    texts = [(title, textwrap.dedent("\n".join(lines)).strip()) for title, lines in found]
    return [(title, text) for title, text in texts if text]


_LITERAL_SECTIONS = ("Before", "After", "Dims")
"""First words of the sections that hold a model in ONNX's text format, or flags."""


def markdown(rule: Page) -> str:
    """Returns a rule's page as Markdown."""
    blocks = [f"# {rule.code} {rule.name}", rule.summary]
    for title, text in sections(rule.page):
        if title:
            blocks.append(f"## {title}")
        blocks.append(f"```text\n{text}\n```" if title.split()[0] in _LITERAL_SECTIONS else text)
    return "\n\n".join(blocks) + "\n"


def index(rules: Iterable[Page]) -> str:
    """Returns the table of all rules as Markdown."""
    rows = [f"| [{r.code}]({r.code}.md) | {r.name} | {r.summary.replace('|', chr(92) + '|')} |" for r in rules]
    head = [
        "# Rules",
        "",
        "What `trtconv check` looks for. `trtconv rule CODE` shows the same pages. Codes are never reused.",
        "",
        "| code | name | what it means |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"
