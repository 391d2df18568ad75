"""The table of operators: name to the function that tells its outputs' shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trtconv.shapes.lattice.number import Num
from trtconv.shapes.lattice.tensor import Tensor
from trtconv.shapes.lattice.trial import Node, Opaque, Trial

Inputs = Sequence[Tensor | None]
Operator = Callable[[Trial, Node, Inputs], "Tensor | list[Tensor]"]

OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Enters a function into the table.

    Args:
        names: Operators of ONNX by their names, those of other domains as "domain::Op".
    """

    def enter(function: Operator) -> Operator:
        for name in names:
            OPERATORS[name] = function
        return function

    return enter


def given(inputs: Inputs, index: int) -> Tensor | None:
    """Returns an optional input, or None where it is left out."""
    return inputs[index] if index < len(inputs) else None


def tensor(inputs: Inputs, index: int = 0) -> Tensor:
    """Returns an input that must be there."""
    operand = given(inputs, index)
    if operand is None:
        raise Opaque("an input is missing")
    return operand


def shape_of(inputs: Inputs, index: int = 0) -> list[Num]:
    """Returns the shape of an input.

    Raises:
        Opaque: Its rank is not known.
    """
    shape = tensor(inputs, index).shape
    if shape is None:
        raise Opaque("the rank of its input is not known")
    return shape


def ints_of(node: Node, inputs: Inputs, name: str, index: int) -> list[int] | None:
    """Returns constant integers that are an attribute in old opsets and an input in new ones; None where left out.

    Raises:
        Opaque: They are computed at run time.
    """
    if name in node.attrs:
        return [int(n) for n in node.attrs[name]]
    operand = given(inputs, index)
    if operand is None:
        return None
    ints = operand.ints
    if ints is None:
        raise Opaque(f"its {name} are not constant")
    return ints


def normal(axis: int, rank: int) -> int:
    """Returns an axis counted from the front."""
    return axis + rank if axis < 0 else axis


def axis_of(trial: Trial, axis: int, rank: int) -> int:
    """Returns an axis counted from the front.

    Raises:
        Opaque: There is no such axis; noted as a node that never works.
    """
    if not -rank <= axis < rank:
        raise trial.fail(f"has axis {axis} for {rank} dimensions")
    return normal(axis, rank)


def like(source: Tensor, shape: Sequence[Num] | None = None, dtype: Any = None) -> Tensor:
    """Returns a tensor of the same type without elements, of another shape where one is given."""
    return Tensor(list(shape) if shape is not None else source.shape, None, dtype or source.dtype)
