"""The pages of rules and passes as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trtconv.core.pages import sections as sections

if TYPE_CHECKING:
    from trtconv.passes import Pass
    from trtconv.rules import Page


_LITERAL_SECTIONS = ("Before", "After", "Dims")
"""First words of the sections that hold a model in ONNX's text format, or flags."""


def markdown(rule: Page) -> str:
    """Returns a rule's page as Markdown."""
    return _markdown(f"{rule.code} {rule.name}", rule.page)


def pass_markdown(pass_: Pass) -> str:
    """Returns the page of a pass as Markdown."""
    return _markdown(pass_.name, pass_.page, pass_facts(pass_))


def pass_facts(pass_: Pass) -> str:
    """Returns in words what `trtconv passes` says of a pass beside its summary: "exact, mends TC101"."""
    fixes = f", mends {', '.join(pass_.fixes)}" if pass_.fixes else ""
    return f"{pass_.safety}{fixes}{', on request' if pass_.on_request else ''}"


def _markdown(title: str, page: str, facts: str = "") -> str:
    summary = page.partition("\n")[0]
    blocks = [f"# {title}", summary, *([f"It is {facts}."] if facts else [])]
    for heading, text in sections(page):
        if heading:
            blocks.append(f"## {heading}")
        blocks.append(f"```text\n{text}\n```" if heading and heading.split()[0] in _LITERAL_SECTIONS else text)
    return "\n\n".join(blocks) + "\n"


def pass_index(passes: Iterable[Pass]) -> str:
    """Returns the table of all passes as Markdown."""
    head = [
        "# Passes",
        "",
        "The rewrites that `trtconv build` and `trtconv rewrite` apply, in the order in which they run.",
        "`trtconv passes NAME` shows the same pages.",
        "",
        "| pass | mends | what it does |",
        "|---|---|---|",
    ]
    rows = [
        f"| [{pass_.name}]({pass_.name}.md) | {', '.join(pass_.fixes)} | {pass_.summary.replace('|', chr(92) + '|')} |"
        for pass_ in passes
    ]
    return "\n".join([*head, *rows]) + "\n"


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
