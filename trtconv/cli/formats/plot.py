"""Latency against size, drawn: as SVG by ourselves, as PNG by matplotlib where that is installed."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from trtconv.cli.formats.engine import quickest_way
from trtconv.cli.formats.load import letter
from trtconv.core.dims import elements_of
from trtconv.core.documents.bench import BenchReport
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.text import clean

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")

Curves = dict[str, list[tuple[int, float]]]
"""Name to points: elements of the inputs, median latency in microseconds."""


def check_format(path: Path) -> None:
    """Checks that a drawing of this kind can be made, before anything is timed.

    Raises:
        InputError: It is neither .svg nor .png.
        EnvironmentMissing: It is .png, and matplotlib is not installed.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"--plot {path} is neither .svg nor .png", "Write --plot latency.svg.")
    if path.suffix.lower() == ".png":
        _matplotlib()


def _matplotlib() -> Any:
    try:
        from matplotlib import figure
    except ImportError as error:
        raise EnvironmentMissing(
            f"drawing a .png takes matplotlib: {error}", "pip install matplotlib, or write --plot latency.svg."
        ) from error
    return figure


def draw(document: BenchReport, path: Path) -> bytes:
    """Draws what `trtconv bench` measured; the suffix of the path says how.

    Returns:
        The file's content.
    """
    series = curves(document)
    title = "median latency, us, against the elements of the inputs"
    if path.suffix.lower() == ".png":
        return _png(series, title)
    return _svg(series, title).encode()


def curves(document: BenchReport) -> Curves:
    """Returns one curve for each engine and profile."""
    engines, series = document.engines, Curves()
    for row, us in quickest_way(document):
        name = f"profile {row.profile}"
        if len(engines) > 1:
            name = f"{letter(row.engine)}: {Path(engines[row.engine].path).name}, {name}"
        series.setdefault(name, []).append((elements_of(row.shapes), us))
    return {name: sorted(points) for name, points in series.items()}


def _png(series: Curves, title: str) -> bytes:
    figure = _matplotlib().Figure(figsize=(8, 5))
    axes = figure.add_subplot()
    for name, points in series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=clean(name))
    axes.set(title=title, xlabel="elements", ylabel="us", xscale="log")
    axes.set_ylim(bottom=0)
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _svg(series: Curves, title: str) -> str:
    points = [point for curve in series.values() for point in curve] or [(1, 1.0)]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = rounded_up(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        share = math.log(x / low) / math.log(high / low) if high > low else 0.5
        return (_LEFT + share * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle">{escape(title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        _, y = place(low, value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in sorted({x for x, _ in points}):
        at, y = place(x, 0)
        parts.append(f'<text x="{at:.1f}" y="{y + 16:.1f}" text-anchor="middle">{x}</text>')
    parts += _svg_curves(series, place)
    return "\n".join([*parts, "</svg>", ""])


def _svg_curves(series: Curves, place: Any) -> Sequence[str]:
    parts = []
    for number, (name, curve) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        at = [place(x, y) for x, y in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
        row = _HEIGHT - 28 + 14 * (number // 2)
        column = _LEFT + 280 * (number % 2)
        parts.append(f'<text x="{column}" y="{row}" fill="{colour}">{escape(clean(name))}</text>')
    return parts


def rounded_up(value: float) -> float:
    """Returns the next number that is one of 1, 2, 2.5, 4, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 4, 5, 10) if step * power >= value * (1 - 1e-9))
