"""Operators that make one shape of another: Reshape, Transpose, Concat, Slice, Gather and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trtconv.shapes.lattice.number import (
    ONE,
    Num,
    cancel,
    ceil_div,
    combine,
    floor_div,
    is_just,
    larger,
    product,
    same,
    select,
)
from trtconv.shapes.lattice.registry import Inputs, axis_of, given, ints_of, like, normal, operator, shape_of, tensor
from trtconv.shapes.lattice.tensor import MAX_ELEMENTS, Elements, Tensor, boxed
from trtconv.shapes.lattice.trial import Node, Opaque, Trial

FAR = 2**31 - 1
_INT64 = np.dtype(np.int64)


@operator("Shape")
def _shape(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = shape_of(inputs)
    return Tensor.of_nums(dims[node.attrs.get("start", 0) : node.attrs.get("end", None)])


@operator("Size")
def _size(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    return Tensor([], boxed([product(shape_of(inputs))], ()), _INT64)


@operator("Reshape")
def _reshape(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source = tensor(inputs)
    target = [Num(n) for n in node.attrs["shape"]] if "shape" in node.attrs else tensor(inputs, 1).nums
    if target is None:
        raise Opaque("its target shape is not known")
    if source.shape is None:
        return like(source, [n if n.constant and n.value > 0 else Num(None) for n in target])
    shape = _target_shape(trial, source.shape, target, bool(node.attrs.get("allowzero", 0)))
    data = source.data
    if data is not None:
        sizes = [n.value for n in shape]
        fits = all(isinstance(n, int) for n in sizes) and math.prod(sizes) == data.size
        data = data.reshape(sizes) if fits else None
    return Tensor(shape, data, source.dtype)


def _target_shape(trial: Trial, dims: Sequence[Num], target: Sequence[Num], allow_zero: bool) -> list[Num]:
    shape: list[Num] = []
    inferred: int | None = None
    for axis, num in enumerate(target):
        if num.constant and num.value == -1:
            if inferred is not None:
                raise trial.fail("asks for more than one size of -1")
            inferred = axis
            shape.append(ONE)
        elif num.constant and num.value == 0 and not allow_zero:
            if axis >= len(dims):
                raise trial.fail(f"copies axis {axis}, which its input does not have")
            shape.append(dims[axis])
        else:
            trial.at_least(num, 0, "asks for size {0}")
            shape.append(num if allow_zero or axis >= len(dims) else _copied(num, dims, axis))
    above, below = cancel(dims, [n for axis, n in enumerate(shape) if axis != inferred])
    if inferred is None:
        says = "makes a shape of {1} elements from {0}", "makes a shape for {1} of every {0} elements of its input"
        trial.equal(above, below, _elements(dims, above, *says))
        return shape
    # Zero elements leave the size open; what is asked for then is an error in ONNX Runtime as well.
    divides = combine(np.equal, above % below, Num(0))
    if not is_just(below, 1):
        says = "splits {0} elements into rows of {1}", "splits {0} elements into rows of {1}, common factors left out"
        trial.require(divides, _elements(dims, above, *says), above, below)
    shape[inferred] = floor_div(above, below)
    return shape


def _copied(num: Num, dims: Sequence[Num], axis: int) -> Num:
    """Returns a computed size; where it comes to 0 that of the input, if that has elements at all."""
    zero = combine(np.equal, num, Num(0))
    if not zero.is_known or not np.any(zero.value):
        return num
    copies = combine(np.logical_and, zero, combine(np.not_equal, product(dims), Num(0)))
    return select(copies, dims[axis], num)


def _elements(dims: Sequence[Num], total: Num, says: str, reduced: str) -> str:
    """Returns how the elements of a Reshape are spoken of: `reduced` where factors that cancel were left out."""
    whole = product(dims)
    return says if whole.is_known and same(whole, total) else reduced


@operator("Flatten")
def _flatten(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = shape_of(inputs)
    axis = normal(int(node.attrs.get("axis", 1)), len(dims))
    return like(tensor(inputs), [product(dims[:axis]), product(dims[axis:])])


@operator("Transpose")
def _transpose(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims = tensor(inputs), shape_of(inputs)
    order = [int(n) for n in node.attrs.get("perm", range(len(dims) - 1, -1, -1))]
    if sorted(order) != list(range(len(dims))):
        raise trial.fail(f"has perm {order} for {len(dims)} dimensions")
    data = None if source.data is None else source.data.transpose(order)
    return Tensor([dims[n] for n in order], data, source.dtype)


@operator("Squeeze")
def _squeeze(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims = tensor(inputs), shape_of(inputs)
    axes = ints_of(node, inputs, "axes", 1)
    if axes is None:
        if not all(dim.constant for dim in dims):
            raise Opaque("it squeezes whatever axes have size 1")
        axes = [axis for axis, dim in enumerate(dims) if dim.value == 1]
    gone = {axis_of(trial, axis, len(dims)) for axis in axes}
    for axis in gone:
        trial.equal(dims[axis], ONE, f"drops axis {axis}, which has size {{0}} and not 1")
    shape = [dim for axis, dim in enumerate(dims) if axis not in gone]
    return Tensor(shape, _reshaped(source.data, shape), source.dtype)


@operator("Unsqueeze")
def _unsqueeze(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims = tensor(inputs), shape_of(inputs)
    axes = ints_of(node, inputs, "axes", 1) or []
    rank = len(dims) + len(axes)
    new = {axis_of(trial, axis, rank) for axis in axes}
    left = iter(dims)
    shape = [ONE if axis in new else next(left) for axis in range(rank)]
    return Tensor(shape, _reshaped(source.data, shape), source.dtype)


def _reshaped(data: Elements | None, shape: Sequence[Num]) -> Elements | None:
    if data is None or not all(isinstance(n.value, int) for n in shape):
        return None
    sizes = [n.value for n in shape]
    return data.reshape(sizes) if math.prod(sizes) == data.size else None


@operator("Concat")
def _concat(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    parts = [t for t in inputs if t is not None]
    shapes = [shape_of(parts, i) for i in range(len(parts))]
    rank = len(shapes[0])
    if any(len(shape) != rank for shape in shapes):
        raise trial.fail("joins tensors of different ranks")
    at = axis_of(trial, int(node.attrs.get("axis", 1)), rank)
    shape = list(shapes[0])
    for other in shapes[1:]:
        for axis in range(rank):
            if axis == at:
                shape[axis] = shape[axis] + other[axis]
            else:
                trial.equal(shape[axis], other[axis], f"joins sizes {{0}} and {{1}} at axis {axis}")
                shape[axis] = _surer(shape[axis], other[axis])
    pieces = [t.data for t in parts]
    data: Elements | None = None
    if all(piece is not None for piece in pieces):
        arrays = [piece for piece in pieces if piece is not None]
        data = np.concatenate(arrays, at) if sum(piece.size for piece in arrays) <= MAX_ELEMENTS else None
    elif rank == 1:
        data = _joined_vectors(parts)
    return Tensor(shape, data, parts[0].dtype)


def _joined_vectors(parts: Sequence[Tensor]) -> Elements | None:
    """Joins vectors of which some elements are unknown: a shape may be of interest without them."""
    nums: list[Num] = []
    for part in parts:
        if part.nums is None or len(nums) + len(part.nums) > MAX_ELEMENTS:
            return None
        nums += part.nums
    return boxed(nums, (len(nums),))


def _surer(a: Num, b: Num) -> Num:
    """Of two equal numbers, returns the one that is known, or depends on less."""
    if not (a.is_known and b.is_known):
        return a if a.is_known else b
    return b if b.mask.bit_count() < a.mask.bit_count() else a


@operator("Split")
def _split(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    source, dims = tensor(inputs), shape_of(inputs)
    axis = axis_of(trial, int(node.attrs.get("axis", 0)), len(dims))
    sizes = _split_sizes(trial, node, inputs, dims[axis])
    outputs, at = [], 0
    for size in sizes:
        data = None
        if source.data is not None and isinstance(size.value, int):
            data = np.take(source.data, range(at, min(at + size.value, source.data.shape[axis])), axis)
            at += size.value
        outputs.append(Tensor([*dims[:axis], size, *dims[axis + 1 :]], data, source.dtype))
    return outputs


def _split_sizes(trial: Trial, node: Node, inputs: Inputs, whole: Num) -> list[Num]:
    split = given(inputs, 1)
    sizes = [Num(n) for n in node.attrs["split"]] if "split" in node.attrs else None if split is None else split.nums
    if sizes is None and split is not None:
        raise Opaque("the sizes that it splits into are not known")
    if sizes is not None:
        total = Num(0)
        for num in sizes:
            total = total + num
        trial.equal(whole, total, "splits size {0} into parts of {1} together")
        return sizes
    count = len(node.outputs)
    if node.opset < 18:
        trial.require(combine(np.equal, whole % count, Num(0)), f"splits size {{0}} into {count} equal parts", whole)
        return [floor_div(whole, Num(count))] * count
    size = ceil_div(whole, count)
    last = whole - size * (count - 1)
    trial.at_least(last, 1, f"leaves {{0}} elements for the last of {count} parts of the same size")
    return [size] * (count - 1) + [last if not same(last, size) else size]


@operator("Expand")
def _expand(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, target = tensor(inputs), tensor(inputs, 1).nums
    if target is None:
        raise Opaque("its target shape is not known")
    shape = trial.broadcast([shape_of(inputs), target]) if target else shape_of(inputs)
    data = source.data
    if data is not None:
        sizes = [n.value for n in shape]
        small = all(isinstance(n, int) for n in sizes) and math.prod(sizes) <= MAX_ELEMENTS
        try:
            data = np.broadcast_to(data, sizes) if small else None
        except ValueError:
            data = None
    return Tensor(shape, data, source.dtype)


@operator("Tile")
def _tile(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims, repeats = tensor(inputs), shape_of(inputs), tensor(inputs, 1)
    times = repeats.nums
    if times is None or len(times) != len(dims):
        raise Opaque("how often it repeats is not known")
    ints = repeats.ints
    data = None
    if source.data is not None and ints is not None and source.data.size * math.prod(ints) <= MAX_ELEMENTS:
        data = np.tile(source.data, ints)
    return Tensor([a * b for a, b in zip(dims, times, strict=True)], data, source.dtype)


@operator("Pad")
def _pad(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, dims = tensor(inputs), list(shape_of(inputs))
    old = node.attrs.get("pads", node.attrs.get("paddings"))
    pads = [Num(n) for n in old] if old is not None else tensor(inputs, 1).nums
    if pads is None:
        raise Opaque("its pads are not known")
    subset = ints_of(node, inputs, "axes", 3)
    axes = list(range(len(dims))) if subset is None else [axis_of(trial, a, len(dims)) for a in subset]
    if len(pads) != 2 * len(axes):
        raise trial.fail(f"has {len(pads)} pads for {len(axes)} axes")
    mode = node.attrs.get("mode", "constant")
    for position, axis in enumerate(axes):
        low, high = pads[position], pads[position + len(axes)]
        if mode == "reflect":
            for pad in (low, high):
                _check_reflection(trial, pad, dims[axis], axis)
        for pad in (low, high):
            if not (pad.constant and pad.value >= 0):
                trial.at_least(dims[axis] + pad, 0, f"leaves {{0}} elements at axis {axis}")
        dims[axis] = dims[axis] + low + high
        trial.at_least(dims[axis], 0, f"leaves {{0}} elements at axis {axis}")
    return like(source, dims)


def _check_reflection(trial: Trial, pad: Num, dim: Num, axis: int) -> None:
    """A reflection has no more elements to offer than there are beside the edge; ONNX Runtime reads beyond them."""
    if not (is_just(pad, 0) or same(pad, Num(0))):
        trial.require(combine(np.less, pad, dim), f"reflects {{0}} of {{1}} elements at axis {axis}", pad, dim)


@operator("ConstantOfShape")
def _constant_of_shape(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = tensor(inputs).nums
    if dims is None:
        raise Opaque("its shape is not known")
    value = node.attrs.get("value")
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    sizes = [n.value for n in dims]
    data = None
    if all(isinstance(n, int) for n in sizes) and math.prod(sizes) <= MAX_ELEMENTS:
        element = Num(fill[0] if fill.dtype.kind == "f" else fill[0].item())
        data = boxed([element] * math.prod(sizes), sizes)
    return Tensor(dims, data, fill.dtype)


@operator("Range")
def _range(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    ends = [tensor(inputs, i) for i in range(3)]
    if any(t.data is None for t in ends):
        raise Opaque("its ends are not known")
    start, limit, delta = (next(iter(t.data.flat)) for t in ends if t.data is not None)
    if is_just(start, 0) and is_just(delta, 1) and limit.is_known and np.asarray(limit.value).dtype.kind in "iu":
        size = limit
    else:
        size = combine(lambda a, b: np.ceil(a / b).astype(np.int64), combine(np.subtract, limit, start), delta)
        size = larger(size, Num(0))
    data = None
    if all(n.constant for n in (start, limit, delta)) and isinstance(size.value, int) and size.value <= MAX_ELEMENTS:
        values = start.value + np.arange(size.value) * delta.value
        data = boxed([Num(v.item() if np.asarray(v).dtype.kind in "iu" else v) for v in values], (size.value,))
    return Tensor([size], data, ends[0].dtype)


@operator("DepthToSpace")
def _depth_to_space(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    batch, channels, height, width = _four(trial, inputs)
    block = int(node.attrs["blocksize"])
    fits = combine(np.equal, channels % (block * block), Num(0))
    trial.require(fits, f"divides {{0}} channels by {block * block}", channels)
    return like(tensor(inputs), [batch, floor_div(channels, Num(block * block)), height * block, width * block])


@operator("Col2Im")
def _columns_to_image(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, image, block = shape_of(inputs), tensor(inputs, 1).nums, tensor(inputs, 2).ints
    if len(dims) != 3 or image is None or block is None:
        raise Opaque("the sizes of its image or of its windows are not known")
    rank, taps, windows = len(block), math.prod(block), ONE
    strides, dilations = (node.attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = node.attrs.get("pads", [0] * 2 * rank)
    for axis, size in enumerate(image):
        extent = (block[axis] - 1) * dilations[axis] + 1
        windows = windows * (floor_div(size + (pads[axis] + pads[axis + rank] - extent), Num(strides[axis])) + 1)
    trial.equal(dims[2], windows, "puts {0} windows where there are {1}")
    trial.require(combine(np.equal, dims[1] % taps, Num(0)), f"divides {{0}} channels by {taps}", dims[1])
    return like(tensor(inputs), [dims[0], floor_div(dims[1], Num(taps)), *image])


@operator("SpaceToDepth")
def _space_to_depth(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    batch, channels, height, width = _four(trial, inputs)
    block = int(node.attrs["blocksize"])
    for axis, dim in ((2, height), (3, width)):
        trial.require(combine(np.equal, dim % block, Num(0)), f"divides size {{0}} at axis {axis} by {block}", dim)
    shape = [batch, channels * (block * block), floor_div(height, Num(block)), floor_div(width, Num(block))]
    return like(tensor(inputs), shape)


def _four(trial: Trial, inputs: Inputs) -> list[Num]:
    dims = shape_of(inputs)
    if len(dims) != 4:
        raise trial.fail(f"takes 4 dimensions and gets {len(dims)}")
    return dims
