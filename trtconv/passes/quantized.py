"""Reading QuantizeLinear and DequantizeLinear, and the groups of quantised tensors between them.

A group is everything that shares quantised values: the outputs of QuantizeLinear, the quantised constants, the inputs
of DequantizeLinear, and the nodes between them that only move values about (Reshape, MaxPool, Concat, ...). Changing
the integer type or the zero point of one of them means changing all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.graph.editor import Field, close_all
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import EMULATED, dequantize, quantize
from trtconv.graph.types import KNOWN_DOMAINS
from trtconv.graph.views import QUANTIZERS, Linear

LINEAR = frozenset(QUANTIZERS)
MOVERS = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize"}
    | {"Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that pass quantised values on without computing with them (Resize: to the nearest)."""
_MEASURES = frozenset({"Shape", "Size"})
"""Operators that do not look at values: whatever type these have then is all the same."""
_DATA_INPUTS = {"Concat": None}
"""How many leading inputs are data; one for operators not listed, None for all."""


@frozen
class Quantizer:
    """A QuantizeLinear or DequantizeLinear with constant scale and zero point.

    Args:
        node: The node.
        scale: Scalar or per channel.
        zero_point: As many entries as the scale, or None where the node has none.
        axis: Axis of the channels (ONNX's default 1 where the node does not say).
        rank: Rank of the tensor; None where it is not known, or where one scale makes it of no concern.
    """

    node: gs.Node
    scale: NDArray[Any]
    zero_point: NDArray[Any] | None
    axis: int
    rank: int | None

    @property
    def quantizes(self) -> bool:
        """Whether it is a QuantizeLinear."""
        return bool(self.node.op == "QuantizeLinear")

    @property
    def quantized(self) -> gs.Tensor:
        """The tensor on its integer side."""
        return self.node.outputs[0] if self.quantizes else self.node.inputs[0]


def has_linear(model: OnnxModel) -> bool:
    """Whether a model quantises anything; ONNX Runtime's quantiser writes 16-bit Q/DQ in its own domain."""
    return any(
        scope.columns.domains[index] in KNOWN_DOMAINS
        for scope in model.scopes
        for op in LINEAR
        for index in scope.by_op.get(op, ())
    )


def moves(node: gs.Node) -> bool:
    """Whether a node passes quantised values on as they are."""
    if node.op != "Resize":
        return node.op in MOVERS
    crops = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return bool(node.attrs.get("mode", "nearest") == "nearest" and not crops)


def read_linear(field: Field, node: gs.Node) -> Quantizer | str:
    """Reads a node, or says why it cannot be read, or why its scales make no sense."""
    linear = Linear(field.scope, field.index(node))
    if linear.problem or linear.scale is None or isinstance(linear.channels, str):
        return str(linear.problem)
    return Quantizer(node, linear.scale, linear.zero_point, *linear.channels)


COMPUTED = "its weight is computed at run time"


@frozen
class Weights:
    """The weights behind a DequantizeLinear.

    Args:
        computed: What the model multiplies with.
        original: What it quantises; None where it holds integers.
    """

    computed: NDArray[Any]
    original: NDArray[Any] | None


def read_weights(field: Field, reader: Quantizer) -> Weights | str:
    """Returns the weights behind a DequantizeLinear, or why they cannot be had: `COMPUTED`, for one."""
    source = reader.node.inputs[0]
    integers, original = field.fold(source), None
    if integers is not None and reader.zero_point is not None and integers.dtype != reader.zero_point.dtype:
        return f"its input is {integers.dtype} and its zero point {reader.zero_point.dtype}"
    if integers is None:
        quantizer = source.inputs[0] if source.inputs else None
        if quantizer is None or quantizer.op != "QuantizeLinear":
            return COMPUTED
        writer = read_linear(field, quantizer)
        if isinstance(writer, str):
            return writer
        original = field.fold(quantizer.inputs[0])
        if original is None:
            return COMPUTED
        point = np.zeros(1, np.uint8) if writer.zero_point is None else writer.zero_point
        if str(point.dtype) not in EMULATED:
            return f"its weight is quantised to {point.dtype}"
        integers = quantize(original, writer.scale, point, writer.axis)
    return Weights(dequantize(integers, reader.scale, reader.zero_point, reader.axis), original)


