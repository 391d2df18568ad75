"""Numbers at many sizes at once: what a dimension, or an element of a small tensor, is at every candidate size.

A `Num` is a plain number where it is the same at every candidate, else a vector with one entry a candidate. It knows
which free dimensions it depends on (`mask`), so that a condition on it is known to be about just these, and of which
factors it is a product, so that a Reshape from (n, c, h, w) to (n, c, h*w) is seen to fit without dividing anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = 64
_MOST_FACTORS = 64
"""Of a product of more, the factors are not remembered."""
Value = Any
"""An int, float or bool, a vector of them (one entry a candidate), or None where it is not known."""


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the sorted values of a vector, each once.

    `numpy.unique` does the same and loads numpy.ma for it, which takes longer than the lattice of a U-Net.
    """
    ordered: NDArray[Any] = np.sort(values)
    result: NDArray[Any] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return result


class Num:
    """A number at every candidate size.

    Args:
        value: The number, or its vector, or None where it is not known.
        mask: One bit a free dimension that it depends on.
        factors: The numbers that it is the product of, where it was made as one.
    """

    __slots__ = ("factors", "mask", "value")

    def __init__(self, value: Value, mask: int = 0, factors: tuple[Num, ...] = ()) -> None:
        self.value = value
        self.mask = mask
        self.factors = factors

    def __repr__(self) -> str:
        return f"Num({self.value!r}, {self.mask:#b})"

    @property
    def is_known(self) -> bool:
        """Whether its value is known."""
        return self.value is not None

    @property
    def constant(self) -> bool:
        """Whether it is one known number at every candidate."""
        return self.value is not None and not isinstance(self.value, np.ndarray)

    def at(self, row: int) -> Any:
        """Returns the number at one candidate, or None where it is not known."""
        value = self.value[row] if isinstance(self.value, np.ndarray) else self.value
        return value.item() if isinstance(value, np.generic) else value

    @property
    def atoms(self) -> tuple[Num, ...]:
        """Its factors; itself where it is no product."""
        return self.factors or (self,)

    def __add__(self, other: Num | int) -> Num:
        a, b = self, lift(other)
        if is_just(b, 0):
            return a
        return b if is_just(a, 0) else combine(np.add, a, b)

    def __sub__(self, other: Num | int) -> Num:
        b = lift(other)
        return self if is_just(b, 0) else combine(np.subtract, self, b)

    def __mul__(self, other: Num | int) -> Num:
        return product((self, lift(other)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Num:
        return lift(other) - self

    def maximum(self, other: Num | int) -> Num:
        """Returns the larger of two."""
        return larger(self, lift(other))

    def minimum(self, other: Num | int) -> Num:
        """Returns the smaller of two."""
        return smaller(self, lift(other))

    def __floordiv__(self, other: Num | int) -> Num:
        return floor_div(self, lift(other))

    def __mod__(self, other: Num | int) -> Num:
        return combine(_mod, self, lift(other))


def lift(value: Num | Value) -> Num:
    """Returns a number as a `Num`."""
    if isinstance(value, Num):
        return value
    plain = value.item() if isinstance(value, np.integer | np.bool_) else value
    # Nothing that is 64 bits wide in ONNX can be so large.
    return Num(None) if isinstance(plain, int) and plain.bit_length() > _BITS else Num(plain)


ONE = Num(1)


def is_just(num: Num, value: int) -> bool:
    """Whether a number is this one at every candidate."""
    return num.constant and bool(num.value == value)


def combine(function: Callable[[Value, Value], Value], a: Num, b: Num) -> Num:
    """Applies a function of two numbers at every candidate; unknown where one of them is."""
    mask = a.mask | b.mask
    if a.value is None or b.value is None:
        return Num(None, mask)
    value = function(_typed(a.value, b.value), _typed(b.value, a.value))
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return _always(lift(value if isinstance(value, np.floating) else np.asarray(value).item()), mask)
    return settle(a, b, value, mask)


def _typed(value: Value, other: Value) -> Value:
    """Returns a number of Python's in the type of the one beside it; of the two NumPy 1 would make a float64."""
    return type(other)(value) if isinstance(other, np.floating) and isinstance(value, int | float) else value


def settle(a: Num, b: Num, value: NDArray[Any], mask: int) -> Num:
    """Returns one of the operands where the result is it at every candidate, so that its identity is kept."""
    for operand in (a, b):
        if value is operand.value:
            return operand
    if value.dtype == np.bool_ and value.size and bool(value[0]) == bool(value.all()) == bool(value.any()):
        return _always(Num(bool(value[0])), mask)
    return Num(value, mask)


def is_mixed(mask: int) -> bool:
    """Whether a mask is of several dimensions."""
    return bool(mask & (mask - 1))


def _always(num: Num, mask: int) -> Num:
    """Returns what a choice came to at every candidate, where the choice depends on the dimensions of a mask.

    All sizes of one dimension are in a run, so that this is known then. Not all combinations of several are: the choice
    may be another one at those that are not, and the number is marked to depend on them.
    """
    return Num(num.value, num.mask | mask) if is_mixed(mask) and mask & ~num.mask else num


def product(nums: Iterable[Num]) -> Num:
    """Multiplies, and remembers the factors; constants are gathered into one."""
    constant: Value = 1
    atoms: list[Num] = []
    for atom in (a for num in nums for a in num.atoms):
        if atom.constant:
            constant = constant * atom.value
            if isinstance(constant, int) and constant.bit_length() > _BITS:
                return Num(None)
        else:
            atoms.append(atom)
    if not atoms or isinstance(constant, float | np.floating):
        return functools.reduce(functools.partial(combine, np.multiply), atoms, lift(constant))
    if constant == 1 and len(atoms) == 1:
        return atoms[0]
    if constant == 0:
        return Num(0)
    total = functools.reduce(functools.partial(combine, np.multiply), atoms)
    if constant != 1:
        total = combine(np.multiply, total, Num(constant))
        atoms.append(Num(constant))
    if len(atoms) > _MOST_FACTORS:
        return Num(total.value, total.mask)
    return Num(total.value, total.mask, tuple(atoms))


def cancel(above: Sequence[Num], below: Sequence[Num]) -> tuple[Num, Num]:
    """Cancels common factors of two products, and of their constants where one divides the other.

    Returns:
        What is left above and below.
    """
    top = [a for num in above for a in num.atoms]
    rest: list[Num] = []
    for atom in (a for num in below for a in num.atoms):
        twin = next((i for i, a in enumerate(top) if a is atom and not a.constant), None)
        if twin is None:
            rest.append(atom)
        else:
            del top[twin]
    high, low = product(a for a in top if a.constant), product(a for a in rest if a.constant)
    if low.value and high.value % low.value == 0:
        high, low = Num(high.value // low.value), ONE
    elif high.value and low.value % high.value == 0:
        high, low = ONE, Num(low.value // high.value)
    top_left = product((high, *(a for a in top if not a.constant)))
    return top_left, product((low, *(a for a in rest if not a.constant)))


def floor_div(a: Num, b: Num) -> Num:
    """Divides non-negative numbers and rounds down; exact where factors cancel."""
    if is_just(b, 1):
        return a
    above, below = cancel([a], [b]) if _whole(a) and _whole(b) else (a, b)
    return above if is_just(below, 1) else combine(_div, above, below)


def truncated_div(a: Num, b: Num) -> Num:
    """Divides integers as C does, rounding towards zero."""
    if is_negative(a) or is_negative(b):
        return combine(_trunc_div, a, b)
    return floor_div(a, b)


def is_negative(num: Num) -> bool:
    """Whether it is below zero at some candidate."""
    return num.value is not None and bool(np.any(np.asarray(num.value) < 0))


def ceil_div(a: Num, b: int) -> Num:
    """Divides by a positive number and rounds up."""
    return a if b == 1 else combine(lambda x, y: -(-x // y), a, Num(b))


def larger(a: Num, b: Num) -> Num:
    """Returns the larger number at every candidate; the operand itself where one is never the smaller."""
    return _choose(a, b, np.greater_equal)


def smaller(a: Num, b: Num) -> Num:
    """Returns the smaller number at every candidate; the operand itself where one is never the larger."""
    return _choose(a, b, np.less_equal)


def _choose(a: Num, b: Num, better: Callable[[Value, Value], Value]) -> Num:
    if a is b:
        return a
    if a.value is None or b.value is None:
        return Num(None, a.mask | b.mask)
    wins, mask = better(a.value, b.value), a.mask | b.mask
    if np.all(wins):
        return _always(a, mask)
    if not np.any(wins):
        return _always(b, mask)
    return Num(np.where(wins, a.value, b.value), mask)


def select(condition: Num, a: Num, b: Num) -> Num:
    """Returns `a` where a condition holds, else `b`."""
    if a is b:
        return a
    if condition.value is None:
        return Num(None, condition.mask | a.mask | b.mask)
    if np.all(condition.value):
        return _always(a, condition.mask)
    if not np.any(condition.value):
        return _always(b, condition.mask)
    mask = condition.mask | a.mask | b.mask
    if a.value is None or b.value is None:
        return Num(None, mask)
    return Num(np.where(condition.value, a.value, b.value), mask)


def identical(a: Num, b: Num) -> bool:
    """Whether two numbers are equal whatever the sizes are: the same, or products of the same factors."""
    if a is b:
        return True
    if len(a.factors) != len(b.factors) or not a.factors:
        return False
    keys = [sorted(atom.value if atom.constant else -id(atom) for atom in num.factors) for num in (a, b)]
    return keys[0] == keys[1]


def same(a: Num, b: Num) -> bool:
    """Whether two numbers are known to be equal at every candidate."""
    return a is b or (a.is_known and b.is_known and bool(np.all(np.equal(a.value, b.value))))


def _whole(num: Num) -> bool:
    return num.is_known and np.asarray(num.value).dtype.kind in "iu"


def _div(a: Value, b: Value) -> Value:
    return a // _nonzero(b)


def _trunc_div(a: Value, b: Value) -> Value:
    b = _nonzero(b)
    quotient = np.abs(a) // np.abs(b)
    return quotient * (np.sign(a) * np.sign(b))


def _mod(a: Value, b: Value) -> Value:
    return a % _nonzero(b)


def _nonzero(value: Value) -> Value:
    """Replaces zero divisors: a program that divides by zero has no meaning at that candidate."""
    return np.where(np.equal(value, 0), 1, value) if np.any(np.equal(value, 0)) else value
