"""How far the elements of a tensor reach that has too many to follow: indices, which must lie within an axis."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from trtconv.shapes.lattice.number import Num, combine, is_just, larger, smaller
from trtconv.shapes.lattice.tensor import Elements, Reach, Tensor
from trtconv.shapes.lattice.trial import Node

_REARRANGED = frozenset(
    ("Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)
"""Operators whose result has the elements of their first input, all of them and no others, if it has any."""
_NOT_KNOWN = (Num(None), Num(None))
_BOUNDS = {"Max": larger, "Min": smaller}


def reach_of(node: Node, inputs: Sequence[Tensor | None], output: Tensor) -> Reach | None:
    """Returns the smallest and the largest element of a node's first result, where both are known to occur.

    Args:
        node: The node.
        inputs: What it reads.
        output: Its result, whose elements are followed where they are few.
    """
    operands = [operand for operand in inputs if operand is not None]
    if output.data is not None or not output.shape or output.dtype is None or output.dtype.kind not in "iu":
        return None
    if node.op in _REARRANGED:
        reach = known_reach(operands[0])
        return reach if reach is not None and len(reach) == 1 else None
    if node.op == "Range":
        return _counted(operands, output.shape[0])
    if node.op in ("Add", "Sub") and _are_apart(operands):
        return _summed(operands, node.op == "Sub")
    if node.op in _BOUNDS and len(operands) == 2:
        return _bounded(operands, node.op)
    if node.op == "Concat":
        # As many as there are places where parts of one place each are joined along the last axis.
        reaches = map(known_reach, operands)
        return tuple(_NOT_KNOWN if reach is None else reach[0] for reach in reaches)
    return None


def known_reach(tensor: Tensor) -> Reach | None:
    """Returns how far a tensor's elements reach, also where each is known."""
    if tensor.data is None:
        return tensor.reach
    reach = _reach_of_all(tensor, tensor.data)
    return None if reach is None else (reach,)


def reach_by_place(tensor: Tensor, places: int) -> Reach:
    """Returns how far the elements at each place of the last axis reach, of which there are so many; nothing where that
    is not known."""
    if tensor.data is None:
        return tensor.reach if tensor.reach is not None and len(tensor.reach) == places else ()
    reaches = [_reach_of_all(tensor, tensor.data[..., place]) for place in range(places)]
    return tuple(reach or _NOT_KNOWN for reach in reaches)


def _reach_of_all(tensor: Tensor, elements: Elements) -> tuple[Num, Num] | None:
    nums = list(elements.flat)
    if not nums or tensor.dtype is None or tensor.dtype.kind not in "iu":
        return None
    return functools.reduce(smaller, nums), functools.reduce(larger, nums)


def _counted(ends: Sequence[Tensor], count: Num) -> Reach | None:
    start, delta = (known_reach(ends[index]) for index in (0, 2))
    if start is None or delta is None:
        return None
    first = start[0][0]
    last = first + (count - 1) * delta[0][0]
    return ((smaller(first, last), larger(first, last)),)


def _summed(operands: Sequence[Tensor], is_difference: bool) -> Reach | None:
    one, other = map(known_reach, operands)
    if one is None or other is None or len(one) != 1 or len(other) != 1:
        return None
    (low, high), (least, most) = one[0], other[0]
    return ((low - most, high - least),) if is_difference else ((low + least, high + most),)


def _are_apart(operands: Sequence[Tensor]) -> bool:
    """Whether each element of one of two tensors meets each of the other."""
    shapes = [operand.shape for operand in operands]
    if len(shapes) != 2 or any(shape is None for shape in shapes):
        return False
    pairs = zip(*(reversed(shape or ()) for shape in shapes), strict=False)
    return all(is_just(one, 1) or is_just(other, 1) for one, other in pairs)


def _bounded(operands: Sequence[Tensor], op: str) -> Reach | None:
    if not any(all(is_just(size, 1) for size in operand.shape or ()) for operand in operands):
        return None
    one, other = map(known_reach, operands)
    if one is None or other is None or len(one) != 1 or len(other) != 1:
        return None
    choose = _BOUNDS[op]
    return ((choose(one[0][0], other[0][0]), choose(one[0][1], other[0][1])),)


def lies_within(reach: tuple[Num, Num], size: Num, counts: Sequence[Num]) -> Num:
    """Returns whether indices lie within a size, or there are none.

    Args:
        reach: The smallest and the largest.
        size: Of what they are taken.
        counts: The shape of the indices.
    """
    least, most = reach
    within = combine(np.logical_and, combine(np.less, most, size), combine(np.greater_equal, least + size, Num(0)))
    for count in counts:
        if not (count.constant and count.value):
            within = combine(np.logical_or, within, combine(np.equal, count, Num(0)))
    return within
