"""Few integers that a graph works out from sizes of its tensors, one by one: the shapes to which it brings others."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import numpy as np

from trtconv.graph.types import INTEGERS
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.term import Term, Wordless, constant

Length = int | Term
"""A number that is known, or the term of one."""

_MOST = 64
"""Of one tensor."""


def _divided(one: int, other: int) -> int:
    if not other:
        raise Wordless("division by zero")
    # Towards zero.
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


_FOLDED: dict[str, Callable[[int, int], int]] = {
    "SUM": operator.add,
    "SUB": operator.sub,
    "PROD": operator.mul,
    "DIV": _divided,
}


def settled(term: Term) -> Term:
    """Returns what sizes make of few integers as a list of these, however a graph puts them together; else the term."""
    if term.array is not None or term.op == "lengths" or term.dtype not in INTEGERS or term.rank > 1:
        return term
    lengths = lengths_of(term) if term.is_static and math.prod(term.sizes) <= _MOST else None
    return term if lengths is None else _listed(lengths, term)


def lengths_of(term: Term) -> list[Length] | None:
    """Returns each of few integers; None of those that do not come from sizes alone."""
    if term.array is not None:
        return [int(value) for value in term.array.reshape(-1)] if term.array.size <= _MOST else None
    read = _READ.get(term.op)
    return read(term) if read is not None else None


def reshaped_to(term: Term, target: Term, zero_copies: bool) -> Term:
    """Returns a term in a shape that is worked out from sizes.

    Args:
        term: The term.
        target: The shape.
        zero_copies: Whether 0 is the size at that place.

    Raises:
        Wordless: The shape comes from anything else.
    """
    lengths = lengths_of(target)
    if lengths is None or (0 in lengths and not zero_copies):
        raise Wordless("sizes that are computed")
    places = [0 if _is_own(term, axis, length) else length for axis, length in enumerate(lengths)]
    computed = [length for length in places if isinstance(length, Term)]
    sizes = [-1 if isinstance(length, Term) else length for length in places]
    if not computed:
        return terms.reshaped(term, sizes)
    if 0 in sizes[term.rank :]:
        raise Wordless("a size of no axis")
    result = tuple(term.sizes[axis] if size == 0 else size for axis, size in enumerate(sizes))
    how = tuple(None if isinstance(length, Term) else length for length in places)
    return Term("reshape to", (term, *computed), (how, zero_copies), term.dtype, result)


def part_of(term: Term, target: Term) -> list[int]:
    """Returns how long a part of a term is: of each axis how many, as `term.sizes` where all of them are meant.

    Args:
        target: How many, worked out from sizes.

    Raises:
        Wordless: Some are neither known nor all.
    """
    lengths = lengths_of(target)
    if lengths is None or len(lengths) != term.rank:
        raise Wordless("sizes that are computed")
    return [_part(term, axis, length) for axis, length in enumerate(lengths)]


def _part(term: Term, axis: int, length: Length) -> int:
    if _is_own(term, axis, length):
        return term.sizes[axis]
    if isinstance(length, Term) or length < 0:
        raise Wordless("a part that depends on sizes")
    return length


def _is_own(term: Term, axis: int, length: Length) -> bool:
    """Whether a length is the size of that axis of a term."""
    if isinstance(length, int) or length.op != "size" or axis >= term.rank:
        return False
    own = _size(term, axis)
    return isinstance(own, Term) and own.source is length.source and own.details == length.details


def _size(term: Term, axis: int) -> Length:
    if term.sizes[axis] >= 0:
        return term.sizes[axis]
    while term.op in ("softmax", "cast", "transpose"):
        # They keep the sizes of what they are of.
        axis = term.details[0][axis] if term.op == "transpose" else axis
        term = term.source
    return Term("size", (term,), (axis,), "int64", ())


def _listed(lengths: Sequence[Length], term: Term) -> Term:
    numbers = [length for length in lengths if isinstance(length, int)]
    if len(numbers) == len(lengths):
        return constant(np.array(numbers, term.dtype).reshape(term.sizes))
    computed = tuple(length for length in lengths if isinstance(length, Term))
    how = tuple(length if isinstance(length, int) else None for length in lengths)
    return Term("lengths", computed, how, term.dtype, term.sizes)


def _of_list(term: Term) -> list[Length]:
    computed = iter(term.operands)
    return [next(computed) if length is None else length for length in term.details]


def _of_shape(term: Term) -> list[Length]:
    return [_size(term.source, axis) for axis in range(term.source.rank)]


def _of_source(term: Term) -> list[Length] | None:
    return lengths_of(term.source)


def _of_cast(term: Term) -> list[Length] | None:
    lengths = lengths_of(term.source) if term.source.dtype in INTEGERS else None
    # Sizes fit into every type of integers, what is computed of them need not.
    return lengths if all(isinstance(length, int) or length.op == "size" for length in lengths or ()) else None


def _of_parts(term: Term) -> list[Length] | None:
    if term.rank != 1:
        # Their order would be another.
        return None
    joined: list[Length] = []
    for part in map(lengths_of, term.operands):
        if part is None:
            return None
        joined += part
    return joined


def _of_rows(term: Term) -> list[Length] | None:
    source, rows = map(lengths_of, term.operands)
    if source is None or rows is None or term.source.rank != 1:
        return None
    places = [row for row in rows if isinstance(row, int)]
    return [source[place] for place in places] if len(places) == len(rows) else None


def _of_slice(term: Term) -> list[Length] | None:
    source, ((start,), (step,)) = lengths_of(term.source), term.details
    return None if source is None else [source[start + at * step] for at in range(term.sizes[0])]


def _of_two(term: Term) -> list[Length] | None:
    one, other = map(lengths_of, term.operands)
    if term.rank > 1 or one is None or other is None or not one or not other:
        return None
    count = max(len(one), len(other))
    pairs = zip(*(lengths * (count // len(lengths)) for lengths in (one, other)), strict=True)
    return [_joined(term, *pair) for pair in pairs]


def _joined(term: Term, one: Length, other: Length) -> Length:
    if isinstance(one, int) and isinstance(other, int):
        return _FOLDED[term.op](one, other)
    operands = (
        length if isinstance(length, Term) else constant(np.array(length, term.dtype)) for length in (one, other)
    )
    return Term(term.op, tuple(operands), (), term.dtype, ())


_READ: dict[str, Callable[[Term], list[Length] | None]] = {
    **dict.fromkeys(_FOLDED, _of_two),
    "cast": _of_cast,
    "concat": _of_parts,
    "gather": _of_rows,
    "lengths": _of_list,
    "reshape": _of_source,
    "shape": _of_shape,
    "slice": _of_slice,
    "squeeze": _of_source,
    "unsqueeze": _of_source,
}
"""What is done to what each integer of the result is."""
