"""What a size is of others, told from what it is where they vary: "height/2", "batch", "height*width/64"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from trtconv.core.dims import Shape
from trtconv.core.frozen import frozen

UNKNOWN = "?"


@frozen
class KnownSizes:
    """The shapes of a model's tensors at some sizes of its dimensions.

    Args:
        points: The sizes of every free dimension: opt of each profile, then others, to tell what a shape is of them.
        shapes: For each point the shapes that are known, by tensor.
        profiles: How many of the points are opt of a profile.
    """

    points: Sequence[Mapping[str, int]]
    shapes: Sequence[Mapping[str, Shape]]
    profiles: int


def named_size(values: Sequence[int | None], points: Sequence[Mapping[str, int]]) -> int | str:
    """Returns what a size is of the dimensions that it depends on; a number where it depends on none.

    It is looked for as a multiple or a part of a product of dimensions, and as one of a single dimension with something
    added; at all points it has to be right.

    Args:
        values: The size at each point; None where it is not known.
        points: The dimensions there. After the first, each should differ from it in one dimension alone, or in all.

    Returns:
        "?" where it is not known at a point, or is none of these.
    """
    sizes = [value for value in values if value is not None]
    if not sizes or len(sizes) < len(values):
        return UNKNOWN
    if len(set(sizes)) == 1:
        return sizes[0]
    names = _varying(sizes, points)
    if not names:
        return UNKNOWN
    whole = [math.prod(point[name] for name in names) for point in points]
    if not all(whole):
        return UNKNOWN
    share = Fraction(sizes[0], whole[0])
    if all(Fraction(value, of) == share for value, of in zip(sizes, whole, strict=True)):
        return _product("*".join(names), share)
    return _line(names[0], sizes, whole) if len(names) == 1 else UNKNOWN


def _varying(values: Sequence[int], points: Sequence[Mapping[str, int]]) -> list[str]:
    """Returns the dimensions with which the size varies."""
    first, dims = points[0], []
    for value, point in zip(values[1:], points[1:], strict=True):
        changed = [name for name, size in point.items() if size != first[name]]
        if len(changed) == 1 and value != values[0]:
            dims += changed
    return list(dict.fromkeys(dims))


def _line(name: str, values: Sequence[int], of: Sequence[int]) -> str:
    other = next((row for row in range(len(of)) if of[row] != of[0]), None)
    if other is None:
        return UNKNOWN
    slope = Fraction(values[other] - values[0], of[other] - of[0])
    rest = values[0] - slope * of[0]
    if any(value != slope * size + rest for value, size in zip(values, of, strict=True)) or rest.denominator != 1:
        return UNKNOWN
    return f"{_product(name, slope)} {'+' if rest > 0 else '-'} {abs(rest)}"


def _product(name: str, factor: Fraction) -> str:
    above = name if factor.numerator == 1 else f"{factor.numerator}*{name}"
    return above if factor.denominator == 1 else f"{above}/{factor.denominator}"
