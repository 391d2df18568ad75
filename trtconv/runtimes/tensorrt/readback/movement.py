"""Layers that move elements, or tell of shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven
from trtconv.runtimes.tensorrt.readback.types import numpy_type


def _constant(call: Call) -> Sequence[Array]:
    values = call.weights("weights")
    expected = numpy_type(call.outputs[0].dtype)
    if values.dtype != expected and values.size and values.dtype.itemsize == expected.itemsize:
        values = values.view(expected)
    return (values.reshape(call["shape"]),)


def _shape(call: Call) -> Sequence[Array]:
    return (np.array(call.input(0).shape, np.int64),)


def _shuffle(call: Call) -> Sequence[Array]:
    values = _transposed(call.input(0), call["first_transpose"])
    target = call.ints(1)
    if target is None:
        target = call["reshape_dims"]
    if target is not None:
        values = values.reshape(_reshaped(values, target, call["zero_is_placeholder"]))
    return (_transposed(values, call["second_transpose"]),)


def _transposed(values: Array, permutation: Sequence[int]) -> Array:
    return values.transpose(permutation[: values.ndim]) if values.ndim else values


def _reshaped(values: Array, target: Sequence[int], zero_copies: bool) -> tuple[int, ...]:
    sizes = [
        values.shape[axis] if size == 0 and zero_copies and axis < values.ndim else size
        for axis, size in enumerate(target)
    ]
    if sizes.count(-1) == 1:
        product = int(np.prod([size for size in sizes if size != -1], dtype=np.int64))
        sizes[sizes.index(-1)] = values.size // product if product else 0
    return tuple(sizes)


def _unsqueeze(call: Call) -> Sequence[Array]:
    values = call.input(0)
    axes = call.ints(1) or ()
    return (np.expand_dims(values, tuple(axis % (values.ndim + len(axes)) for axis in axes)),)


def _squeeze(call: Call) -> Sequence[Array]:
    values = call.input(0)
    axes = call.ints(1)
    return (np.squeeze(values, None if axes is None else tuple(axis % values.ndim for axis in axes)),)


def _concatenation(call: Call) -> Sequence[Array]:
    return (np.concatenate([array for array in call.inputs if array is not None], call["axis"]),)


def _slice(call: Call) -> Sequence[Array]:
    values = call.input(0)
    start, size, stride = (
        numbers if numbers is not None else call[name]
        for numbers, name in zip((call.ints(1), call.ints(2), call.ints(3)), ("start", "shape", "stride"), strict=True)
    )
    axes = call.ints(5) if call.ints(5) is not None else call.get("axes")
    if start is None or size is None or stride is None:
        raise NotProven("its start, size or stride cannot be read")
    if axes is None or (not axes and len(start)):
        axes = tuple(range(values.ndim))
    fill = call.optional(4)
    for axis, first, count, step in zip(axes, start, size, stride, strict=True):
        values = _sliced(values, axis % values.ndim, first + step * np.arange(count), call["mode"], fill)
    return (values,)


def _sliced(values: Array, axis: int, places: Array, mode: str, fill: Array | None) -> Array:
    size = values.shape[axis]
    outside = (places < 0) | (places >= size)
    if not outside.any():
        return _from(values, axis, places)
    if mode == "FILL":
        if not size:
            result = np.zeros((*values.shape[:axis], len(places), *values.shape[axis + 1 :]), values.dtype)
        else:
            result = values.take(np.clip(places, 0, size - 1), axis)
        result[(slice(None),) * axis + (outside,)] = 0 if fill is None else fill.reshape(()).astype(values.dtype)
        return result
    if mode == "CLAMP":
        return np.asarray(values.take(np.clip(places, 0, size - 1), axis))
    if mode == "WRAP":
        return np.asarray(values.take(places % size, axis))
    if mode == "REFLECT":
        period = max(2 * size - 2, 1)
        folded = np.abs(places) % period
        return np.asarray(values.take(np.where(folded < size, folded, period - folded), axis))
    raise Malformed(f"it reads places {int(places.min())} to {int(places.max())} of {size} in mode {mode}")


def _from(values: Array, axis: int, places: Array) -> Array:
    """Takes places that lie inside; as a view where they are evenly spaced."""
    if len(places) > 1:
        step = int(places[1] - places[0])
        if step > 0:
            return np.asarray(values[(slice(None),) * axis + (slice(int(places[0]), int(places[-1]) + 1, step),)])
    elif len(places) == 1:
        return np.asarray(values[(slice(None),) * axis + (slice(int(places[0]), int(places[0]) + 1),)])
    return np.asarray(values.take(places.astype(np.int64), axis))


def _inside(call: Call, indices: Array, axis: int) -> tuple[Array, Array]:
    """Returns indices into an axis of input 0 that can be read, and where they were beyond its end.

    Negative ones count from the end where the axis is static. Where it is dynamic, their meaning is documented as
    undefined.
    """
    size = call.input(0).shape[axis]
    if indices.size and not size:
        raise Malformed("it gathers from an empty axis")
    if indices.size and int(indices.min()) < 0:
        if not call.is_static(axis):
            raise NotProven(f"TensorRT leaves index {int(indices.min())} into an axis of dynamic size undefined")
        indices = np.where(indices < 0, indices + size, indices)
    outside = (indices < 0) | (indices >= size)
    return np.where(outside, 0, indices).astype(np.int64), outside


def _gather(call: Call) -> Sequence[Array]:
    mode = call["mode"]
    if mode == "ND":
        return (_gather_nd(call),)
    data, indices, axis = call.input(0), call.input(1), call["axis"]
    places, outside = _inside(call, indices, axis)
    if mode == "ELEMENT":
        # Other axes of the indices may be shorter than those of the data.
        trimmed = data[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))]
        return (_zeroed(np.take_along_axis(trimmed, places, axis), outside),)
    shared = call["num_elementwise_dims"]
    if not shared:
        rows = np.take(data, places, axis)
        return (_zeroed(rows, outside.reshape((1,) * axis + outside.shape + (1,) * (data.ndim - axis - 1))),)
    if outside.any():
        raise Malformed("an index is beyond the end")
    pairs = zip(data, places, strict=True)
    return (np.stack([np.take(row, index, axis - shared) for row, index in pairs]),)


def _zeroed(values: Array, outside: Array) -> Array:
    """Returns what was gathered with zeros where an index was beyond the end."""
    return np.where(outside, np.zeros((), values.dtype), values) if outside.any() else values


def _gather_nd(call: Call) -> Array:
    data, indices, shared = call.input(0), call.input(1), call["num_elementwise_dims"]
    depth = indices.shape[-1]
    places = [_inside(call, indices[..., i], shared + i) for i in range(depth)]
    grid = np.indices(indices.shape[:-1])[:shared] if shared else ()
    everywhere = (*grid, *(place for place, _ in places))
    rows = np.asarray(data[everywhere])
    outside = np.zeros(indices.shape[:-1], bool)
    for _, beyond in places:
        outside |= beyond
    return _zeroed(rows, outside.reshape(outside.shape + (1,) * (rows.ndim - outside.ndim)))


def _scatter(call: Call) -> Sequence[Array]:
    data, indices, updates = call.input(0).copy(), call.input(1), call.input(2)
    if call["mode"] == "ND":
        places = tuple(_all_inside(call, indices[..., i], i) for i in range(indices.shape[-1]))
        data[places] = updates
    else:
        axis = call["axis"]
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[axis] = _all_inside(call, indices, axis)
        data[tuple(grid)] = updates
    return (data,)


def _all_inside(call: Call, indices: Array, axis: int) -> Array:
    places, outside = _inside(call, indices, axis)
    if outside.any():
        raise Malformed("an index is beyond the end")
    return places


def _one_hot(call: Call) -> Sequence[Array]:
    indices, values, depth = call.input(0), call.input(1), int(call.input(2).reshape(()))
    if indices.size and int(indices.min()) < 0:
        raise NotProven("TensorRT documents no meaning for a negative class")
    off, on = values.reshape(-1)
    axis = call["axis"] % (indices.ndim + 1)
    grid = np.arange(depth).reshape([depth if a == axis else 1 for a in range(indices.ndim + 1)])
    return (np.where(np.expand_dims(indices, axis) == grid, on, off),)


def _non_zero(call: Call) -> Sequence[Array]:
    return (np.stack(np.nonzero(call.input(0))) if call.input(0).ndim else np.zeros((0, 1), np.int64),)


def _reverse_sequence(call: Call) -> Sequence[Array]:
    values, lengths = call.input(0).copy(), call.ints(1) or ()
    batch, sequence = call["batch_axis"], call["sequence_axis"]
    moved = np.moveaxis(values, (batch, sequence), (0, 1))
    for row, length in zip(moved, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    return (values,)


def _fill(call: Call) -> Sequence[Array]:
    if call["operation"] != "LINSPACE":
        raise NotProven("it makes random numbers")
    shape = call.ints(0) if call.ints(0) is not None else call["shape"]
    if shape is None:
        raise NotProven("its shape cannot be read")
    first, delta = call.optional(1), call.optional(2)
    alpha = np.asarray(call["alpha"] if first is None else first)
    delta = np.atleast_1d(np.asarray(call["beta"] if delta is None else delta))
    dtype = numpy_type(call.outputs[0].dtype)
    exact = np.int64 if dtype.kind in "iu" else np.float64
    result = np.full(shape, alpha.reshape(()).astype(exact))
    for axis, step in enumerate(delta[-len(shape) :] if len(shape) else ()):
        places = np.arange(shape[axis]).astype(exact)
        result = result + (places * step.astype(exact)).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (result,)


def _padding(call: Call) -> Sequence[Array]:
    values = call.input(0)
    low, high = call["pre_padding_nd"], call["post_padding_nd"]
    for axis, (before, after) in enumerate(zip(low, high, strict=True), values.ndim - len(low)):
        values = _sliced(values, axis, np.arange(-before, values.shape[axis] + after), "FILL", None)
    return (values,)


KINDS: dict[str, Kernel] = {
    "CONSTANT": _constant,
    "SHAPE": _shape,
    "SHUFFLE": _shuffle,
    "UNSQUEEZE": _unsqueeze,
    "SQUEEZE": _squeeze,
    "CONCATENATION": _concatenation,
    "SLICE": _slice,
    "GATHER": _gather,
    "SCATTER": _scatter,
    "ONE_HOT": _one_hot,
    "NON_ZERO": _non_zero,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "FILL": _fill,
    "PADDING": _padding,
}
