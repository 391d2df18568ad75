"""Slices, gathers and scatters of shapes and of the values in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.shapes.lattice.number import ONE, Num, ceil_div, combine, is_just, larger, select, smaller
from trtconv.shapes.lattice.reach import lies_within, reach_by_place
from trtconv.shapes.lattice.registry import Inputs, axis_of, given, ints_of, like, normal, operator, shape_of, tensor
from trtconv.shapes.lattice.reshaping import FAR
from trtconv.shapes.lattice.tensor import MAX_ELEMENTS, Elements, Tensor, boxed
from trtconv.shapes.lattice.trial import Node, Opaque, Trial


@operator("Slice")
def _slice(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims = tensor(inputs), list(shape_of(inputs))
    plan = _slice_plan(node, inputs)
    data = source.data
    for axis, start, end, step in plan:
        if not -len(dims) <= axis < len(dims):
            raise trial.fail(f"slices axis {axis} of {len(dims)} dimensions")
        axis = normal(axis, len(dims))
        if data is not None:
            data = _sliced(data, axis, start, end, step)
        dims[axis] = _slice_size(dims[axis], start, end, step)
    return Tensor(dims, data, source.dtype)


def _slice_plan(node: Node, inputs: Inputs) -> list[tuple[int, Num, Num, Num]]:
    if "starts" in node.attrs:
        starts, ends = ([Num(n) for n in node.attrs[key]] for key in ("starts", "ends"))
        axes = [int(n) for n in node.attrs.get("axes", range(len(starts)))]
        return [(axis, a, b, ONE) for axis, a, b in zip(axes, starts, ends, strict=True)]
    first, last = tensor(inputs, 1).nums, tensor(inputs, 2).nums
    if first is None or last is None:
        raise Opaque("it slices from and to positions that are not known")
    subset = ints_of(node, inputs, "axes", 3)
    axes = list(range(len(first))) if subset is None else subset
    step_input = given(inputs, 4)
    steps = [ONE] * len(first) if step_input is None else step_input.nums or [Num(None) for _ in range(len(first))]
    return list(zip(axes, first, last, steps, strict=True))


def _sliced(data: Elements, axis: int, start: Num, end: Num, step: Num) -> Elements | None:
    if not (start.constant and end.constant and step.constant):
        return None
    stop = None if step.value < 0 and end.value < -data.shape[axis] else end.value
    picks: Elements = data[(slice(None),) * axis + (slice(start.value, stop, step.value),)]
    return picks


def _slice_size(dim: Num, start: Num, end: Num, step: Num) -> Num:
    whole = is_just(start, 0) and (end is dim or (end.constant and end.value >= FAR))
    if whole and is_just(step, 1):
        return dim
    if not all(num.is_known for num in (dim, start, end)) or not step.constant or step.value == 0:
        return Num(None)
    if step.value > 0:
        first, last = (smaller(larger(_from_front(n, dim), Num(0)), dim) for n in (start, end))
        return larger(ceil_div(last - first, step.value), Num(0))
    first = smaller(larger(_from_front(start, dim), Num(0)), dim - 1)
    # ONNX Runtime reads the largest integer of 32 and of 64 bits as "to the first element" when it counts down.
    to_first = end.constant and end.value in (FAR, 2**63 - 1)
    last = Num(-1) if to_first else smaller(larger(_from_front(end, dim), Num(-1)), dim - 1)
    return larger(ceil_div(first - last, -step.value), Num(0))


def _from_front(position: Num, dim: Num) -> Num:
    if position.constant:
        # Far ends ("to the last") must not overflow.
        bounded = Num(max(min(position.value, 2**62), -(2**62)))
        return dim + bounded if position.value < 0 else bounded
    return select(combine(np.less, position, Num(0)), position + dim, position)


@operator("Gather")
def _gather(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims, indices = tensor(inputs), shape_of(inputs), tensor(inputs, 1)
    axis = axis_of(trial, int(node.attrs.get("axis", 0)), len(dims))
    for num in indices.data.flat if indices.data is not None else ():
        _require_within(trial, (num, num), dims[axis], axis, ())
    for reach in indices.reach or ():
        _require_within(trial, reach, dims[axis], axis, shape_of(inputs, 1))
    picks = indices.ints
    data = None
    if source.data is not None and picks is not None and indices.shape is not None:
        data = _take(source.data, np.array(picks, np.int64).reshape([int(n.value) for n in indices.shape]), axis)
    shape = [*dims[:axis], *shape_of(inputs, 1), *dims[axis + 1 :]]
    return Tensor(shape, data, source.dtype)


def _require_within(trial: Trial, reach: tuple[Num, Num], size: Num, axis: int, counts: Sequence[Num]) -> None:
    within, most = lies_within(reach, size, counts), reach[1]
    trial.require(within, f"takes element {{0}} of {{1}} at axis {axis}", most, size)


def _take(data: Elements, picks: NDArray[np.int64], axis: int) -> Elements | None:
    size = data.shape[axis]
    if ((picks < -size) | (picks >= size)).any():
        return None
    elements = np.take(data, picks, axis)
    return elements if isinstance(elements, np.ndarray) else boxed([elements], ())


@operator("GatherElements")
def _gather_elements(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, picks = shape_of(inputs), shape_of(inputs, 1)
    along = axis_of(trial, int(node.attrs.get("axis", 0)), len(dims))
    for axis, (count, dim) in enumerate(zip(picks, dims, strict=False)):
        if axis != along:
            trial.require(
                combine(np.less_equal, count, dim), f"takes {{0}} of {{1}} elements at axis {axis}", count, dim
            )
    return like(tensor(inputs), picks)


@operator("GatherND")
def _gather_nd(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, indices = shape_of(inputs), shape_of(inputs, 1)
    batch = int(node.attrs.get("batch_dims", 0))
    if not indices or not indices[-1].constant:
        raise Opaque("the length of its index tuples is not known")
    for axis in range(batch):
        trial.equal(dims[axis], indices[axis], f"meets sizes {{0}} and {{1}} at axis {axis}")
    for axis, reach in enumerate(reach_by_place(tensor(inputs, 1), int(indices[-1].value)), batch):
        _require_within(trial, reach, dims[axis], axis, indices)
    return like(tensor(inputs), [*indices[:-1], *dims[batch + int(indices[-1].value) :]])


@operator("ScatterElements", "Scatter", "ScatterND", "TensorScatter")
def _scatter(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source = tensor(inputs)
    if node.op == "ScatterND":
        _check_updates(trial, inputs)
    return like(source)


def _check_updates(trial: Trial, inputs: Inputs) -> None:
    dims, indices, updates = (tensor(inputs, i).shape for i in range(3))
    if dims is None or not indices or updates is None or not indices[-1].constant:
        return
    sizes = [*indices[:-1], *dims[int(indices[-1].value) :]]
    if len(sizes) != len(updates):
        raise trial.fail("writes updates of another rank than its indices ask for")
    for axis, (a, b) in enumerate(zip(updates, sizes, strict=True)):
        trial.equal(a, b, f"writes updates of size {{0}} where there are {{1}}, at axis {axis}")


@operator("OneHot")
def _one_hot(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, depth = list(shape_of(inputs)), tensor(inputs, 1).data
    axis = int(node.attrs.get("axis", -1))
    at = axis + len(dims) + 1 if axis < 0 else axis
    deep = Num(None) if depth is None else next(iter(depth.flat))
    dims.insert(at, deep)
    data = _one_hot_elements(inputs, deep, at)
    return like(tensor(inputs, 2), dims) if data is None else Tensor(dims, data, tensor(inputs, 2).dtype)


def _one_hot_elements(inputs: Inputs, depth: Num, axis: int) -> Elements | None:
    """Returns the elements where few are at places that are known, as torch's older exporter writes repeats of an axis;
    None of others."""
    source, ends = tensor(inputs), tensor(inputs, 2).data
    shape = [num.value for num in source.shape or ()]
    places = source.ints
    if ends is None or places is None or not depth.constant or not all(isinstance(size, int) for size in shape):
        return None
    if len(places) * int(depth.value) > MAX_ELEMENTS:
        return None
    off, on = ends.flat
    rows = [
        [on if at in (place, place + int(depth.value)) else off for at in range(int(depth.value))] for place in places
    ]
    data = boxed([num for row in rows for num in row], [*shape, int(depth.value)])
    return np.moveaxis(data, -1, axis)
