"""Writes what is assigned to the places of a mask as a choice between two values for each element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_SAME_ELEMENTS = frozenset("Reshape Flatten Squeeze Unsqueeze Identity".split())  # noqa: SIM905
"""Operators that change the shape alone."""
OF_ONE_VALUE = _SAME_ELEMENTS | {"Expand", "Slice", "Tile", "Transpose"}
"""Operators whose results have no value that their first input has not."""
_ELEMENTWISE = frozenset(
    "Abs And Cast Equal Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Neg Not Or Relu Xor".split()  # noqa: SIM905
)
MOST_STEPS = 16
"""Nodes that are followed, at most, from one tensor."""


class AssignByWhere(Spelling):
    """Writes a ScatterND at the places that NonZero finds in a mask as a Where.

    TensorRT-RTX has no NonZero, and to the others the number of places is known only at run time. torch's exporter
    writes `x[mask] = value` so. One value goes everywhere, or one for each of the last axes along which the mask is the
    same; the mask must be known to have the sizes of the tensor.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x, bool[2,3] mask) => (float[2,3] y) <float zero = {0}, int64[1] flat = {-1}>
        {
          found = NonZero (mask)  at = Transpose (found)  n = Shape <start = 1> (found)
          e = Expand (zero, n)  u = Reshape (e, flat)  y = ScatterND (x, at, u)
        }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x, bool[2,3] mask) => (float[2,3] y) <float zero = {0}>
        { y = Where (mask, zero, x) }
    """

    name = "assign-by-where"
    ops = frozenset({"ScatterND"})
    fixes = ("TC204",)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        replaces = attribute(scope.columns.nodes[index], "reduction", b"none") == b"none"
        return replaces and _mask_of(scope, scope.columns.inputs[index][1:2]) is not None

    def write(self, writer: Writer, target: Target) -> str | None:
        scope, data = writer.scope, writer.input(0)
        mask = _mask_of(scope, [writer.input(1)])
        assert mask is not None  # `lacks` has seen it.
        rank, masked = len(writer.shape(data)), len(writer.shape(mask))
        if not 0 < masked <= rank:
            raise Unwritable(f"the mask {mask!r} has {masked} axes, and what is assigned to has {rank}")
        if not _has_sizes_of(scope, mask, data, masked):
            raise Unwritable(f"whether the mask {mask!r} has the sizes of {data!r} is known only at run time")
        value = _single(writer, writer.input(2)) or _row(writer, mask, rank, masked)
        # What is repeated may have fewer axes, and those that are added behind are counted from the front.
        source = (_before_expansion(scope, mask) if masked == rank else None) or mask
        condition = _with_axes_anew(writer, source)
        condition = condition if writer.dtype(source) == np.bool_ else writer.cast(condition, np.bool_)
        if masked < rank:
            condition = writer.unsqueeze(condition, range(masked, rank))
        writer("Where", condition, value, data, to=writer.output())
        return f"an assignment to the places of {mask!r} written as Where"


def _mask_of(scope: Scope, names: Sequence[str]) -> str | None:
    """Returns the mask whose places, a row each, a tensor has; None where it is of another kind."""
    places = scope.producer(names[0]) if names else None
    if places is None or places.op_type != "Transpose" or attribute(places, "perm", [1, 0]) != [1, 0]:
        return None
    search = scope.producer(places.input[0])
    mask: str | None = search.input[0] if search is not None and search.op_type == "NonZero" else None
    return mask


def _has_sizes_of(scope: Scope, mask: str, data: str, axes: int) -> bool:
    """Whether a mask is known to have the sizes of the first axes of a tensor."""
    masks, tensors = _alike(scope, mask), _alike(scope, data)
    if axes == len(scope.shape(data) or ()) and not set(masks).isdisjoint(tensors):
        return True
    goals = [_sizes(scope, tensor)[:axes] for tensor in tensors]
    return _is_expanded_to(scope, mask, tensors, goals[0]) or any(
        None not in sizes and sizes in goals for sizes in (_sizes(scope, tensor) for tensor in masks)
    )


def _is_expanded_to(scope: Scope, mask: str, tensors: list[str], goal: list[int | str | None]) -> bool:
    """Whether a mask is expanded to the shape of one of some tensors, and makes no axis of size 1 longer."""
    node = scope.producer(mask)
    shape = scope.producer(node.input[1]) if node is not None and node.op_type == "Expand" else None
    if node is None or shape is None or shape.op_type != "Shape" or shape.input[0] not in tensors:
        return False
    if any(entry.name != "start" or entry.i for entry in shape.attribute):
        return False
    sizes = _sizes(scope, node.input[0])
    last = goal[len(goal) - len(sizes) :] if sizes and len(sizes) <= len(goal) else []
    return bool(last) and all(size == 1 or size == other is not None for size, other in zip(sizes, last, strict=True))


def _alike(scope: Scope, name: str) -> list[str]:
    """Returns a tensor and others that have its shape: what it is computed from, element by element."""
    names, open_ = list[str](), [name]
    while open_ and len(names) < MOST_STEPS:
        names.append(name := open_.pop())
        node = scope.producer(name)
        if node is None or node.op_type not in _ELEMENTWISE:
            continue
        # A single element beside another tensor leaves that its shape; two that are both longer may not.
        shapes = [scope.shape(source) for source in node.input]
        longer = [source for source, shape in zip(node.input, shapes, strict=True) if shape != ()]
        open_ += longer if len(longer) == 1 else ()
    return names


def _sizes(scope: Scope, name: str) -> list[int | str | None]:
    """Returns the sizes of a tensor: numbers, or the names that the graph gives them; None where it gives none."""
    shape = scope.shape(name) or ()
    names = [dim.dim_param for dim in _declared(scope, name)] if None in shape else []
    names = names if len(names) == len(shape) else [""] * len(shape)
    return [size if size is not None else name or None for size, name in zip(shape, names, strict=True)]


def _declared(scope: Scope, name: str) -> list[onnx.TensorShapeProto.Dimension]:
    graph = scope.graph
    values = (value for values in (graph.input, graph.value_info, graph.output) for value in values)
    return next((list(value.type.tensor_type.shape.dim) for value in values if value.name == name), [])


def _single(writer: Writer, name: str) -> str | None:
    """Returns the one value that a tensor has in all places; None where it has, or may have, several."""
    for _ in range(MOST_STEPS):
        values = writer.scope.values(name)
        if values is not None:
            same = values.size and values.tobytes() == values.reshape(-1)[:1].tobytes() * values.size
            return writer.constant(values.reshape(-1)[0]) if same else None
        shape = writer.scope.shape(name)
        if shape is not None and all(size == 1 for size in shape):
            return name if not shape else writer.reshape(name, [1])
        node = writer.scope.producer(name)
        if node is not None and node.op_type == "ConstantOfShape":
            value = next((numpy_helper.to_array(entry.t) for entry in node.attribute), np.zeros(1, np.float32))
            return writer.constant(value.reshape(-1)[0])
        if node is None or node.op_type not in OF_ONE_VALUE:
            return None
        name = node.input[0]
    return None


def _row(writer: Writer, mask: str, rank: int, masked: int) -> str:
    """Returns a tensor that is assigned along the last axes, the same to each place that the mask has before these."""
    name, scope = writer.input(2), writer.scope
    node = scope.producer(name)
    while node is not None and node.op_type in _SAME_ELEMENTS:
        node = scope.producer(node.input[0])
    if node is None or node.op_type != "Expand":
        raise Unwritable("what is assigned may be another value at each place")
    row = str(node.input[0])
    axes = len(sizes := writer.sizes(row))
    along = writer.sizes(writer.input(0)) if axes == rank else _last(writer.shape(writer.input(0)), axes)
    same = axes if masked == rank else rank - masked
    if not 0 < axes <= rank or tuple(along) != tuple(sizes) or axes != same:
        raise Unwritable("what is assigned has other sizes than the axes that the mask leaves")
    if masked == rank and not _is_spread(scope, mask, axes):
        raise Unwritable(f"whether the mask {mask!r} is the same along the last axes is known only at run time")
    return row


def _last(shape: tuple[int | None, ...], axes: int) -> tuple[int | None, ...]:
    return tuple(shape)[len(shape) - axes :]


def _is_spread(scope: Scope, mask: str, axes: int) -> bool:
    """Whether a mask is the same along its last axes."""
    source = _before_expansion(scope, mask)
    shape = None if source is None else scope.shape(source)
    return shape is not None and len(shape) >= axes and all(size == 1 for size in _last(shape, axes))


def _before_expansion(scope: Scope, mask: str) -> str | None:
    """Returns the tensor that a mask repeats along some axes; None where it repeats none."""
    node = scope.producer(mask)
    return None if node is None or node.op_type != "Expand" else str(node.input[0])


def _with_axes_anew(writer: Writer, name: str) -> str:
    """Returns a tensor whose axes of size 1 are added anew, if they are: what is counted is the tensor without them."""
    node = writer.scope.producer(name)
    if node is None or node.op_type != "Unsqueeze":
        return name
    return writer("Unsqueeze", *node.input, axes=attribute(node, "axes"))
