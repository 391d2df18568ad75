"""What a person reads of `trtconv sizes`."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.cli.formats.wording import memory_lines, table
from trtconv.core.text import clean, leading
from trtconv.shapes.report import SizesReport


def sizes_text(report: SizesReport) -> str:
    """Renders what `trtconv sizes` found; the last line is the summary."""
    path, dims = report.model.path, report.lattice.dims
    if not dims:
        state = "its shapes fit together" if report.exit_code == 0 else "its shapes do not fit together"
        return f"{leading(path)} has no dynamic dimension; {state}. trtconv export writes files whose sizes vary"
    rows = [("dimension", "step", "accepted")]
    for name, dim in dims.items():
        step = "-" if dim.step is None else str(dim.step) + (f" + {dim.offset}" if dim.offset else "")
        rows.append((leading(name), step, dim.describe()))
    summary = f"{leading(path)}: {clean(_summary(report))}"
    return "\n\n".join(["\n".join(table(rows, "")), *_lists(report), *memory_lines(report.memory), summary])


def _lists(report: SizesReport) -> list[str]:
    nearest = [
        f"{name} {size} is not accepted; nearest: {' and '.join(map(str, near)) or 'none'}"
        for name, sizes in report.nearest.items()
        for size, near in sizes.items()
    ]
    parts: dict[str, Sequence[str]] = {
        "tied together": report.lattice.joint,
        "because": [str(imposed) for imposed in report.lattice.imposed],
        "mended": [f"{name}: build and rewrite free it of the exporter's example (TC213)" for name in report.freed],
        "not accepted": nearest,
        "not known behind": [f"{node}: {why}" for node, why in report.lattice.unknown.items()],
        "depends on the data": [f"{place.op} {place.node}" for place in report.lattice.data_dependent],
    }
    return ["\n".join([title, *(clean(f"  {line}") for line in lines)]) for title, lines in parts.items() if lines]


def _summary(report: SizesReport) -> str:
    text = "no size in range is accepted" if report.exit_code else "sizes found on shapes alone"
    if not report.lattice.exact:
        text += ", not for every combination"
    ranges = [f"{n} from {report.lattice.dims[n].min} to {report.lattice.dims[n].max}" for n in report.unasked]
    if ranges:
        text += f"; for want of bounds, looked at {', '.join(ranges)}"
    return text
