"""The page's charts: sizes against profiles, latency over size, errors against their tolerance, shares of time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from trtconv.cli.formats.page.svg import box, drawing, label, line, path, tag
from trtconv.cli.formats.plot import Curves, rounded_up
from trtconv.core.dims import Range
from trtconv.core.documents.lattice import DimRecord

_WIDTH = 720.0
_LEFT, _RIGHT = 118.0, 44.0
_ROW = 18.0
_MOST_TICKS = 160
_COLOURS = 6


def sizes_chart(lattice: Mapping[str, DimRecord], bounds: Sequence[Mapping[str, Range]]) -> Markup:
    """Draws, for each dimension with a range, the sizes that the network accepts and below them the profiles.

    Args:
        lattice: The dimensions.
        bounds: Of each profile the dimensions' bounds.
    """
    names = [name for name in dict.fromkeys([*lattice, *(n for p in bounds for n in p)]) if _varies(name, bounds)]
    parts: list[Markup] = []
    top = 6.0
    for name in names:
        mine = [(number, profile[name]) for number, profile in enumerate(bounds) if name in profile]
        parts += _dimension(name, lattice.get(name), mine, top)
        top += _ROW * (len(mine) + 2) + 34
    return drawing(_WIDTH, top, "sizes that the network accepts, and the profiles", parts) if names else Markup("")


def _varies(name: str, bounds: Sequence[Mapping[str, Range]]) -> bool:
    return any(name in profile and profile[name].min != profile[name].max for profile in bounds)


class _Scale:
    """A logarithmic axis."""

    def __init__(self, low: float, high: float, left: float = _LEFT, right: float = _WIDTH - _RIGHT) -> None:
        self._low, self._left = max(low, 1e-300), left
        self._unit = (right - left) / (math.log(high / self._low) if high > self._low else 1.0)

    def __call__(self, value: float) -> float:
        return self._left + math.log(max(value, self._low) / self._low) * self._unit


def _dimension(name: str, dim: DimRecord | None, mine: Sequence[tuple[int, Range]], top: float) -> list[Markup]:
    low = min(bound.min for _, bound in mine)
    high = max(bound.max for _, bound in mine)
    place = _Scale(low, high)
    parts = [label(0, top + 12, _cut(name, 60), "strong")]
    top += _ROW
    parts.append(label(_LEFT - 8, top + 12, "accepted", "dim", "end"))
    parts += _accepted(dim, low, high, place, top)
    for row, (number, bound) in enumerate(mine, 1):
        y = top + row * _ROW
        left, right = place(bound.min), place(bound.max)
        parts.append(label(_LEFT - 8, y + 12, f"profile {number}", "dim", "end"))
        parts.append(box(left, y + 4, max(right - left, 3), 8, f"bar c{number % _COLOURS}", 4))
        parts.append(tag("circle", tag("title", f"opt {bound.opt}"), cx=place(bound.opt), cy=y + 8, r=5, class_="opt"))
    marks = sorted({size for _, bound in mine for size in (bound.min, bound.opt, bound.max)})
    return parts + _axis(marks, place, top + _ROW * (len(mine) + 1) + 12)


def _axis(marks: Sequence[int], place: _Scale, y: float) -> list[Markup]:
    """Writes the sizes below an axis, those left out that would touch."""
    parts, free = [], -math.inf
    for size in marks:
        x = place(size)
        half = 3.6 * len(str(size))
        if x - half >= free:
            parts.append(label(x, y, str(size), "dim", "middle"))
            free = x + half + 6
    return parts


def _accepted(dim: DimRecord | None, low: int, high: int, place: _Scale, top: float) -> list[Markup]:
    valid = None if dim is None else dim.valid
    if valid is None:
        return [box(place(low), top + 4, place(high) - place(low), 9, "every", 2)]
    sizes = [size for size in valid if low <= size <= high]
    # Beyond that they would run into each other.
    ticks = sizes if len(sizes) <= _MOST_TICKS else sizes[:: len(sizes) // _MOST_TICKS + 1]
    return [path((f"M{place(size):.1f} {top + 3:.1f}v11" for size in ticks), "tick")] if ticks else []


def latency_chart(curves: Curves) -> Markup:
    """Draws median latency (us) over the elements of the inputs, one curve for each profile."""
    height, left, bottom = 260.0, 64.0, 44.0
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return Markup("")
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = rounded_up(max(max(y for _, y in points), 1e-3))
    across = _Scale(low, high, left + 16, _WIDTH - 30)

    def down(y: float) -> float:
        return height - bottom - y / top * (height - bottom - 34)

    parts = [label(0, 12, "us", "dim")]
    for step in range(5):
        y = down(top * step / 4)
        parts += [
            line([(left, y), (_WIDTH - 14, y)], "grid"),
            label(left - 8, y + 4, f"{top * step / 4:g}", "dim", "end"),
        ]
    parts += _axis(sorted({x for x, _ in points}), across, height - bottom + 18)
    parts.append(label(_WIDTH - 14, height - 6, "elements of the inputs", "dim", "end"))
    for number, (name, curve) in enumerate(curves.items()):
        at = [(across(x), down(y)) for x, y in curve]
        parts.append(line(at, f"curve c{number % _COLOURS}"))
        parts += [
            tag("circle", tag("title", f"{y:.1f} us"), cx=x, cy=row, r=4, class_=f"dot c{number % _COLOURS}")
            for (x, row), (_, y) in zip(at, curve, strict=True)
        ]
        parts.append(box(left + 16 + 200 * (number % 3), 4 + 14 * (number // 3), 10, 10, f"dot c{number % _COLOURS}"))
        parts.append(label(left + 31 + 200 * (number % 3), 13 + 14 * (number // 3), _cut(name, 28)))
    return drawing(_WIDTH, height, "median latency over size", parts)


def errors_chart(errors: Mapping[str, Sequence[tuple[str, float]]], tolerance: float) -> Markup:
    """Draws the largest relative errors of each output on a logarithmic axis, with the tolerance as a line.

    Args:
        errors: Output name to sizes and their errors.
        tolerance: Above 0.
    """
    magnitudes = [error for cases in errors.values() for _, error in cases if 0 < error < math.inf]
    low = 10.0 ** math.floor(math.log10(min([*magnitudes, tolerance * 1e-4])))
    high = 10.0 ** math.ceil(math.log10(max([*magnitudes, tolerance * 10])))
    place = _Scale(low, high, _LEFT + 54)
    height = 22.0 * len(errors) + 34
    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    parts = []
    for exponent in decades:
        x = place(10.0**exponent)
        parts.append(line([(x, 4), (x, height - 28)], "grid"))
        if exponent % (len(decades) // 8 + 1) == 0:
            parts.append(label(x, height - 14, f"1e{exponent}", "dim", "middle"))
    limit = place(tolerance)
    parts += [line([(limit, 2), (limit, height - 28)], "limit"), label(limit, height - 2, "tolerance", "bad", "middle")]
    for row, (name, cases) in enumerate(errors.items()):
        y = 16 + 22.0 * row
        parts.append(label(0, y + 4, _cut(name, 18), "strong"))
        for size, error in cases:
            kind = "dot bad" if not error <= tolerance else "dot ok"
            x = place(min(error, high)) if error > 0 else _LEFT + 12
            title = f"{size}: {error:.2g}" if error else f"{size}: no difference"
            parts.append(tag("circle", tag("title", title), cx=x, cy=y, r=4.5, class_=kind))
    parts.append(label(_LEFT + 12, height - 14, "0", "dim", "middle"))
    return drawing(_WIDTH, height, "largest relative error of each output", parts)


def share_bar(share: float, kind: str = "c0") -> Markup:
    """Draws a bar for the cell of a table; `share` from 0 to 1."""
    return drawing(120, 10, f"{share:.0%}", [box(0, 1, max(120 * share, 1), 8, f"bar {kind}", 2)], "share")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
