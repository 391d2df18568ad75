"""A drawing of a whole network: a box a layer with all that is part of it, each below those whose tensors it takes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from markupsafe import Markup

from trtconv.cli.formats.page.svg import path, tag
from trtconv.cli.formats.wording import dims_text
from trtconv.core.documents.layers import LayerTable, TableLayer, TableTensor
from trtconv.core.frozen import frozen

MOST_BOXES = 600
_WIDTH, _HEIGHT, _GAP, _BESIDE = 168, 22, 16, 14
_LETTERS = 26
_FAMILIES = {
    **dict.fromkeys(("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "FULLY_CONNECTED", "EINSUM"), "k0"),
    **dict.fromkeys(("ACTIVATION", "ELEMENTWISE", "UNARY", "SCALE", "SELECT", "CAST", "PARAMETRIC_RELU"), "k1"),
    **dict.fromkeys(("POOLING", "RESIZE", "REDUCE", "GRID_SAMPLE", "TOPK", "NMS"), "k2"),
    **dict.fromkeys(("NORMALIZATION", "SOFTMAX", "LRN", "ATTENTION_INPUT", "ATTENTION_OUTPUT"), "k3"),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), "k5"),
}
"""Kind of layer to the class of its box; others have a plain one."""


@frozen
class Box:
    """A layer, and those that are part of it.

    Args:
        layers: Positions of the layers; the first is the one that the others are part of.
    """

    layers: tuple[int, ...]


def boxes(table: LayerTable) -> list[Box]:
    """Returns a network's layers, each with those behind it that are part of it, in the network's order."""
    makers = _makers(table)
    head: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for number, layer in enumerate(table.layers):
        before = makers.get(-1 if layer.joined is None else layer.joined, number)
        joins = before < number and members[head[before]][-1] == before
        head[number] = head[before] if joins else number
        members.setdefault(head[number], []).append(number)
    return [Box(tuple(layers)) for layers in members.values()]


def _makers(table: LayerTable) -> dict[int, int]:
    """Returns the layer that makes each tensor."""
    return {end: number for number, layer in enumerate(table.layers) for end in layer.outputs}


def layer_graph(table: LayerTable, groups: Sequence[Box], linked: Collection[int]) -> Markup:
    """Draws a network.

    Args:
        table: Its layers.
        groups: Its boxes; those beyond `MOST_BOXES` are left out.
        linked: Positions of layers that the page has a row for.
    """
    members = groups[:MOST_BOXES]
    before = _before(table, members)
    rows = _rows(before)
    at = _places(rows, before)
    width = max((x for x, _ in at.values()), default=0) + _WIDTH + 190
    height = len(rows) * (_HEIGHT + _GAP) + 20
    edges = [_edge(at[one], at[number]) for number, those in enumerate(before) for one in those]
    parts = [path(edges, "edge")] if edges else []
    parts += [_drawn(table, box, at[number], box.layers[0] in linked) for number, box in enumerate(members)]
    title = tag("title", f"{len(members)} layers of the network, from its inputs above to its outputs below")
    return tag("svg", title, *parts, viewBox=f"0 0 {width:g} {height:g}", class_="net", role="img",
               width=width, height=height)  # fmt: skip


def _before(table: LayerTable, members: Sequence[Box]) -> list[list[int]]:
    """Returns for each box those whose tensors it takes."""
    owner = {number: place for place, box in enumerate(members) for number in box.layers}
    makers = _makers(table)
    sources = []
    for place, box in enumerate(members):
        ends = (end for number in box.layers for end in table.layers[number].inputs if end in makers)
        those = (owner[makers[end]] for end in ends if makers[end] in owner)
        sources.append([source for source in dict.fromkeys(those) if source != place])
    return sources


def _rows(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """Sorts boxes by how many others stand above them. What comes later in the network's order, as in loops, does not
    count."""
    depth: dict[int, int] = {}
    for number, those in enumerate(before):
        depth[number] = max((depth[source] + 1 for source in those if source in depth), default=0)
    rows: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for number, row in depth.items():
        rows[row].append(number)
    return rows


def _places(rows: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> dict[int, tuple[float, float]]:
    """Returns the upper left corner of each box: below the middle of those that it takes from, where there is room."""
    at: dict[int, tuple[float, float]] = {}
    step = _WIDTH + _BESIDE
    for level, row in enumerate(rows):
        means = {n: _mean([at[source][0] for source in before[n] if source in at]) for n in row}
        free = 0.0
        for number in sorted(row, key=lambda n: (means[n], n)):
            # In whole columns, so that chains are straight.
            x = max(free, round(means[number] / step) * step)
            at[number] = (x, 10 + level * (_HEIGHT + _GAP))
            free = x + step
    return at


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = above, below
    rows = round(abs(to_y - y) / (_HEIGHT + _GAP))
    if rows == 1:
        return f"M{x + _WIDTH / 2:.0f} {y + _HEIGHT:.0f}L{to_x + _WIDTH / 2:.0f} {to_y:.0f}"
    # Beside the boxes between, the further the longer.
    out = 24 + min(150, 5 * rows)
    start, end = x + _WIDTH, to_x + _WIDTH
    right = max(start, end) + out
    return f"M{start:.0f} {y + 11:.0f}C{right:.0f} {y + 11:.0f} {right:.0f} {to_y + 11:.0f} {end:.0f} {to_y + 11:.0f}"


def _drawn(table: LayerTable, box: Box, at: tuple[float, float], linked: bool) -> Markup:
    first, (x, y) = table.layers[box.layers[0]], at
    parts = (
        tag("title", _caption(table, [table.layers[number] for number in box.layers])),
        tag("rect", x=x, y=y, class_=_FAMILIES.get(first.kind)),
        tag("text", _label(first, len(box.layers) - 1), x=x + 7, y=y + 15),
    )
    return tag("a", *parts, href=f"#L{box.layers[0]}") if linked else tag("g", *parts)


def _label(layer: TableLayer, more: int) -> str:
    kind = layer.kind.lower().replace("_", " ")
    words = f"{_SHORT.get(layer.kind, kind)}{f' +{more}' if more else ''} {_last(layer.node or layer.name)}"
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 2]}.."


_SHORT: Mapping[str, str] = {
    "CONVOLUTION": "conv",
    "DECONVOLUTION": "deconv",
    "MATRIX_MULTIPLY": "matmul",
    "ELEMENTWISE": "elem",
    "ACTIVATION": "act",
    "CONCATENATION": "concat",
    "NORMALIZATION": "norm",
}


def _last(name: str) -> str:
    parts = [part for part in name.split("/") if part]
    return "/".join(parts[-2:-1] or parts)


def described(tensor: TableTensor) -> str:
    """Returns type and shape of a tensor: "float32 batch x 8 x height/2"."""
    return f"{tensor.dtype} {'of unknown rank' if tensor.shape is None else dims_text(tensor.shape)}"


def _caption(table: LayerTable, layers: Sequence[TableLayer]) -> str:
    names = " + ".join(layer.kind.lower() for layer in layers)
    outputs = itertools.islice((described(table.tensors[end]) for end in layers[-1].outputs), 2)
    return f"{(layers[0].node or layers[0].name)[:60]}: {names}, {'; '.join(outputs)}"
