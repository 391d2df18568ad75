"""Where the number of a tensor's channels comes from, and what weights say it is."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

_MOST_NODES = 1 << 10
"""That are looked at before a convolution; beyond them its channels are taken for known, as they nearly always are."""
_ALIKE = frozenset(
    (  # noqa: SIM905
        "Abs AveragePool BatchNormalization Cast Ceil Clip DequantizeLinear Dropout Elu Erf Exp Floor Gelu"
        " GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization LeakyRelu Log"
        " LpNormalization MaxPool Mish Neg PRelu QuantizeLinear Reciprocal Relu Round Selu Sigmoid Sin Softmax Softplus"
        " Softsign Sqrt Tanh ThresholdedRelu"
    ).split()
)
"""Operators whose result has the channels of their first input."""
_BROADCAST = frozenset({"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Where"})
_COUNTED = frozenset({"Conv", "ConvTranspose"})
"""Operators whose weights tell how many channels they make."""
Place = tuple[str, int]
"""A tensor and one of its axes."""


def channels_by_weights(scope: Scope, index: int) -> int | None:
    """Returns how many channels a Conv or a ConvTranspose takes; None where its weights' sizes are not known."""
    node = scope.columns.nodes[index]
    shape = scope.shape(node.input[1]) if len(node.input) > 1 else None
    if shape is None or len(shape) < 2:
        return None
    if node.op_type == "ConvTranspose":
        return shape[0]
    return None if shape[1] is None else shape[1] * int(attribute(node, "group", 1))


def free_place(scope: Scope, name: str, axis: int = 1) -> Place | None:
    """Returns what leaves a size of a tensor free until the run: an axis of an input, or of what a Reshape or another
    operator makes; None where it is known before.

    What a file states for tensors between nodes counts for those alone that no operator explains: TensorRT reads none
    of it.
    """
    free: Place | None = None
    places = [(name, axis)]
    seen = set(places)
    # What is broadcast is known where one of them is: so nothing behind a free size is.
    for place in places:
        if len(places) > _MOST_NODES:
            return None
        sources = _sources(scope, *place)
        if sources is None:
            if not _is_free(scope, *place):
                return None
            free = free or place
        else:
            places += [source for source in sources if source not in seen]
            seen.update(sources)
    return free


def _sources(scope: Scope, name: str, axis: int) -> list[Place] | None:
    """Returns where a size of a tensor is from; None where it is not from others."""
    index, columns = scope.producers.get(name), scope.columns
    if index is None or columns.domains[index] not in ONNX_DOMAINS:
        return None
    op, inputs = columns.ops[index], columns.inputs[index]
    if op in _ALIKE and inputs:
        return [(inputs[0], axis)]
    if op in _BROADCAST:
        return _aligned(scope, name, inputs, axis)
    if op == "Transpose":
        order = attribute(columns.nodes[index], "perm", ())
        return [(inputs[0], order[axis])] if axis < len(order) else None
    if op == "Reshape" and len(inputs) == 2 and _target(scope, inputs[1], axis) == 0:
        return [(inputs[0], axis)]
    return None


def _aligned(scope: Scope, result: str, inputs: Sequence[str], axis: int) -> list[Place]:
    """Returns what is broadcast to a tensor, at the place of an axis there."""
    rank = len(scope.shape(result) or ())
    shapes = {name: scope.shape(name) or () for name in inputs}
    places = {name: axis - rank + len(shape) for name, shape in shapes.items()}
    # What has one there says nothing of the result.
    return [(name, place) for name, place in places.items() if place >= 0 and shapes[name][place] != 1]


def _is_free(scope: Scope, name: str, axis: int) -> bool:
    """Whether a size is not known that is not from others."""
    index, columns = scope.producers.get(name), scope.columns
    op, inputs = ("", []) if index is None else (columns.ops[index], columns.inputs[index])
    if axis == 1 and op in _COUNTED and scope.initializer(inputs[1]) is not None:
        return False
    if op == "Reshape" and len(inputs) == 2:
        # It may work one size out from all others.
        shape = scope.shape(inputs[0])
        return _target(scope, inputs[1], axis) == -1 and (shape is None or None in shape)
    # Of inputs without inference, which looks at the whole network.
    stated = next((value for value in scope.graph.input if value.name == name), None)
    if stated is not None and stated.type.tensor_type.HasField("shape"):
        sizes = stated.type.tensor_type.shape.dim
        return axis < len(sizes) and sizes[axis].dim_value < 1
    shape = scope.shape(name)
    return shape is not None and axis < len(shape) and shape[axis] is None


def _target(scope: Scope, sizes: str, place: int) -> int | None:
    """Returns one of the sizes that a Reshape is given; None where it is computed."""
    values = scope.values(sizes)
    if values is not None:
        return int(values[place]) if place < values.size else None
    index = scope.producers.get(sizes)
    if index is None or scope.columns.ops[index] != "Concat":
        return None
    parts = [scope.values(part) for part in scope.columns.inputs[index]]
    # Exporters join one size each.
    part = parts[place] if place < len(parts) else None
    return int(part[0]) if part is not None and part.shape == (1,) else None
