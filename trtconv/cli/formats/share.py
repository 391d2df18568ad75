"""What a person reads of `trtconv share`."""

from __future__ import annotations

from trtconv.core.documents.share import ShareReport
from trtconv.core.text import clean, indented, leading


def share_text(report: ShareReport) -> str:
    """Renders a report; the last lines are the commands that show the failure."""
    failure = report.failure
    place = f" {failure.op}" * bool(failure.op) + f' "{failure.node}"' * bool(failure.node)
    state = "" if report.minimal else "; --trials ended the search: more may make it smaller"
    checks, commands = report.checks, report.commands
    lines = [
        f"{leading(str(report.model.path))} fails, and its part alike:",
        f"  {clean(f'{failure.code} {failure.name}{place}')}",
        *indented(failure.message, "    "),
        f"wrote {clean(report.output.path)}: {report.nodes} of {report.nodes_before} nodes,"
        f" {report.output.bytes:,} bytes, other names, other weights ({report.trials} parts tried){state}",
        f"wrote {clean(report.page)}: how it fails, what is left of the model, a text for an issue",
        f"none of the model's {checks.names:,} names and {checks.weight_bytes:,} bytes of weights is in them",
        "",
        *(clean(command) for command in (commands.tool, commands.polygraphy, commands.own) if command),
    ]
    return "\n".join(lines)
