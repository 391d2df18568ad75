"""The page's drawings of a rewrite: the nodes before and after, and which input elements the kernel reaches."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from markupsafe import Markup

from trtconv.cli.formats.explain import stamps, window
from trtconv.cli.formats.page.svg import box, drawing, label, line
from trtconv.core.documents.explain import Axis
from trtconv.explainer.changes import DrawnNode

_NODE, _GAP, _LINE, _PAD = 226.0, 26.0, 15.0, 10.0
_CELL, _HEADING = 26.0, 66.0


def graph_drawing(nodes: Sequence[DrawnNode], other: Sequence[DrawnNode], marked: str) -> Markup:
    """Draws nodes from top to bottom, each below those whose tensors it takes.

    Args:
        nodes: In an order in which each comes after those that it takes from.
        other: The nodes of the other side; what is said here and not there is marked.
        marked: The class of what is marked: "gone" or "new".
    """
    labels = {(node.op, note) for node in other for note in node.notes}
    rows = _rows(nodes)
    inputs = _outside(nodes)
    top, parts = 30.0, []
    at: dict[str, tuple[float, float]] = {}
    passed: dict[str, int] = {}
    width = max(len(row) for row in rows) * (_NODE + 14) - 14
    beside = width
    parts += [label(width / 2, 12, _middle(", ".join(inputs), 40) or "no input", "dim", "middle")]
    at |= dict.fromkeys(inputs, (width / 2, 16.0))
    for level, row in enumerate(rows):
        left = (width - len(row) * (_NODE + 14) + 14) / 2
        height = max(_height(node) for node in row)
        for node in row:
            middle = left + _NODE / 2
            for name in dict.fromkeys(name for name in node.inputs if name in at):
                # Boxes stand between: the line goes around them.
                far = level - passed.get(name, -1) > 1
                beside += 12 * far
                parts.append(_edge(at[name], (middle, top), beside if far else None))
            parts += _node(node, left, top, labels, marked)
            at |= {name: (middle, top + _height(node)) for name in node.outputs}
            passed |= dict.fromkeys(node.outputs, level)
            left += _NODE + 14
        top += height + _GAP
    last = nodes[-1]
    parts.append(_edge(at[last.outputs[0]], (at[last.outputs[0]][0], top - 6)))
    parts.append(label(at[last.outputs[0]][0], top + 6, _middle(", ".join(last.outputs), 40), "dim", "middle"))
    return drawing(beside + 4, top + 12, f"{len(nodes)} nodes: {', '.join(node.op for node in nodes)}", parts, "graph")


def _outside(nodes: Sequence[DrawnNode]) -> list[str]:
    results = {name for node in nodes for name in node.outputs}
    return [name for name in dict.fromkeys(name for node in nodes for name in node.inputs) if name not in results]


def _rows(nodes: Sequence[DrawnNode]) -> list[list[DrawnNode]]:
    """Sorts nodes by how many of the others stand above them."""
    depth: dict[str, int] = {}
    rows: list[list[DrawnNode]] = []
    for node in nodes:
        own = max((depth[name] + 1 for name in node.inputs if name in depth), default=0)
        depth |= dict.fromkeys(node.outputs, own)
        rows += [[] for _ in range(own + 1 - len(rows))]
        rows[own].append(node)
    return [row for row in rows if row]


def _height(node: DrawnNode) -> float:
    return _PAD * 2 + _LINE * (1 + bool(node.name) + len(node.notes))


def _node(node: DrawnNode, left: float, top: float, labels: Collection[tuple[str, str]], marked: str) -> list[Markup]:
    parts = [box(left, top, _NODE, _height(node), "node", 6)]
    y = top + _PAD + 11
    parts.append(label(left + _PAD, y, node.op, "strong"))
    if node.name:
        y += _LINE
        parts.append(label(left + _PAD, y, _middle(node.name, 34), "dim"))
    for note in node.notes:
        y += _LINE
        new = (node.op, note) not in labels
        if new:
            parts.append(box(left + 5, y - 11, _NODE - 10, _LINE, f"mark {marked}", 3))
        parts.append(label(left + _PAD, y, _middle(note, 36), "mono"))
    return parts


def _edge(start: tuple[float, float], end: tuple[float, float], beside: float | None = None) -> Markup:
    around = [] if beside is None else [(beside, start[1] + 7), (beside, end[1] - 7)]
    return line([start, *around, end], "edge")


def taps_drawing(axis: Axis) -> Markup:
    """Draws one axis of a transposed convolution: what each input element stamps, how many products meet in each
    element of the full result, and which of these are returned. Empty where that would be too wide.
    """
    if axis.sample is None:
        return Markup("")
    rows = [*stamps(axis, axis.sample), *window(axis, axis.sample)]
    columns = max(len(cells) for _, cells in rows)
    most = max(axis.sample.taps)
    parts = []
    for number, (name, cells) in enumerate(rows):
        y = number * _CELL
        parts.append(label(_HEADING - 8, y + 17, name, "dim", "end"))
        for column, cell in enumerate(cells):
            if cell:
                x = _HEADING + column * _CELL
                kind = _kind(name, cell, most)
                parts.append(box(x + 1, y + 1, _CELL - 2, _CELL - 2, f"cell {kind}", 3))
                parts.append(label(x + _CELL / 2, y + 17, cell, "", "middle"))
    return drawing(_HEADING + columns * _CELL, len(rows) * _CELL, "which input elements meet where", parts, "taps")


def _kind(row: str, cell: str, most: int) -> str:
    if row == "taps":
        # Unequal numbers are what a checkerboard comes of.
        return "none" if cell == "0" else f"t{min(4, max(1, round(4 * int(cell) / max(most, 1))))}"
    if row == "out":
        return "cut" if cell == "x" else "added" if cell.startswith("+") else "kept"
    if row == "input":
        return "zero" if cell == "." else "element"
    return "plain" if row == "full" else "stamp"


def _middle(text: str, length: int) -> str:
    """Shortens a text in its middle: the ends of a node's name say most."""
    if len(text) <= length:
        return text
    half = (length - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
