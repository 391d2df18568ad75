"""Says in words, and as a step and an offset, which sizes are accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.shapes.lattice.number import distinct

Vector = NDArray[np.int64]
_FEW = 16
"""How many small sizes may be accepted beside a pattern."""


def step_and_offset(sizes: Vector) -> tuple[int | None, int | None]:
    """Returns step and offset of the finest regular grid that all sizes are on; None, None for less than two sizes."""
    if len(sizes) < 2:
        return None, None
    step = int(np.gcd.reduce(np.diff(sizes)))
    return step, int(sizes[0]) % step


def needs(sizes: Vector, accepted: NDArray[np.bool_], most: int | None = None) -> str:
    """Says what a condition asks of one dimension: "a multiple of 8", "at least 7", "64".

    Args:
        sizes: Consecutive sizes.
        accepted: Which of them meet the condition.
        most: Largest size that is of interest; a list does not go beyond it.
    """
    good = sizes[accepted]
    if len(good) == 0:
        return "a size outside those that were asked about"
    if len(good) == 1:
        return str(good[0])
    if len(good) == int(good[-1]) - int(good[0]) + 1:
        return _interval(sizes, good)
    inside = good if most is None else good[good <= most]
    return regular(sizes, accepted) or f"one of {listed(inside if len(inside) > 1 else good)}"


def needs_in_part(sizes: Vector, accepted: NDArray[np.bool_], run: slice) -> str:
    """Says what a condition asks of one dimension, as far as can be told from some of its sizes.

    Args:
        sizes: Sizes in order, some left out.
        accepted: Which of them meet the condition.
        run: Consecutive ones, of which some do not meet it.
    """
    good, bad = sizes[accepted], sizes[~accepted]
    if len(good) and len(bad):
        if good[-1] < bad[0]:
            return f"at most {good[-1]}" if bad[0] == good[-1] + 1 else f"less than {bad[0]}"
        if bad[-1] < good[0]:
            return f"at least {good[0]}" if good[0] == bad[-1] + 1 else f"more than {bad[-1]}"
        if accepted[run].any():
            pattern = periodic(sizes[run], accepted[run])
            if pattern:
                return pattern
        return f"{'' if len(good) == 1 else 'one of '}{listed(good)} (of the sizes that were looked at)"
    return "a size outside those that were looked at"


def _interval(sizes: Vector, good: Vector) -> str:
    if good[-1] == sizes[-1]:
        return f"at least {good[0]}"
    return f"at most {good[-1]}" if good[0] == sizes[0] else f"{good[0]} to {good[-1]}"


def regular(sizes: Vector, accepted: NDArray[np.bool_]) -> str | None:
    """Says which residues are accepted, beside a few small sizes (those that broadcast, or pool to 1); else None."""
    pattern = periodic(sizes, accepted)
    good = np.flatnonzero(accepted)
    for few in range(1, min(_FEW, len(good) // _FEW) + 1) if pattern is None else ():
        rest = slice(int(good[few]), None)
        pattern = periodic(sizes[rest], accepted[rest])
        if pattern is not None:
            small = sizes[good[:few]]
            text = f"{small[0]} to {small[-1]}" if 1 < few == small[-1] - small[0] + 1 else listed(small)
            return f"{text} or, from {sizes[good[few]]} on, {pattern}"
    return pattern


def periodic(sizes: Vector, accepted: NDArray[np.bool_]) -> str | None:
    """Says which residues are accepted, where that is regular; else None."""
    first = int(np.argmax(accepted))
    pattern, start = accepted[first:], int(sizes[first])
    for period in range(2, min(1025, len(pattern) // 2 + 1)):
        # A look at the beginning spares most of the time on long ranges.
        if pattern[period] != pattern[0] or not np.array_equal(pattern[period:], pattern[:-period]):
            continue
        residues = sorted((start + int(n)) % period for n in np.flatnonzero(pattern[:period]))
        smaller = range(max(int(sizes[0]), start - period), start)
        least = f", at least {start}" if any(n % period in residues for n in smaller) else ""
        if len(residues) == 1:
            more = f" plus {residues[0]}" if residues[0] else ""
            return f"a multiple of {period}{more}{least}"
        if residues == list(range(residues[0], residues[-1] + 1)):
            return f"{residues[0]} to {residues[-1]} beyond a multiple of {period}{least}"
        below = sorted(-residue % period for residue in residues)
        if below == list(range(len(below))):
            return f"0 to {below[-1]} below a multiple of {period}{least}"
        if len(residues) <= 4:
            return f"{' or '.join(map(str, residues))} beyond a multiple of {period}{least}"
        gone = sorted(set(range(period)) - set(residues))
        if len(gone) <= 4:
            return f"not {' or '.join(map(str, gone))} beyond a multiple of {period}{least}"
    return None


def listed(sizes: Sequence[int] | Vector, most: int = 6) -> str:
    """Returns "8, 16, 24", or the ends of a long list."""
    plain = [str(n) for n in sizes]
    if len(plain) <= most:
        return ", ".join(plain)
    return f"{', '.join(plain[: most - 1])}, ... {plain[-1]} ({len(plain)} sizes)"


def relation(columns: Mapping[str, Vector], *, complete: bool = True) -> list[str]:
    """Says how the dimensions of a table are tied: "height == width", "mask == 2 * text + 1".

    Args:
        columns: The accepted combinations, no two of them the same.
        complete: Whether there are no others.
    """
    names = list(columns)
    relations = []
    for name in names[1:]:
        pair = _pair(names[0], name, columns, complete and len(names) == 2)
        relations.append(pair or f"{names[0]} is tied to {name} (for example {_example(columns, names[0], name)})")
    return relations


def _pair(a: str, b: str, columns: Mapping[str, Vector], complete: bool) -> str | None:
    x, y = columns[a], columns[b]
    if np.array_equal(x, y):
        return f"{a} == {b}"
    # Broadcasting lets 1 pass beside any size.
    plain = (x != 1) & (y != 1)
    if plain.any() and not plain.all() and np.array_equal(x[plain], y[plain]):
        return f"{a} == {b} (or one of them 1)"
    return _linear(a, b, x, y) or _linear(b, a, y, x) or _floors(a, b, x, y, complete)


def _linear(a: str, b: str, x: Vector, y: Vector) -> str | None:
    """Finds a == slope * b + offset."""
    spread = np.flatnonzero(y != y[0])
    if len(spread) == 0:
        return f"{a} == {x[0]}" if len(set(x.tolist())) == 1 else None
    last = spread[-1]
    slope, rest = divmod(int(x[last] - x[0]), int(y[last] - y[0]))
    offset = int(x[0]) - slope * int(y[0])
    if rest or slope < 1 or not np.array_equal(x, slope * y + offset):
        return None
    scaled = b if slope == 1 else f"{slope} * {b}"
    return f"{a} == {scaled}" + (f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else "")


def _floors(a: str, b: str, x: Vector, y: Vector, complete: bool) -> str | None:
    """Finds a == floor(b / n), or floor(a / n) == floor(b / m)."""
    for n in range(2, max(128, *_quotients(x, y)) + 1):
        for one, other, rounding in ((1, n, "floor"), (n, 1, "floor"), (1, n, "ceil"), (n, 1, "ceil"), (n, n, "floor")):
            if _ties(x, y, one, other, rounding, complete):
                return _equation(a, b, one, other, rounding)
    # Of two divisors their ratio is about that of the sizes.
    for one in range(2, 65):
        middle = one * int(y.max()) // max(1, int(x.max()))
        for other in range(max(2, middle - 1), middle + 3):
            if one != other and _ties(x, y, one, other, "floor", complete):
                return _equation(a, b, one, other, "floor")
    return None


def _quotients(x: Vector, y: Vector) -> tuple[int, int]:
    """Returns how often the largest sizes go into each other, rounded up; at most as often as is of interest."""
    ends = max(1, int(x.max())), max(1, int(y.max()))
    return min(4096, ends[0] // ends[1] + 1), min(4096, ends[1] // ends[0] + 1)


def _divided(sizes: Vector, divisor: int, rounding: str) -> Vector:
    return sizes // divisor if rounding == "floor" else -(-sizes // divisor)


def _ties(x: Vector, y: Vector, one: int, other: int, rounding: str, complete: bool) -> bool:
    """Whether all rows are equal after division, and all pairs that are (at least not every pair) are rows."""
    # Some rows tell of most divisors that they are not the ones.
    for rows in (slice(None, None, max(1, len(x) // 64)), slice(None)):
        if not np.array_equal(_divided(x[rows], one, rounding), _divided(y[rows], other, rounding)):
            return False
    left, right = _divided(distinct(x), one, rounding), _divided(distinct(y), other, rounding)
    pairs = int((np.searchsorted(right, left, "right") - np.searchsorted(right, left, "left")).sum())
    return pairs == len(x) if complete else pairs < len(left) * len(right)


def _equation(a: str, b: str, one: int, other: int, rounding: str) -> str:
    if other == 1:
        return f"{b} == {rounding}({a} / {one})"
    left = a if one == 1 else f"{rounding}({a} / {one})"
    return f"{left} == {rounding}({b} / {other})"


def _example(columns: Mapping[str, Vector], a: str, b: str) -> str:
    middle = len(columns[a]) // 2
    return f"{columns[a][middle]} with {columns[b][middle]}" if len(columns[a]) else "none"


def combination(columns: Mapping[str, Vector], accepted: NDArray[np.bool_]) -> str:
    """Says what a condition asks of several dimensions together."""
    names = list(columns)
    volume = np.ones(len(accepted), dtype=np.int64)
    for name in names:
        volume = volume * columns[name]
    spelled = " * ".join(names)
    if len(names) == 2:
        equal = columns[names[0]] == columns[names[1]]
        ones = (columns[names[0]] == 1) | (columns[names[1]] == 1)
        if np.array_equal(equal, accepted) or np.array_equal(equal | ones, accepted):
            return f"{names[0]} == {names[1]}" + ("" if np.array_equal(equal, accepted) else " (or one of them 1)")
    good = volume[accepted]
    if len(good) and (good == good[0]).all() and np.array_equal(volume == good[0], accepted):
        return f"{spelled} == {good[0]}"
    divisor = math.gcd(*(int(n) for n in good)) if len(good) else 0
    if divisor > 1 and np.array_equal(volume % divisor == 0, accepted):
        return f"{spelled} is a multiple of {divisor}"
    return f"only some combinations of {' and '.join(names)} ({int(accepted.sum())} of {len(accepted)} that were tried)"
