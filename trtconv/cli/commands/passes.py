"""`trtconv passes`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError

if TYPE_CHECKING:
    from trtconv.passes import Pass

_LIST = "'trtconv passes' lists them all."


@click.command(
    "passes",
    cls=Command,
    epilog="""\b
Examples:
  trtconv passes
  trtconv passes make-deconv-explicit
  trtconv passes --format json | jq -r '.passes[].name'
""",
)
@click.argument("name", required=False, metavar="[NAME]")
@options.format_option("text", "json")
@options.quiet_anyway
def command(name: str | None, output_format: str) -> Outcome:
    """List the rewrites that build and rewrite apply, or explain one.

    In the order in which they run: the name, how it keeps the numbers (exact, or within tolerance), the rules whose
    findings it mends, and what it does. With NAME, the page of one, with a model before and after it. 'trtconv rewrite
    --only NAME' runs one by itself.
    """
    from trtconv.passes import PASSES

    passes = list(PASSES) if name is None else [_find(PASSES, name)]
    if output_format == "json":
        from trtconv.cli.formats.json import render
        from trtconv.core.documents.commands import PassEntry, PassList

        entries = (
            PassEntry(pass_.name, tuple(pass_.fixes), pass_.safety, pass_.on_request, pass_.summary, pass_.page)
            for pass_ in passes
        )
        return Outcome(render(PassList(tuple(entries)).to_json()))
    from trtconv.cli.formats.pages import pass_facts

    if name is not None:
        return Outcome(f"{passes[0].name} ({pass_facts(passes[0])})\n\n{passes[0].page}")
    return Outcome("\n".join(f"{pass_.name} ({pass_facts(pass_)})\n  {pass_.summary}" for pass_ in passes))


def _find(passes: tuple[Pass, ...], name: str) -> Pass:
    """Returns the pass of a name.

    Raises:
        InputError: There is none; suggests near ones.
    """
    for pass_ in passes:
        if name.lower() == pass_.name:
            return pass_
    near = difflib.get_close_matches(name.lower(), [pass_.name for pass_ in passes])
    raise InputError(f"there is no pass {name!r}", f"Did you mean {' or '.join(near)}?" if near else _LIST)