@dataclasses.dataclass
class Group:
    """Tensors that share quantised values, and the nodes around them.

    Args:
        first: The first QuantizeLinear or DequantizeLinear, which need not be one that can be read.
        linears: QuantizeLinear and DequantizeLinear nodes.
        movers: Nodes that pass values on.
        constants: Quantised constants.
        obstacle: Why the group cannot be changed as a whole, or an empty string.
    """

    first: gs.Node
    linears: list[Quantizer] = dataclasses.field(default_factory=list)
    movers: list[gs.Node] = dataclasses.field(default_factory=list)
    constants: list[gs.Tensor] = dataclasses.field(default_factory=list)
    obstacle: str = ""

    @property
    def dtype(self) -> str | None:
        """The integer type that all agree on; None where no zero point says it or they disagree."""
        types = {str(p.dtype) for linear in self.linears if (p := linear.zero_point) is not None}
        return types.pop() if len(types) == 1 else None

    @property
    def zero_points(self) -> set[int]:
        """Every zero point in use."""
        return {
            int(v) for linear in self.linears if linear.zero_point is not None for v in linear.zero_point.reshape(-1)
        }

    @property
    def moved_constants(self) -> list[gs.Tensor]:
        """The constants that its movers pass on; others only go into a DequantizeLinear."""
        return [c for c in self.constants if any(t is c for node in self.movers for t in node.inputs)]

    @property
    def name(self) -> str:
        """What to call it: the first node."""
        return str(self.first.name or self.first.outputs[0].name)


def each_group(model: OnnxModel) -> Iterator[tuple[Field, Group]]:
    """Yields the groups of all graphs; what was replaced in their fields is written when the last one is done."""
    fields = [Field(model, scope, LINEAR | MOVERS) for scope in model.scopes]
    for field in fields:
        for group in groups(field):
            yield field, group
    close_all(fields)


def groups(field: Field) -> list[Group]:
    """Returns the groups of a field that was opened for `LINEAR | MOVERS`, in the order of their first node."""
    members: set[int] = set()
    result = []
    for node in field.graph.nodes:
        if node.op in LINEAR and id(node) not in members:
            result.append(_grow(field, node, members))
    return result


def _grow(field: Field, start: gs.Node, visits: set[int]) -> Group:
    group = Group(start)
    queue = [start]
    constants: set[int] = set()
    for node in queue:
        if id(node) in visits:
            continue
        visits.add(id(node))
        _admit(field, group, node)
        for tensor in _quantized_tensors(node):
            if field.values(tensor) is not None:
                if id(tensor) not in constants:
                    constants.add(id(tensor))
                    group.constants.append(tensor)
                # Constants are copied, not changed: other users of one are no concern of this group.
                continue
            if field.escapes(tensor) or not (tensor.inputs or isinstance(tensor, gs.Constant)):
                group.obstacle = group.obstacle or f"{tensor.name!r} is also used outside, or comes from outside"
            queue.extend(tensor.inputs)
            queue.extend(n for n in tensor.outputs if any(t is tensor for t in _quantized_tensors(n)))
            others = (n for n in tensor.outputs if n.op not in _MEASURES)
            strange = [n for n in others if not any(t is tensor for t in _quantized_tensors(n))]
            if strange:
                group.obstacle = group.obstacle or f"{strange[0].op} {strange[0].name!r} computes with {tensor.name!r}"
    group.obstacle = group.obstacle or _strange_constant(field, group)
    return group


def _strange_constant(field: Field, group: Group) -> str:
    """Returns which constant has another type than the zero points of its group, or an empty string."""
    for tensor in group.constants:
        values = field.values(tensor)
        if group.dtype is not None and values is not None and str(values.dtype) != group.dtype:
            return f"{tensor.name!r} is {values.dtype} and the zero points around it {group.dtype}"
    return ""


def _admit(field: Field, group: Group, node: gs.Node) -> None:
    if moves(node):
        group.movers.append(node)
    elif node.op in LINEAR:
        linear = read_linear(field, node)
        if isinstance(linear, str):
            group.obstacle = group.obstacle or f"{node.op} {node.name!r}: {linear}"
        else:
            group.linears.append(linear)
    else:
        group.obstacle = group.obstacle or f"{node.op} {node.name!r} makes quantised values"


def _quantized_tensors(node: gs.Node) -> list[gs.Tensor]:
    """Returns a node's inputs and outputs that carry quantised values, as far as its operator tells."""
    if node.op == "QuantizeLinear":
        return list(node.outputs)
    if node.op == "DequantizeLinear":
        return list(node.inputs[:1])
    if moves(node):
        return [*node.inputs[: _DATA_INPUTS.get(node.op, 1)], *node.outputs[: 1 if node.op == "MaxPool" else None]]
    return list(node.outputs)


def pad_value(node: gs.Node) -> gs.Tensor | None:
    """Returns the constant that a Pad fills with, or None where it fills with 0."""
    return node.inputs[2] if len(node.inputs) > 2 and not node.inputs[2].is_empty() else None


def each_pad(group: Group) -> Iterator[gs.Node]:
    """Yields the Pad nodes of a group that fill with a constant."""
    return (n for n in group.movers if n.op == "Pad" and n.attrs.get("mode", "constant") == "constant")
