"""What a person reads of `trtconv reduce`."""

from __future__ import annotations

from trtconv.cli.formats.wording import clean
from trtconv.core.requests.reduce import ReduceReport


def reduce_text(report: ReduceReport) -> str:
    """Renders a report; the last line is the command that shows the failure."""
    failure = report.failure
    place = f" {failure.op}" * bool(failure.op) + f' "{failure.node}"' * bool(failure.node)
    state = "no node of it can be left out" if report.minimal else "--trials ended the search: more may do it"
    lines = [
        f"{report.model['path']} fails: {failure.code} {failure.name}{place}",
        *(f"    {line}" for line in failure.message.splitlines()),
        f"wrote {report.output['path']}: {report.nodes} of {report.nodes_before} nodes fail the same way; {state}"
        f" ({report.trials} parts tried)",
        "",
        report.command,
    ]
    return "\n".join(clean(line) for line in lines)
