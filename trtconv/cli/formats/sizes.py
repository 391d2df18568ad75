"""What a person reads of `trtconv sizes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtconv.cli.formats.wording import memory_lines, table
from trtconv.core.text import clean, leading


def sizes_text(document: Mapping[str, Any]) -> str:
    """Renders the JSON document of `trtconv sizes`; the last line is the summary."""
    path, dims = str(document["model"]["path"]), document["dims"]
    if not dims:
        state = "its shapes fit together" if document["exit_code"] == 0 else "its shapes do not fit together"
        return f"{leading(path)} has no dynamic dimension; {state}"
    rows = [("dimension", "step", "accepted")]
    for name, dim in dims.items():
        step = "-" if dim["step"] is None else str(dim["step"]) + (f" + {dim['offset']}" if dim["offset"] else "")
        rows.append((leading(name), step, dim["accepted"]))
    summary = f"{leading(path)}: {clean(_summary(document))}"
    return "\n\n".join(["\n".join(table(rows, "")), *_lists(document), *memory_lines(document["memory"]), summary])


def _lists(document: Mapping[str, Any]) -> list[str]:
    nearest = [
        f"{name} {size} is not accepted; nearest: {' and '.join(map(str, near)) or 'none'}"
        for name, sizes in document["nearest"].items()
        for size, near in sizes.items()
    ]
    parts = {
        "tied together": document["joint"],
        "because": [imposed["text"] for imposed in document["imposed"]],
        "not accepted": nearest,
        "not known behind": [f"{unknown['node']}: {unknown['why']}" for unknown in document["unknown"]],
        "depends on the data": [f"{place['op']} {place['node']}" for place in document["data_dependent"]],
    }
    return ["\n".join([title, *(clean(f"  {line}") for line in lines)]) for title, lines in parts.items() if lines]


def _summary(document: Mapping[str, Any]) -> str:
    said = "no size in range is accepted" if document["exit_code"] else "sizes found on shapes alone"
    if not document["exact"]:
        said += ", not for every combination"
    unasked = [f"{n} from {document['dims'][n]['min']} to {document['dims'][n]['max']}" for n in document["unasked"]]
    if unasked:
        said += f"; for want of bounds, looked at {', '.join(unasked)}"
    return said
