"""What was worked out before in a run: networks repeat the same operators on the same sizes.

A number that depends on one dimension is kept once, however often it is computed, so that the same operator on the
same sizes is met again; it then imposes the same conditions and makes the same shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.number import Num, is_mixed
from trtconv.shapes.lattice.tensor import Reach, Tensor
from trtconv.shapes.lattice.trial import Check, Node, Trial

_MOST_KEPT = 1 << 24
"""Entries of vectors that are kept, of 8 bytes each."""
_FEW = 8
"""Elements of a tensor up to which they are compared one by one."""
_BY_SHAPE = frozenset(("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "PRelu", "Gemm"))
"""Operators whose result has the same shape whatever the elements of their inputs are."""

Inputs = Sequence[Tensor | None]


@frozen
class _Done:
    """What came of an operator.

    Args:
        outputs: Its results.
        checks: The conditions that it imposed and that do not hold everywhere.
        compared: How many of its conditions were about several dimensions.
        inputs: Kept, so that no other number takes the place of one of theirs.
    """

    outputs: Sequence[Tensor]
    checks: Sequence[Check]
    compared: int
    inputs: Inputs


class Repeats:
    """What operators made of which shapes in one run.

    Args:
        trial: The run.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._results: dict[Hashable, _Done] = {}
        self._nums: dict[Hashable, Num] = {}
        self._size = 0

    def outputs(self, node: Node, inputs: Inputs, work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], bool]:
        """Returns what an operator makes, and whether it had to be worked out.

        Args:
            node: The node.
            inputs: Its inputs.
            work: Works it out; what it raises is raised here.
        """
        key = _node_key(node, inputs)
        entry = None if key is None else self._results.get(key)
        if entry is None:
            return self._first(key, inputs, work), True
        self._trial.checks += [dataclasses.replace(check, node=node) for check in entry.checks]
        self._trial.compared += entry.compared
        return [_copied(tensor) for tensor in entry.outputs], False

    def _first(self, key: Hashable, inputs: Inputs, work: Callable[[], list[Tensor]]) -> list[Tensor]:
        trial = self._trial
        checks, compared, blamed = len(trial.checks), trial.compared, len(trial.data_dependent)
        outputs = work()
        if key is None or len(trial.data_dependent) != blamed or self._size > _MOST_KEPT:
            return outputs
        for tensor in outputs:
            if tensor.shape is not None:
                tensor.shape = [self._once(num) for num in tensor.shape]
        copies = [_copied(tensor) for tensor in outputs]
        self._results[key] = _Done(copies, trial.checks[checks:], trial.compared - compared, inputs)
        return outputs

    def _once(self, num: Num) -> Num:
        """Returns the number that stands for all that are the same at every candidate.

        A product keeps its factors, and what depends on several dimensions its identity: it may be another at
        combinations that are not in this run.
        """
        value = num.value
        if not isinstance(value, np.ndarray) or num.factors or is_mixed(num.mask):
            return num
        first = self._nums.setdefault((num.mask, value.dtype, value.tobytes()), num)
        self._size += 2 * value.size if first is num else 0
        return first


def _copied(tensor: Tensor) -> Tensor:
    return Tensor(None if tensor.shape is None else list(tensor.shape), tensor.data, tensor.dtype, tensor.reach)


def _node_key(node: Node, inputs: Inputs) -> Hashable:
    """Returns what is the same for two nodes that make the same of their inputs; None where that cannot be told."""
    attrs = _attrs_key(node.attrs)
    if attrs is None:
        return None
    with_elements = node.op not in _BY_SHAPE
    tensors = tuple([None if tensor is None else _tensor_key(tensor, with_elements) for tensor in inputs])
    return node.op, node.opset, len(node.outputs), attrs, tensors


def _attrs_key(attrs: Mapping[str, Any]) -> Hashable:
    pairs = []
    for name, value in attrs.items():
        parts = tuple(value) if isinstance(value, list) else (value,)
        if not all(element is None or isinstance(element, int | float | str | bytes | np.dtype) for element in parts):
            return None
        pairs.append((name, parts))
    return tuple(pairs)


def _tensor_key(tensor: Tensor, with_elements: bool) -> Hashable:
    shape = None if tensor.shape is None else tuple([_num_key(num) for num in tensor.shape])
    if tensor.data is None or not with_elements:
        reach = None if tensor.reach is None or not with_elements else _reach_key(tensor.reach)
        return shape, tensor.dtype, tensor.data is None, reach
    if tensor.data.size > _FEW:
        return shape, tensor.dtype, id(tensor.data)
    return shape, tensor.dtype, tuple([_num_key(num) for num in tensor.data.flat])


def _reach_key(reach: Reach) -> Hashable:
    return tuple([(_num_key(least), _num_key(most)) for least, most in reach])


def _num_key(num: Num) -> Hashable:
    return (type(num.value), num.value, num.mask) if num.constant else id(num)
