"""`trtconv passes`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome


@click.command(
    "passes",
    cls=Command,
    short_help="List the rewrites that build and rewrite apply.",
    epilog="""\b
Examples:
  trtconv passes
  trtconv passes --format json | jq -r '.passes[].name'
""",
)
@options.format_option("text", "json")
@options.quiet_anyway
def command(output_format: str) -> Outcome:
    """List the rewrites that build and rewrite apply.

    In the order in which they run: the name, how it keeps the numbers (exact, or within tolerance), the rules whose
    findings it mends, and what it does. 'trtconv rewrite --only NAME' runs one by itself.
    """
    from trtconv.passes import PASSES

    if output_format == "json":
        from trtconv.cli.formats.json import render
        from trtconv.core.encode import SCHEMA

        passes = [
            {
                "name": each.name,
                "fixes": list(each.fixes),
                "safety": each.safety,
                "on_request": each.on_request,
                "summary": each.summary,
            }
            for each in PASSES
        ]
        return Outcome(render({"schema": SCHEMA, "passes": passes, "exit_code": 0}))
    blocks = []
    for each in PASSES:
        fixes = f", mends {', '.join(each.fixes)}" if each.fixes else ""
        asked = ", on request" if each.on_request else ""
        blocks.append(f"{each.name} ({each.safety}{fixes}{asked})\n  {each.summary}")
    return Outcome("\n".join(blocks))
