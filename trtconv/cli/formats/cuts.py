"""Where models are cut, as text."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.cli.formats.wording import count, shape_text, table
from trtconv.core.documents.pipeline import CrossingTensor, LeftNode, PlannedCut
from trtconv.core.text import clean

_LISTED = 10


def cut_blocks(cut: PlannedCut, verbose: bool = False) -> list[str]:
    """Returns the blocks of a text about where a model would be cut.

    Args:
        cut: The cut.
        verbose: Whether all nodes that are left are listed.
    """
    if cut.why:
        return [clean(f"no cut: {cut.why}")]
    rows = [
        (str(number), part.kind.value, count(part.nodes, "node"), ", ".join(tensor.name for tensor in part.outputs))
        for number, part in enumerate(cut.parts, 1)
    ]
    blocks = ["\n".join(["build --partition makes", *table(rows, "  ")])]
    if cut.crossings:
        blocks.append(crossings_text(cut.crossings))
    if cut.left:
        blocks.append(left_text(cut.left, verbose))
    if cut.unbounded:
        names = ", ".join(cut.unbounded[:_LISTED])
        blocks.append(clean(f"with bounds (--dim) of one of these, more goes into engines: {names}"))
    return blocks


def crossings_text(crossings: Sequence[CrossingTensor]) -> str:
    """Returns a table of what goes from part to part."""
    rows = [
        (
            tensor.name,
            tensor.dtype,
            "?" if tensor.shape is None else shape_text(tensor.shape),
            f"{tensor.source} -> {tensor.target}",
        )
        for tensor in crossings
    ]
    return "\n".join(["crosses, through the host's memory", *table(rows, "  ")])


def left_text(nodes: Sequence[LeftNode], verbose: bool = False) -> str:
    """Returns the nodes that no engine takes, and why."""
    first = nodes if verbose else nodes[:_LISTED]
    lines = [clean(f'  {node.op} "{node.node}": {node.reason}') for node in first]
    more = len(nodes) - len(first)
    return "\n".join(["left to ONNX Runtime", *lines, *([f"  ... and {more} more (--verbose)"] if more else [])])
