"""Terms, and how they are made: whoever writes the same thing down in another way gets the same term."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.graph.types import INTEGERS
from trtconv.runtimes.proof.batch_norm import Folded
from trtconv.runtimes.proof.bits import same_bits

Sizes = tuple[int, ...]
"""Sizes of axes; -1 where one is not known."""

FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
_COMMUTATIVE = frozenset({"SUM", "PROD", "MAX", "MIN", "EQUAL", "AND", "OR", "XOR"})
_COUNTED = frozenset({"SUM", "SUB", "PROD", "DIV", "MAX", "MIN"})
"""What integers are joined by in one way; they are divided towards zero."""
_COMPARED = frozenset({"EQUAL", "GREATER", "LESS"})
_LOGICAL = frozenset({"AND", "OR", "XOR"})
_TESTED = frozenset({"ISNAN", "ISINF"})
_MOST_LOOKS = 2000
"""Comparisons of two terms, beyond which nothing is said: sums of sums may be in any order."""


_MOST_ELEMENTS = 4096
"""Elements of a constant that is computed with: sizes, axes, scales."""
MAX_ELEMENTS = 1 << 16
"""Elements of what is computed so: of few, much may be made."""


_MOST_TOGETHER = 1 << 22
"""Of what is computed so in one piece."""


class Room:
    """How many elements may still be made in a piece: many nodes, each with a few bytes, may each make much of few."""

    def __init__(self) -> None:
        self._elements = _MOST_TOGETHER

    def take(self, terms: Iterable[Term]) -> None:
        """Counts constants, but for large ones, which only a model has.

        Raises:
            Wordless: There are too many.
        """
        for term in terms:
            if term.array is not None and term.array.size <= MAX_ELEMENTS:
                self._elements -= term.array.size
        if self._elements < 0:
            raise Wordless("much of few")


def is_small(array: Array | None) -> bool:
    """Whether an array is known, and has few elements."""
    return array is not None and array.size <= _MOST_ELEMENTS


class Wordless(Exception):
    """What a node or a layer computes is not written down here."""


class Term:
    """What one tensor is.

    Args:
        op: What is done; "tensor" or "constant" for what is there.
        operands: To what.
        details: How; of a tensor, its name.
        dtype: Of the result, as NumPy or ml_dtypes names it.
        sizes: Of the result.
        array: The values of a constant.
        folded: Of a constant that a parser computes, what it comes to.
    """

    __slots__ = ("array", "details", "dtype", "folded", "op", "operands", "sizes")

    def __init__(
        self,
        op: str,
        operands: tuple[Term, ...],
        details: tuple[Any, ...],
        dtype: str,
        sizes: Sizes,
        array: Array | None = None,
        folded: Folded | None = None,
    ) -> None:
        self.op, self.operands, self.details, self.dtype = op, operands, details, dtype
        self.sizes, self.array, self.folded = sizes, array, folded

    @property
    def source(self) -> Term:
        """The first of its operands."""
        return self.operands[0]

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.sizes)

    @property
    def is_static(self) -> bool:
        """Whether all its sizes are known."""
        return -1 not in self.sizes

    def axis(self, axis: int) -> int:
        """Returns an axis counted from the front."""
        if not -self.rank <= axis < self.rank:
            raise Wordless(f"axis {axis} of {self.rank}")
        return axis % self.rank


def tensor(name: str, dtype: str, sizes: Sizes) -> Term:
    """Returns the term of a tensor that both sides have."""
    return Term("tensor", (), (name,), dtype, sizes)


def constant(array: Array) -> Term:
    """Returns the term of values that are known."""
    return Term("constant", (), (), _name_of(array.dtype), array.shape, array)


def constant_near(values: Folded, dtype: str, sizes: Sizes) -> Term:
    """Returns the term of values that a parser computes in a type of its own."""
    return Term("constant", (), (), dtype, sizes, folded=values)


def either(one: Term, other: Term) -> Term:
    """Returns the term of what is written down in two ways, each of which is right."""
    return Term("either", (one, other), (), one.dtype, one.sizes)


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    # NumPy makes it up in Python each time.
    return str(dtype.name)


def same(one: Term, other: Term) -> bool:
    """Whether two terms are the same but for the order of sums and products."""
    # A part may occur in many places, and its weights be large.
    verdicts: dict[tuple[int, int], bool] = {}

    def alike(a: Term, b: Term) -> bool:
        key = id(a), id(b)
        if key not in verdicts:
            verdicts[key] = len(verdicts) < _MOST_LOOKS and compared(a, b)
        return verdicts[key]

    def compared(a: Term, b: Term) -> bool:
        if (a.op == "either") != (b.op == "either"):
            return any(alike(form, other) for form in _forms(a) for other in _forms(b))
        if a.op != b.op or a.details != b.details or a.dtype != b.dtype or len(a.operands) != len(b.operands):
            return False
        if a.sizes != b.sizes:
            return False
        if a.folded is not None or b.folded is not None:
            return _is_near(a, b)
        if a.array is not None and b.array is not None:
            return _same_values(a.array, b.array)
        if all(map(alike, a.operands, b.operands)):
            return True
        return a.op in _COMMUTATIVE and all(map(alike, a.operands, reversed(b.operands)))

    return alike(one, other)


def _forms(term: Term) -> tuple[Term, ...]:
    return term.operands if term.op == "either" else (term,)


def _is_near(one: Term, other: Term) -> bool:
    """Whether constants of which one is folded are the same: two that are, if they were made of the same numbers."""
    if one.folded is not None and other.folded is not None:
        return one.folded.is_same(other.folded)
    values, array = (one.folded, other.array) if one.folded is not None else (other.folded, one.array)
    return values is not None and array is not None and bool(values.near(array.reshape(-1)).all())


def _same_values(a: Array, b: Array) -> bool:
    if a.strides == b.strides:
        # Both as they lie in memory, which takes no copy.
        a, b = a.ravel("K"), b.ravel("K")
    return a.shape == b.shape and same_bits(a, b)


def applied(op: str, operand: Term, *details: Any) -> Term:
    """Returns what a function of single elements makes of a term."""
    if operand.dtype not in ({"bool"} if op == "NOT" else FLOATS):
        raise Wordless(f"{op} of {operand.dtype}")
    return Term(op, (operand,), details, "bool" if op in _TESTED else operand.dtype, operand.sizes)


def joined(op: str, one: Term, other: Term) -> Term:
    """Returns what a function of two elements makes of two terms, which are broadcast."""
    takes = FLOATS | INTEGERS if op in _COUNTED | _COMPARED else {"bool"} if op in _LOGICAL else FLOATS
    if one.dtype != other.dtype or one.dtype not in takes:
        raise Wordless(f"{op} of {one.dtype} and {other.dtype}")
    one, other = _of_one_rank(one, other)
    sizes = tuple(map(_broadcast, one.sizes, other.sizes))
    return Term(op, (one, other), (), "bool" if op in _COMPARED else one.dtype, sizes)


def selection(condition: Term, one: Term, other: Term) -> Term:
    """Returns one term where a condition holds, and the other elsewhere; all are broadcast."""
    if condition.dtype != "bool" or one.dtype != other.dtype:
        raise Wordless(f"a choice of {one.dtype} and {other.dtype} by {condition.dtype}")
    condition, one, other = _of_one_rank(condition, one, other)
    sizes = map(_broadcast, condition.sizes, map(_broadcast, one.sizes, other.sizes))
    return Term("select", (condition, one, other), (), one.dtype, tuple(sizes))


def cast(term: Term, dtype: str) -> Term:
    """Returns a term in another type."""
    if dtype == term.dtype:
        return term
    if not {dtype, term.dtype} <= FLOATS | INTEGERS | {"bool"}:
        raise Wordless(f"{term.dtype} as {dtype}")
    return Term("cast", (term,), (), dtype, term.sizes)


def _of_rank(term: Term, rank: int) -> Term:
    """Returns a term with axes of size 1 in front."""
    return unsqueezed(term, tuple(range(rank - term.rank)))


def _of_one_rank(*terms: Term) -> tuple[Term, ...]:
    rank = max(term.rank for term in terms)
    return tuple(_of_rank(term, rank) for term in terms)


def _broadcast(one: int, other: int) -> int:
    if one == other or other == 1:
        return one
    if one == 1:
        return other
    if -1 not in (one, other):
        raise Wordless(f"sizes {one} and {other}")
    return max(one, other)


def require_floats(*terms: Term) -> None:
    """Raises `Wordless` where terms are of several types, or of no floats."""
    dtypes = {term.dtype for term in terms}
    if len(dtypes) != 1 or not dtypes <= FLOATS:
        raise Wordless(f"types {sorted(dtypes)}")


def transposed(term: Term, permutation: Sequence[int]) -> Term:
    """Returns a term with its axes in another order."""
    order = tuple(permutation)
    if sorted(order) != list(range(term.rank)):
        raise Wordless(f"permutation {order}")
    if order == tuple(range(term.rank)):
        return term
    if term.array is not None:
        return constant(term.array.transpose(order))
    if term.op == "transpose":
        return transposed(term.source, [term.details[0][axis] for axis in order])
    return Term("transpose", (term,), (order,), term.dtype, tuple(term.sizes[axis] for axis in order))


def reshaped(term: Term, target: Sequence[int], zero_copies: bool = True) -> Term:
    """Returns a term in another shape.

    Args:
        term: The term.
        target: The sizes; -1 for what is left, and 0 for the size at that place, or for none.
        zero_copies: Whether 0 is the size at that place.
    """
    shape = [
        term.sizes[axis] if size == 0 and axis < term.rank and term.sizes[axis] > 0 else size
        for axis, size in enumerate(target)
    ]
    lost = 0 in target and (not zero_copies or 0 in target[term.rank :])
    if lost or min(shape, default=0) < -1 or shape.count(-1) > 1 or 0 in term.sizes:
        raise Wordless(f"target {target}")
    if term.is_static:
        return _in_shape(term, _filled(shape, math.prod(term.sizes)))
    if len(shape) == term.rank and all(size in (0, own) for size, own in zip(shape, term.sizes, strict=True)):
        return term
    sizes = tuple(-1 if size == 0 else size for size in shape)
    return Term("reshape", (term,), tuple(shape), term.dtype, sizes)


def _filled(sizes: list[int], elements: int) -> Sizes:
    if -1 in sizes:
        sizes[sizes.index(-1)] = elements // -math.prod(sizes)
    if math.prod(sizes) != elements:
        raise Wordless(f"target {sizes}")
    return tuple(sizes)


def _in_shape(term: Term, sizes: Sizes) -> Term:
    """Returns a term whose sizes are all known in another shape of as many elements."""
    if sizes == term.sizes:
        return term
    if term.array is not None and (term.array.size <= MAX_ELEMENTS or term.array.flags.c_contiguous):
        return constant(term.array.reshape(sizes))
    if term.op == "reshape" and term.source.is_static:
        return _in_shape(term.source, sizes)
    return Term("reshape", (term,), sizes, term.dtype, sizes)


def unsqueezed(term: Term, axes: Sequence[int]) -> Term:
    """Returns a term with axes of size 1 at places of the result."""
    rank = term.rank + len(axes)
    places = sorted(axis % rank for axis in axes if -rank <= axis < rank)
    if len(set(places)) != len(axes):
        raise Wordless(f"axes {axes}")
    if not places:
        return term
    left = iter(term.sizes)
    sizes = tuple(1 if axis in places else next(left) for axis in range(rank))
    if term.is_static:
        return _in_shape(term, sizes)
    return Term("unsqueeze", (term,), tuple(places), term.dtype, sizes)


def squeezed(term: Term, axes: Sequence[int] | None) -> Term:
    """Returns a term without axes of size 1; None: without all of these."""
    if axes is None and term.is_static:
        axes = [axis for axis, size in enumerate(term.sizes) if size == 1]
    elif not axes:
        raise Wordless(f"axes {axes}")
    places = sorted({term.axis(axis) for axis in axes})
    if any(term.sizes[axis] != 1 for axis in places):
        raise Wordless(f"axes {axes}")
    sizes = tuple(size for axis, size in enumerate(term.sizes) if axis not in places)
    if term.is_static:
        return _in_shape(term, sizes)
    return Term("squeeze", (term,), tuple(places), term.dtype, sizes)


def multiplied(one: Term, other: Term) -> Term:
    """Returns the products of matrices, which are broadcast."""
    require_floats(one, other)
    if min(one.rank, other.rank) < 2:
        raise Wordless("a vector")
    one, other = _of_one_rank(one, other)
    batch = map(_broadcast, one.sizes[:-2], other.sizes[:-2])
    return Term("matmul", (one, other), (), one.dtype, (*batch, one.sizes[-2], other.sizes[-1]))


def reduced(op: str, term: Term, axes: Sequence[int], keep: bool) -> Term:
    """Returns what is left of a term where axes are made one element."""
    require_floats(term)
    places = tuple(sorted({term.axis(axis) for axis in axes}))
    if not places:
        raise Wordless("no axes")
    sizes = tuple(1 if axis in places else size for axis, size in enumerate(term.sizes) if keep or axis not in places)
    return Term(f"reduce {op}", (term,), (places, keep), term.dtype, sizes)


def accumulated(term: Term, axis: int, exclusive: bool, reverse: bool) -> Term:
    """Returns the sums of a term up to each place of an axis, from the front or from the end; `exclusive`: without that
    place itself."""
    if term.dtype not in FLOATS | INTEGERS:
        raise Wordless(f"sums of {term.dtype}")
    return Term("cumulative", (term,), (term.axis(axis), exclusive, reverse), term.dtype, term.sizes)


def softened(term: Term, axis: int) -> Term:
    """Returns the softmax of a term along an axis."""
    require_floats(term)
    return Term("softmax", (term,), (term.axis(axis),), term.dtype, term.sizes)


def normalized(term: Term, scale: Term, bias: Term | None, axes: Sequence[int], epsilon: float) -> Term:
    """Returns a term less its mean over axes, over its deviation, by a scale, with a bias.

    Args:
        term: The term.
        scale: By what each is multiplied; as long a shape as the term's.
        bias: What is added then, likewise; None: nothing.
        axes: Over which mean and deviation are taken.
        epsilon: What is added to the variance.
    """
    parameters = [scale] if bias is None or _is_zero(bias) else [scale, bias]
    require_floats(term, *parameters)
    if any(part.rank != term.rank for part in parameters):
        raise Wordless("scales of another rank")
    places = tuple(sorted({term.axis(axis) for axis in axes}))
    return Term("normalize", (term, *parameters), (places, float(np.float32(epsilon))), term.dtype, term.sizes)


def _is_zero(term: Term) -> bool:
    return term.array is not None and not term.array.any()
