"""Operators that contract axes: reductions, matrix products, selections; and those whose result depends on data."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trtconv.shapes.lattice.number import ONE, Num, combine, floor_div, larger, product, smaller
from trtconv.shapes.lattice.registry import Inputs, axis_of, given, ints_of, like, normal, operator, shape_of, tensor
from trtconv.shapes.lattice.tensor import Tensor, boxed
from trtconv.shapes.lattice.trial import Node, Opaque, Trial

_INT64 = np.dtype(np.int64)
_DOTS = "..."
_REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


def _fold(function: Callable[[Num, Num], Num]) -> Callable[[Sequence[Num]], Num]:
    def fold(nums: Sequence[Num]) -> Num:
        total = nums[0]
        for num in nums[1:]:
            total = function(total, num)
        return total

    return fold


_FOLDS: dict[str, Callable[[Sequence[Num]], Num]] = {
    "ReduceProd": product,
    "ReduceSum": _fold(lambda a, b: a + b),
    "ReduceMax": _fold(larger),
    "ReduceMin": _fold(smaller),
}


@operator(*(f"Reduce{name}" for name in _REDUCTIONS))
def _reduce(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims = tensor(inputs), shape_of(inputs)
    axes = ints_of(node, inputs, "axes", 1)
    if not axes:
        if node.attrs.get("noop_with_empty_axes", 0):
            return source
        axes = list(range(len(dims)))
    gone = {axis_of(trial, axis, len(dims)) for axis in axes}
    keep = bool(node.attrs.get("keepdims", 1))
    shape = [ONE if axis in gone else dim for axis, dim in enumerate(dims) if keep or axis not in gone]
    fold = _FOLDS.get(node.op)
    data = None
    if fold is not None and source.data is not None and source.data.ndim == 1 and source.data.size:
        data = boxed([fold(list(source.data.flat))], [1] if keep else [])
    return Tensor(shape, data, source.dtype)


@operator("ArgMax", "ArgMin")
def _arg(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = shape_of(inputs)
    at = axis_of(trial, int(node.attrs.get("axis", 0)), len(dims))
    keep = bool(node.attrs.get("keepdims", 1))
    return Tensor([ONE if a == at else d for a, d in enumerate(dims) if keep or a != at], None, _INT64)


@operator("TopK")
def _top_k(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    dims = list(shape_of(inputs))
    axis = axis_of(trial, int(node.attrs.get("axis", -1)), len(dims))
    nums = [Num(int(node.attrs["k"]))] if "k" in node.attrs else tensor(inputs, 1).nums
    count = nums[0] if nums else Num(None)
    fits = combine(np.less_equal, count, dims[axis])
    trial.require(fits, f"takes the best {{0}} of {{1}} at axis {axis}", count, dims[axis])
    dims[axis] = count
    return [like(tensor(inputs), dims), Tensor(dims, None, _INT64)]


_RIGHT_AT = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}


@operator(*_RIGHT_AT)
def _matmul(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    a, b = list(shape_of(inputs)), list(shape_of(inputs, _RIGHT_AT[node.op]))
    if not a or not b:
        raise trial.fail("multiplies a scalar")
    lone = len(a) == 1, len(b) == 1
    a = [ONE, *a] if lone[0] else a
    b = [*b, ONE] if lone[1] else b
    trial.equal(a[-1], b[-2], "multiplies matrices with {0} columns and {1} rows")
    batch = trial.broadcast([a[:-2], b[:-2]]) if a[:-2] or b[:-2] else []
    tail = ([] if lone[0] else [a[-2]]) + ([] if lone[1] else [b[-1]])
    return like(tensor(inputs), [*batch, *tail])


@operator("Gemm")
def _gemm(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    a, b = list(shape_of(inputs)), list(shape_of(inputs, 1))
    if len(a) != 2 or len(b) != 2:
        raise trial.fail("multiplies what are not matrices")
    a = a[::-1] if node.attrs.get("transA", 0) else a
    b = b[::-1] if node.attrs.get("transB", 0) else b
    trial.equal(a[1], b[0], "multiplies matrices with {0} columns and {1} rows")
    bias = given(inputs, 2)
    if bias is not None and bias.shape:
        whole = [a[0], b[1]]
        trial.broadcast([whole, bias.shape])
        for dim, size in zip(reversed(bias.shape), reversed(whole), strict=False):
            trial.require(combine(np.less_equal, dim, size), "adds a bias of size {0} to {1}", dim, size)
    return like(tensor(inputs), [a[0], b[1]])


@operator("Attention")
def _attention(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    query, key, value = (shape_of(inputs, i) for i in range(3))
    if len(node.outputs) > 1 or given(inputs, 4) is not None:
        raise Opaque("it keeps keys and values of earlier calls")
    trial.equal(query[0], key[0], "meets batches of {0} and {1}")
    trial.equal(key[-2], value[-2], "meets {0} keys and {1} values")
    if len(query) == 4:
        trial.equal(query[3], key[3], "meets queries of {0} and keys of {1}")
        return like(tensor(inputs), [*query[:3], value[3]])
    heads = int(node.attrs["q_num_heads"]), int(node.attrs["kv_num_heads"])
    return like(tensor(inputs), [query[0], query[1], floor_div(value[2] * heads[0], Num(heads[1]))])


@operator("Einsum")
def _einsum(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    equation = str(node.attrs["equation"]).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    shapes = [shape_of(inputs, index) for index in range(len(terms))]
    if "." in equation:
        terms, right = _lettered(terms, shapes, right if arrow else None)
    sizes: dict[str, Num] = {}
    for term, dims in zip(terms, shapes, strict=True):
        if len(dims) != len(term):
            raise trial.fail(f"has {len(dims)} dimensions for the term {term}")
        for letter, dim in _diagonal(trial, term, dims).items():
            sizes[letter] = trial.meet(sizes[letter], dim, f"for {letter}") if letter in sizes else dim
    if not arrow:
        right += _of_one_term("".join(terms), right)
    return like(tensor(inputs), [sizes[letter] for letter in right])


def _lettered(terms: Sequence[str], shapes: Sequence[Sequence[Num]], right: str | None) -> tuple[list[str], str]:
    """Returns the terms and the result of an equation, which has a digit for each axis that an ellipsis stands for.

    Args:
        terms: The terms.
        shapes: Of the operands.
        right: The result; None where the equation has none, which then begins with the axes of the ellipsis.
    """
    covered = {
        len(dims) - len(term.replace(_DOTS, "")) for term, dims in zip(terms, shapes, strict=True) if _DOTS in term
    }
    axes = max(covered, default=0)
    if len(covered) != 1 or not 0 <= axes < len(string.digits) or (right is not None and axes and _DOTS not in right):
        raise Opaque("its equation has an ellipsis that stands for other axes in one term than in another")
    letters = string.digits[:axes]
    return [term.replace(_DOTS, letters) for term in terms], letters if right is None else right.replace(_DOTS, letters)


def _of_one_term(every: str, first: str) -> str:
    """Returns in order the letters that are there once, but for those that are first."""
    return "".join(sorted(letter for letter in set(every) - set(first) if every.count(letter) == 1))


def _diagonal(trial: Trial, term: str, dims: Sequence[Num]) -> dict[str, Num]:
    """Returns the sizes of a term by letter; sizes of one that is there twice are equal, even where one is 1."""
    own: dict[str, Num] = {}
    for letter, dim in zip(term, dims, strict=True):
        trial.equal(own.setdefault(letter, dim), dim, f"meets sizes {{0}} and {{1}} for {letter}")
    return own


def _depends(trial: Trial, node: Node) -> None:
    trial.data_dependent.append(node)


@operator("NonZero")
def _non_zero(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    _depends(trial, node)
    source = tensor(inputs)
    return Tensor([Num(None) if source.shape is None else Num(len(source.shape)), Num(None)], None, _INT64)


@operator("NonMaxSuppression")
def _non_max_suppression(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    _depends(trial, node)
    boxes, scores = tensor(inputs).shape, tensor(inputs, 1).shape
    if boxes is not None and scores is not None:
        if len(boxes) != 3 or len(scores) != 3:
            raise trial.fail(f"takes boxes of {len(boxes)} and scores of {len(scores)} dimensions, not 3")
        trial.equal(boxes[0], scores[0], "meets batches of {0} and {1}")
        trial.equal(boxes[1], scores[2], "meets {0} boxes and scores for {1}")
        trial.equal(boxes[2], Num(4), "takes boxes of {0} numbers, not 4")
    return Tensor([Num(None), Num(3)], None, _INT64)


@operator("Unique")
def _unique(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    _depends(trial, node)
    source = tensor(inputs)
    if "axis" in node.attrs and source.shape is not None:
        dims = list(source.shape)
        dims[normal(int(node.attrs["axis"]), len(dims))] = Num(None)
    else:
        dims = [Num(None)]
    return [like(source, dims), *(Tensor([Num(None)], None, _INT64) for _ in range(3))]


@operator("Compress")
def _compress(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    _depends(trial, node)
    source = tensor(inputs)
    if "axis" not in node.attrs:
        return like(source, [Num(None)])
    dims = list(shape_of(inputs))
    dims[normal(int(node.attrs["axis"]), len(dims))] = Num(None)
    return like(source, dims)


@operator("Constant")
def _constant(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    value: Any = node.attrs.get("tensor")
    if not isinstance(value, Tensor):
        raise Opaque("its value is not a tensor")
    return value
