"""Terms of what takes elements from some places, or puts several tensors together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.graph.types import INTEGERS
from trtconv.runtimes.proof.terms.term import MAX_ELEMENTS, Term, Wordless, constant, require_floats


def padded(term: Term, low: Sequence[int], high: Sequence[int], mode: str, fill: float) -> Term:
    """Returns a term with more elements around it.

    Args:
        term: The term, whose sizes are known.
        low: How many before it, for each axis.
        high: How many behind.
        mode: "FILL", or as TensorRT's `SampleMode` names it.
        fill: What is put there with "FILL".
    """
    if not term.is_static or min((*low, *high)) < 0 or mode not in ("FILL", "CLAMP", "REFLECT", "WRAP"):
        raise Wordless("pads that are computed")
    if mode in ("REFLECT", "WRAP") and any(
        max(before, after) >= size for before, after, size in zip(low, high, term.sizes, strict=True)
    ):
        raise Wordless("more than there is")
    require_floats(term)
    sizes = tuple(before + size + after for before, size, after in zip(low, term.sizes, high, strict=True))
    own = (float(np.float32(fill)),) if mode == "FILL" else ()
    return term if sizes == term.sizes else Term("pad", (term,), (tuple(low), mode, *own), term.dtype, sizes)


def gathered(source: Term, indices: Term, axis: int) -> Term:
    """Returns the rows of a term that indices name, along an axis whose size is known."""
    axis = source.axis(axis)
    indices = _places(indices, np.array(source.sizes[axis]))
    sizes = (*source.sizes[:axis], *indices.sizes, *source.sizes[axis + 1 :])
    return Term("gather", (source, indices), (axis,), source.dtype, sizes)


def gathered_nd(source: Term, indices: Term, shared: int) -> Term:
    """Returns the elements or parts of a term that rows of indices name, of axes whose sizes are known.

    Args:
        source: The term.
        indices: [..., axes]: one row for each part.
        shared: How many axes in front both have.
    """
    if not indices.rank or not 0 <= shared < min(indices.rank, source.rank):
        raise Wordless(f"{shared} shared axes")
    depth = indices.sizes[-1]
    rest = source.sizes[shared + depth :]
    if depth < 1 or shared + depth > source.rank or source.sizes[:shared] != indices.sizes[:shared]:
        raise Wordless("rows of another length")
    indices = _places(indices, np.array(source.sizes[shared : shared + depth]))
    return Term("gather nd", (source, indices), (shared,), source.dtype, (*indices.sizes[:-1], *rest))


def _places(indices: Term, sizes: Array) -> Term:
    """Returns indices into axes of such sizes, counted from the front where they are known."""
    if (sizes < 1).any() or indices.dtype not in INTEGERS:
        # From the end of what has no size that is known, TensorRT counts in no way that it says.
        raise Wordless(f"rows of {sizes}")
    while indices.op == "cast" and (indices.source.dtype, indices.dtype) == ("int32", "int64"):
        indices = indices.source
    if indices.array is None:
        return indices
    rows = indices.array.astype(np.int64)
    if ((rows < -sizes) | (rows >= sizes)).any():
        raise Wordless("rows beyond the end")
    return constant(rows % sizes)


def concatenated(terms: Sequence[Term], axis: int) -> Term:
    """Returns terms one after the other along an axis."""
    first, *_ = terms
    place = first.axis(axis)
    if len({term.dtype for term in terms}) != 1 or len({term.rank for term in terms}) != 1:
        raise Wordless("operands of several types or ranks")
    arrays = [term.array for term in terms if term.array is not None]
    if len(arrays) == len(terms) and sum(array.size for array in arrays) <= MAX_ELEMENTS:
        return constant(np.concatenate(arrays, place))
    along = [term.sizes[place] for term in terms]
    sizes = [max(term.sizes[at] for term in terms) for at in range(first.rank)]
    sizes[place] = -1 if -1 in along else sum(along)
    return Term("concat", tuple(terms), (place,), first.dtype, tuple(sizes))


def cut(term: Term, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Term:
    """Returns a part of a term: for each axis the first place, how many, and how far from one another.

    Of an axis whose size is not known all is taken: from 0 on, -1, one after the other.
    """
    for size, first, count, step in zip(term.sizes, starts, sizes, steps, strict=True):
        if (first, count, step) == (0, size, 1):
            continue
        if count < 0 or not 0 <= first < size or not 0 <= first + (count - 1) * step < size:
            raise Wordless("a part that depends on sizes")
    # How far it is from one to the next says nothing of one.
    steps = [1 if count == 1 else step for count, step in zip(sizes, steps, strict=True)]
    if tuple(sizes) == term.sizes and set(steps) == {1}:
        return term
    if term.array is not None and 0 not in steps:
        ends = [first + step * n for first, n, step in zip(starts, sizes, steps, strict=True)]
        rows = [
            slice(first, end if end >= 0 else None, step) for first, end, step in zip(starts, ends, steps, strict=True)
        ]
        return constant(term.array[tuple(rows)])
    return Term("slice", (term,), (tuple(starts), tuple(steps)), term.dtype, tuple(sizes))


def shape_of(term: Term, dtype: str) -> Term:
    """Returns the sizes of a term that are not all known, as integers of a type."""
    return Term("shape", (term,), (), dtype, (term.rank,))


class Resizing(NamedTuple):
    """To what a term is resized.

    Args:
        sizes: The new ones; -1 where the old one is not known.
        factors: Of each of these, by which whole number it is multiplied.
    """

    sizes: tuple[int, ...]
    factors: tuple[int, ...] = ()


def resized(term: Term, growth: Resizing, mode: str, places: str, *, nearest: str, cubic: float, single: str) -> Term:
    """Returns a term at other sizes, of which each is the old one times a scale.

    Args:
        growth: The new sizes.
        mode: "NEAREST", "LINEAR" or "CUBIC".
        places: Where a new element lies on the old axis: "HALF_PIXEL", "ASYMMETRIC" or "ALIGN_CORNERS".
        nearest: How such a place is rounded, of the nearest.
        cubic: The coefficient, of cubic ones.
        single: Where a single element lies.
    """
    require_floats(term)
    sizes, factors = growth
    if len(factors) != term.sizes.count(-1) or mode not in ("NEAREST", "LINEAR", "CUBIC"):
        raise Wordless("sizes that are computed")
    if not all(new == -1 if old < 0 else new > 0 for new, old in zip(sizes, term.sizes, strict=True)):
        raise Wordless("other sizes")
    own = {"NEAREST": (nearest,), "CUBIC": (float(np.float32(cubic)),)}.get(mode, ())
    alone = (single,) if any(new == 1 != old for new, old in zip(sizes, term.sizes, strict=True)) else ()
    return Term("resize", (term,), (mode, places, *own, *alone, factors), term.dtype, sizes)


def grown(term: Term, scales: Sequence[float]) -> Resizing:
    """Returns the sizes of a term times scales, where these are whole: else it depends on how a scale is rounded."""
    if len(scales) != term.rank:
        raise Wordless("scales of some axes")
    factors = [scale for size, scale in zip(term.sizes, scales, strict=True) if size < 0]
    sizes = [-1 if size < 0 else size * scale for size, scale in zip(term.sizes, scales, strict=True)]
    if any(size != int(size) for size in (*sizes, *factors)) or min(factors, default=1) < 1:
        raise Wordless("sizes that are rounded")
    return Resizing(tuple(map(int, sizes)), tuple(map(int, factors)))
