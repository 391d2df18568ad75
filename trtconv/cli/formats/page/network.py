"""The page's section about the network that TensorRT's parser made: its layers, their work, and a drawing of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from trtconv.cli.formats.page.charts import share_bar
from trtconv.cli.formats.page.estimate import Estimate, estimate, gpu_for
from trtconv.cli.formats.page.layer_graph import Box, boxes, described, layer_graph
from trtconv.cli.formats.page.measured import MOST_PRINTED
from trtconv.cli.formats.wording import byte_size
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.layers import LayerTable, TableLayer
from trtconv.core.frozen import frozen

MOST_ROWS = 250
_MOST_KINDS = 14
_LONGEST = 70


@frozen
class Row:
    """A layer, with those that are part of it, in the table.

    Args:
        number: Its position in the network; the drawing leads here.
        name: The ONNX node's name.
        kinds: Its type, and those of the layers that are part of it.
        output: Type and shape of what it makes.
        products: Multiplications, in words.
        moved: Bytes that are read and written, in words.
        time: The estimate at opt of the first profile, in words.
        limit: "compute" or "memory".
        bar: Its share of the longest.
        printed: Whether it is on paper too.
    """

    number: int
    name: str
    kinds: str
    output: str
    products: str
    moved: str
    time: str
    limit: str
    bar: Markup
    printed: bool


def network(report: BuildReport, gpu: str | None) -> dict[str, object] | None:
    """Returns what is told of the parsed network; None where the report does not have it.

    Args:
        report: The report.
        gpu: Label of the GPU to estimate for; None for the one that the report names.
    """
    table = report.layers
    if table is None or not table.layers:
        return None
    guess = estimate(report, table, gpu_for(report, gpu))
    groups = boxes(table)
    weighed = [_weighed(group, table, guess) for group in groups]
    ranked = sorted(range(len(groups)), key=lambda place: -weighed[place].time)
    places = sorted(ranked[:MOST_ROWS])
    longest = max((cost.time for cost in weighed), default=0.0)
    rows = [_row(groups[place], weighed[place], table, longest, place in ranked[:MOST_PRINTED]) for place in places]
    linked = {row.number for row in rows}
    return {
        "rows": rows,
        "layers": len(table.layers) + table.left,
        "aside": table.aside,
        "left": len(groups) - len(rows),
        "gpu": guess.gpu.title,
        "profiles": [_total(number, table, guess) for number in range(len(guess.times))],
        "kinds": _kinds(table, guess),
        "graph": layer_graph(table, groups, linked),
        "cut": table.left,
    }


@frozen
class _BoxCost:
    """What a box takes at opt of the first profile: seconds, multiplications, bytes, and what it is bound by."""

    time: float
    products: float | None
    moved: float | None
    limit: str


def _weighed(box: Box, table: LayerTable, guess: Estimate) -> _BoxCost:
    layers = [table.layers[number] for number in box.layers]
    times = [guess.times[0][number] or 0.0 for number in box.layers]
    products = [layer.products[0] for layer in layers]
    moved = [layer.moved[0] for layer in layers]
    limit = guess.limits[0][box.layers[times.index(max(times))]]
    return _BoxCost(
        sum(times),
        None if None in products else sum(number or 0 for number in products),
        None if None in moved else sum(size or 0 for size in moved),
        limit,
    )


def _row(box: Box, weighed: _BoxCost, table: LayerTable, longest: float, printed: bool) -> Row:
    last = table.layers[box.layers[-1]]
    return Row(
        box.layers[0],
        _shortened(table.layers[box.layers[0]].node or table.layers[box.layers[0]].name),
        " + ".join(table.layers[number].kind.lower().replace("_", " ") for number in box.layers),
        described(table.tensors[last.outputs[0]]) if last.outputs else "-",
        _short(weighed.products),
        "?" if weighed.moved is None else byte_size(int(weighed.moved)) if weighed.moved else "-",
        f"{weighed.time * 1e6:,.2f}" if weighed.moved is not None else "?",
        weighed.limit,
        share_bar(weighed.time / longest, "c0" if weighed.limit == "compute" else "c2") if longest else Markup(""),
        printed,
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2 - 2]}...{name[-_LONGEST // 2 + 1 :]}"


def _short(number: float | None) -> str:
    if number is None:
        return "?"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}" if number else "-"


def _total(number: int, table: LayerTable, guess: Estimate) -> dict[str, object]:
    unknown = sum(time is None for time in guess.times[number])
    return {
        "number": number,
        "products": _short(sum(layer.products[number] or 0 for layer in table.layers)),
        "moved": byte_size(int(sum(layer.moved[number] or 0 for layer in table.layers))),
        "time": f"{guess.total(number) * 1e6:,.1f}",
        "unknown": unknown,
    }


@dataclasses.dataclass
class _Sum:
    layers: int = 0
    products: float = 0.0
    moved: float = 0.0
    time: float = 0.0


def _kinds(table: LayerTable, guess: Estimate) -> Sequence[Mapping[str, object]]:
    """Returns how many layers there are of each type, and what share of the estimate is theirs."""
    sums: dict[tuple[str, str], _Sum] = {}
    for layer, time in zip(table.layers, guess.times[0], strict=True):
        sum_ = sums.setdefault((layer.kind, _types(table, layer)), _Sum())
        sum_.layers += 1
        sum_.products += layer.products[0] or 0
        sum_.moved += layer.moved[0] or 0
        sum_.time += time or 0
    total = guess.total(0)
    ranked = sorted(sums.items(), key=lambda entry: (-entry[1].time, -entry[1].layers, entry[0]))
    return [
        {
            "kind": kind.lower().replace("_", " "),
            "dtype": dtype,
            "layers": subtotal.layers,
            "products": _short(subtotal.products),
            "moved": byte_size(int(subtotal.moved)) if subtotal.moved else "-",
            "bar": share_bar(subtotal.time / total) if total else "",
        }
        for (kind, dtype), subtotal in ranked[:_MOST_KINDS]
    ]


def _types(table: LayerTable, layer: TableLayer) -> str:
    return ", ".join(Counter(table.tensors[number].dtype for number in layer.outputs)) or "-"
