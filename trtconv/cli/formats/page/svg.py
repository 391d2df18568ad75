"""Elements of an SVG, every text and attribute escaped. Colours are classes: the page's style knows light and dark."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from trtconv.core.text import clean

Value = str | float


def tag(name: str, *children: str, **attributes: Value | None) -> Markup:
    """Returns an element.

    Args:
        name: "rect", "g".
        children: Markup as it is, other text escaped.
        attributes: Their underscores stand for hyphens, those at the end for nothing (`class_`); None is left out.
            Markup is taken as it is.
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(child if isinstance(child, Markup) else escape(clean(child)) for child in children)
    return Markup(f"<{name}{pairs}>{inner}</{name}>" if inner else f"<{name}{pairs}/>")


def drawing(width: float, height: float, title: str, children: Iterable[str], kind: str = "chart") -> Markup:
    """Returns an <svg> that scales with the page.

    Args:
        width: Of its own coordinates, as is the height.
        title: What it shows, for those who cannot see it.
        kind: Its class.
    """
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", tag("title", title), *children, viewBox=box, class_=kind, role="img", width=width, height=height)


def label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Markup:
    """Returns a line of text; its baseline begins, ends or is centred at a point, as `anchor` says."""
    return tag("text", text, x=x, y=y, class_=kind or None, text_anchor=None if anchor == "start" else anchor)


def box(x: float, y: float, width: float, height: float, kind: str, radius: float = 0) -> Markup:
    """Returns a rectangle."""
    return tag("rect", x=x, y=y, width=max(width, 0), height=height, class_=kind, rx=radius or None)


def line(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    """Returns a line through points."""
    return tag("polyline", points=Markup(" ".join(f"{x:.1f},{y:.1f}" for x, y in points)), class_=kind)


def path(strokes: Iterable[str], kind: str) -> Markup:
    """Returns one path of all strokes, "M0 0L5 5"; their text is taken as it is."""
    return tag("path", d=Markup("".join(strokes)), class_=kind)


def _text(value: Value) -> str:
    # Coordinates of ours may be longer than a foreign text may.
    if isinstance(value, Markup):
        return value
    return f"{value:.6g}" if isinstance(value, int | float) else str(escape(clean(value)))
