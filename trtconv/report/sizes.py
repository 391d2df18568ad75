"""What a person reads of `trtconv sizes`."""

from __future__ import annotations

from trtconv.lattice import SizeLattice
from trtconv.report.wording import clean, table
from trtconv.sizing import SizesReport


def sizes_text(report: SizesReport) -> str:
    """Renders the sizes; the last line is the summary."""
    lattice = report.lattice
    path = clean(report.model)
    if not lattice.dims:
        state = "its shapes fit together" if report.exit_code == 0 else "its shapes do not fit together"
        return f"{path} has no dynamic dimension; {state}"
    rows = [("dimension", "step", "accepted")]
    for dim in lattice.dims.values():
        # A single asked size says nothing about a step of one.
        step = "-" if dim.step is None else str(dim.step) + (f" + {dim.offset}" if dim.offset else "")
        rows.append((clean(dim.name), step, dim.describe()))
    blocks = ["\n".join(table(rows, "")), *_lists(report, lattice), _summary(report, path)]
    return "\n\n".join(block for block in blocks if block)


def _lists(report: SizesReport, lattice: SizeLattice) -> list[str]:
    nearest = [
        f"{name} {size} is not accepted; nearest: {' and '.join(map(str, near)) or 'none'}"
        for name, sizes in report.nearest.items()
        for size, near in sizes.items()
    ]
    parts = {
        "tied together": lattice.joint,
        "because": [str(imposed) for imposed in lattice.imposed],
        "not accepted": nearest,
        "not known behind": [f"{node}: {why}" for node, why in lattice.unknown.items()],
        "depends on the data": [str(place) for place in lattice.data_dependent],
    }
    return ["\n".join([title, *(clean(f"  {line}") for line in lines)]) for title, lines in parts.items() if lines]


def _summary(report: SizesReport, path: str) -> str:
    said = "no size in range is accepted" if report.exit_code else "sizes found on shapes alone"
    if not report.lattice.exact:
        said += ", not for every combination"
    if report.unasked:
        looked = ", ".join(f"{name} from {report.ranges[name].min} to {report.ranges[name].max}" for name in report.unasked)
        said += f"; no bounds were given for {looked}"
    return f"{path}: {clean(said)}"
