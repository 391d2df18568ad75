"""The shapes of tensors that the parser made inside a node, from those that the model's own tensors have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtconv.core.dims import Shape
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

ALIKE = frozenset(
    (
        *("ACTIVATION", "UNARY", "CAST", "IDENTITY", "SOFTMAX", "SCALE", "QUANTIZE", "DEQUANTIZE", "NORMALIZATION"),
        *("CUMULATIVE", "LRN", "PARAMETRIC_RELU", "REVERSE_SEQUENCE", "SCATTER", "ROTARY_EMBEDDING"),
    )
)
"""Layers whose first output has the shape of their first input."""
VIEWS = frozenset(("SHUFFLE", "SQUEEZE", "UNSQUEEZE"))
"""Layers whose output has as many elements as their first input."""
_TOGETHER = frozenset(("ELEMENTWISE", "SELECT"))


def with_inner(network: ReadNetwork, model_shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Returns the shapes of a network's tensors at one size of its inputs.

    Args:
        model_shapes: Those of the model's tensors, by name.

    Returns:
        Shapes by name; without tensors whose sizes cannot be told.
    """
    shapes = {tensor.name: tensor.shape for tensor in network.tensors if _settled(tensor.shape)}
    all_shapes: dict[str, Shape] = {
        **{name: shape for name, shape in shapes.items() if shape is not None},
        **model_shapes,
    }
    # What stands before a node's last layer is told by what comes behind, and the other way round.
    for _ in range(2):
        before = len(all_shapes)
        for layer in network.layers:
            _forward(network, layer, all_shapes)
        for layer in reversed(network.layers):
            _backward(network, layer, all_shapes)
        if len(all_shapes) == before:
            break
    return all_shapes


def _settled(shape: Shape | None) -> bool:
    return shape is not None and min(shape, default=0) >= 0


def _forward(network: ReadNetwork, layer: ReadLayer, all_shapes: dict[str, Shape]) -> None:
    if not layer.outputs or network.tensors[layer.outputs[0]].name in all_shapes:
        return
    shapes = [None if n is None else all_shapes.get(network.tensors[n].name) for n in layer.inputs]
    shape = _output(layer, shapes, network.tensors[layer.outputs[0]])
    if shape is not None:
        all_shapes[network.tensors[layer.outputs[0]].name] = shape


def _output(layer: ReadLayer, shapes: Sequence[Shape | None], output: ReadTensor) -> Shape | None:
    first = shapes[0] if shapes else None
    if layer.kind in _TOGETHER:
        return _broadcast([shape for shape in shapes if shape is not None]) if None not in shapes else None
    if first is None:
        return None
    if layer.kind in ALIKE:
        return first
    if layer.kind in VIEWS:
        return _filled(output.shape, math.prod(first))
    if layer.kind == "REDUCE":
        axes = [axis for axis in range(len(first)) if layer.values["axes"] >> axis & 1]
        if layer.values["keep_dims"]:
            return tuple(1 if axis in axes else size for axis, size in enumerate(first))
        return tuple(size for axis, size in enumerate(first) if axis not in axes)
    if layer.kind == "MATRIX_MULTIPLY" and len(shapes) > 1 and shapes[1] is not None:
        return _product(layer, first, shapes[1])
    return None


def _backward(network: ReadNetwork, layer: ReadLayer, all_shapes: dict[str, Shape]) -> None:
    if not layer.inputs or layer.inputs[0] is None or not layer.outputs:
        return
    source, result = network.tensors[layer.inputs[0]], all_shapes.get(network.tensors[layer.outputs[0]].name)
    if source.name in all_shapes or result is None or layer.kind not in ALIKE | VIEWS:
        return
    shape = result if layer.kind in ALIKE else _filled(source.shape, math.prod(result))
    if shape is not None:
        all_shapes[source.name] = shape


def _filled(shape: Shape | None, elements: int) -> Shape | None:
    """Returns a shape with its one unknown size, where there is one, for a number of elements."""
    if shape is None or shape.count(-1) > 1:
        return None
    rest = math.prod(size for size in shape if size != -1)
    if -1 not in shape:
        return shape
    return tuple(elements // rest if size == -1 else size for size in shape) if rest and not elements % rest else None


def _broadcast(shapes: Sequence[Shape]) -> Shape | None:
    rank = max(map(len, shapes), default=0)
    if any(len(shape) != rank for shape in shapes):
        return None
    sizes = [set(axis) - {1} for axis in zip(*shapes, strict=True)]
    return tuple(axis.pop() if axis else 1 for axis in sizes) if all(len(axis) < 2 for axis in sizes) else None


def _product(layer: ReadLayer, a: Shape, b: Shape) -> Shape | None:
    if min(len(a), len(b)) < 2 or "VECTOR" in (layer.values["op0"], layer.values["op1"]):
        return None
    batch = _broadcast([a[:-2], b[:-2]])
    rows = a[-1] if layer.values["op0"] == "TRANSPOSE" else a[-2]
    columns = b[-2] if layer.values["op1"] == "TRANSPOSE" else b[-1]
    return None if batch is None else (*batch, rows, columns)
