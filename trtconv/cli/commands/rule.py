"""`trtconv rule`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError

if TYPE_CHECKING:
    from trtconv.rules import Page


@click.command(
    "rule",
    cls=Command,
    epilog="""\b
Examples:
  trtconv rule
  trtconv rule TC101
  trtconv rule TC101 --format json
""",
)
@click.argument("code", required=False, metavar="[CODE]")
@options.format_option("text", "json")
@options.quiet_anyway
def command(code: str | None, output_format: str) -> Outcome:
    """Explain a rule of check, or list them all.

    CODE is a rule's code, such as TC101, or its name. Without it, every rule is listed in one line.
    """
    from trtconv.rules import RULES

    selection = list(RULES) if code is None else [_find(RULES, code)]
    if output_format == "json":
        from trtconv.cli.formats.json import render
        from trtconv.core.documents.commands import RuleEntry, RuleList

        rules = tuple(RuleEntry(rule.code, rule.name, rule.summary, rule.page) for rule in selection)
        return Outcome(render(RuleList(rules).to_json()))
    if code is None:
        return Outcome("\n".join(f"{rule.code}  {rule.name}: {rule.summary}" for rule in selection))
    return Outcome(f"{selection[0].code} {selection[0].name}\n\n{selection[0].page.strip()}")


def _find(rules: tuple[Page, ...], key: str) -> Page:
    """Returns the rule with a code or name.

    Raises:
        InputError: Where there is none; lists near ones.
    """
    for rule in rules:
        if key.upper() == rule.code or key.lower() == rule.name:
            return rule
    codes = difflib.get_close_matches(key.upper(), [rule.code for rule in rules])
    names = difflib.get_close_matches(key.lower(), [rule.name for rule in rules])
    near = [f"{rule.code} ({rule.name})" for rule in rules if rule.code in codes or rule.name in names]
    hint = f"Did you mean {' or '.join(near)}?" if near else "'trtconv rule' lists them all."
    raise InputError(f"there is no rule {key!r}", hint)
