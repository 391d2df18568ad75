"""Where the number of a tensor's channels comes from, and what weights say it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    return _Origin(scope).of(name, axis)


class _Origin:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._budget = _MOST_NODES

    def of(self, name: str, axis: int) -> Place | None:
        self._budget -= 1
        if self._budget < 0:
            return None
        index = self._scope.producers.get(name)
        if index is None or self._scope.columns.domains[index] not in ONNX_DOMAINS:
            return self._unstated(name, axis)
        columns = self._scope.columns
        op, inputs = columns.ops[index], columns.inputs[index]
        if axis == 1 and op in _COUNTED and self._scope.initializer(inputs[1]) is not None:
            return None
        if op in _ALIKE:
            return self.of(inputs[0], axis)
        if op in _BROADCAST:
            places = [self.of(*place) for place in self._aligned(name, inputs, axis)]
            return places[0] if places and None not in places else None
        if op == "Transpose":
            order = attribute(columns.nodes[index], "perm", ())
            return self.of(inputs[0], order[axis]) if axis < len(order) else None
        if op == "Reshape" and len(inputs) == 2:
            return self._of_reshape(name, inputs, axis)
        return self._unstated(name, axis)

    def _unstated(self, name: str, axis: int) -> Place | None:
        # Of inputs without inference, which looks at the whole network.
        stated = next((value for value in self._scope.graph.input if value.name == name), None)
        if stated is not None and stated.type.tensor_type.HasField("shape"):
            sizes = stated.type.tensor_type.shape.dim
            return (name, axis) if axis < len(sizes) and sizes[axis].dim_value < 1 else None
        shape = self._scope.shape(name)
        return (name, axis) if shape is not None and axis < len(shape) and shape[axis] is None else None

    def _aligned(self, result: str, inputs: Sequence[str], axis: int) -> Iterator[Place]:
        """Yields what is broadcast to a tensor, at the place of an axis there."""
        rank = len(self._scope.shape(result) or ())
        for name in inputs:
            shape = self._scope.shape(name) or ()
            place = axis - rank + len(shape)
            # What has one there says nothing of the result.
            if place >= 0 and shape[place] != 1:
                yield name, place

    def _of_reshape(self, name: str, inputs: Sequence[str], axis: int) -> Place | None:
        """As `of`, for what a Reshape makes: it may work one size out from all others."""
        target, shape = self._target(inputs[1], axis), self._scope.shape(inputs[0])
        if target == 0:
            return self.of(inputs[0], axis)
        return (name, axis) if target == -1 and (shape is None or None in shape) else None

    def _target(self, sizes: str, place: int) -> int | None:
        """Returns one of the sizes that a Reshape is given; None where it is computed."""
        values = self._scope.values(sizes)
        if values is not None:
            return int(values[place]) if place < values.size else None
        index = self._scope.producers.get(sizes)
        if index is None or self._scope.columns.ops[index] != "Concat":
            return None
        parts = [self._scope.values(part) for part in self._scope.columns.inputs[index]]
        # Exporters join one size each.
        part = parts[place] if place < len(parts) else None
        return int(part[0]) if part is not None and part.shape == (1,) else None
