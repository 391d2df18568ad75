"""What a person reads of `trtconv reduce`."""

from __future__ import annotations

from trtconv.core.documents.reduce import ReduceReport
from trtconv.core.text import clean, indented, leading


def reduce_text(report: ReduceReport) -> str:
    """Renders a report; the last line is the command that shows the failure."""
    failure = report.failure
    place = f" {failure.op}" * bool(failure.op) + f' "{failure.node}"' * bool(failure.node)
    state = "no node of it can be left out" if report.minimal else "--trials ended the search: more may do it"
    lines = [
        f"{leading(str(report.model.path))} fails: {clean(f'{failure.code} {failure.name}{place}')}",
        *indented(failure.message, "    "),
        f"wrote {clean(str(report.output.path))}:"
        f" {report.nodes} of {report.nodes_before} nodes fail the same way; {state}"
        f" ({report.trials} parts tried)",
        "",
        clean(report.command),
    ]
    return "\n".join(lines)
