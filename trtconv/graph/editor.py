"""A few nodes of a model, opened as a graph-surgeon graph, and put back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from google.protobuf.message import EncodeError
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from trtconv.core.errors import InputError
from trtconv.core.findings import Location
from trtconv.graph.model import OnnxModel
from trtconv.graph.nodes import Columns
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.graph.splice import drop, prune, splice
from trtconv.graph.tensor_checker import is_text
from trtconv.graph.types import KNOWN_DOMAINS

_MAX_CONE = 32
"""Nodes that are looked at, at most, to find where a weight comes from."""


_LISTS = {onnx.AttributeProto.INTS: "ints", onnx.AttributeProto.FLOATS: "floats"}
_SINGLE = frozenset({onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT})
_CONSTANTS = frozenset({"Constant", "ConstantOfShape"})
"""Operators whose attribute is a tensor; they are opened without it, since no pass edits them."""


class Field:
    """Some nodes of one graph, opened for operation as an onnx-graphsurgeon graph.

    The field holds the nodes of the asked operators, their direct neighbours, and the nodes that their further inputs
    (weights, biases, scales) come from. Edit it in graph-surgeon's ways, hand the result to `replace`, then `close`.

    Args:
        model: The model.
        scope: One of its graphs.
        ops: Operators that the pass is about.
        concerns: Picks among the nodes of these operators, by position; None takes all.
        looks_around: Whether the neighbours are needed.
    """

    def __init__(
        self,
        model: OnnxModel,
        scope: Scope,
        ops: Collection[str],
        concerns: Callable[[int], bool] | None = None,
        looks_around: bool = True,
    ) -> None:
        self.model = model
        self.scope = scope
        self._replaced: dict[int, list[gs.Node]] = {}
        self._ours: dict[int, gs.Constant] = {}
        self._folded: dict[str, NDArray[Any]] = {}
        matches = {
            index
            for op in ops
            for index in scope.by_op.get(op, ())
            if scope.columns.domains[index] in KNOWN_DOMAINS and (concerns is None or concerns(index))
        }
        opened = _field_indices(scope, matches, looks_around)
        self.graph = self._open(opened)
        self._tensors: dict[str, gs.Tensor] = self.graph.tensors()
        self._index = {id(node): index for node, index in zip(self.graph.nodes, opened, strict=True)}
        self.candidates = [n for n, index in zip(self.graph.nodes, opened, strict=True) if index in matches]

    def _open(self, opened: Sequence[int]) -> gs.Graph:
        columns, constant = self.scope.columns, self.scope.constant
        nodes = [_bare(columns.nodes[i]) if columns.ops[i] in _CONSTANTS else columns.nodes[i] for i in opened]
        sources = {name for i in opened for name in columns.inputs[i] if name and name not in self.scope.producers}
        # Empty tensors stand for weights, of which `values` reads those that are asked for.
        weights = [
            onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[0])
            for name in sources
            if constant(name) is not None
        ]
        graph = onnx.GraphProto(node=nodes, initializer=weights)
        return gs.import_onnx(onnx.ModelProto(graph=graph, opset_import=self.model.proto.opset_import))

    def index(self, node: gs.Node) -> int:
        """Returns the position of a node in the graph as it was opened."""
        return self._index[id(node)]

    def location(self, node: gs.Node) -> Location:
        """Returns where a node was in the graph as it was opened."""
        return self.scope.location(self.index(node))

    def values(self, tensor: gs.Tensor) -> NDArray[Any] | None:
        """Returns a constant's values: an initializer's or a Constant node's; None for anything computed."""
        if id(tensor) in self._ours:
            return np.asarray(tensor.values)
        return self.scope.values(tensor.name)

    def number(self, tensor: gs.Tensor) -> int | None:
        """Returns a constant integer; None for anything computed, and for a constant that is not one integer."""
        values = self.values(tensor)
        if values is None or values.size != 1 or values.dtype.kind not in "iu":
            return None
        return int(values.reshape(-1)[0])

    def fold(self, tensor: gs.Tensor) -> NDArray[Any] | None:
        """Returns the values of a tensor that is computed from constants and known sizes alone, or None.

        Evaluated by ONNX's reference implementation. Quantised weights are not folded: their scales would be lost.
        """
        values = self.values(tensor)
        return values if values is not None else resolved(self.scope, tensor.name, self.model.proto.opset_import)

    def constant(self, name: str, values: NDArray[Any]) -> gs.Constant:
        """Makes a new initializer; it is added to the graph when the field closes, if a node uses it."""
        constant = gs.Constant(self.model.fresh_name(name), np.asarray(values))
        self._ours[id(constant)] = constant
        return constant

    def tensor(self, name: str) -> gs.Tensor:
        """Returns a tensor of the graph by its name, also one that no node of the field touches."""
        if name not in self._tensors:
            self._tensors[name] = gs.Variable(name)
        return self._tensors[name]

    def variable(self, name: str) -> gs.Variable:
        """Makes a new tensor with a name of its own."""
        return gs.Variable(self.model.fresh_name(name))

    def node(self, op: str, name: str, inputs: list[gs.Tensor], output: gs.Tensor | str, **attrs: Any) -> gs.Node:
        """Makes a node with one output. A node that is replaced must let go of its outputs first.

        Args:
            op: Operator type.
            name: Wanted name.
            inputs: Input tensors.
            output: The output tensor, or a wanted name for a new one.
            **attrs: ONNX attributes.
        """
        tensor = self.variable(output) if isinstance(output, str) else output
        return gs.Node(op, name=self.model.fresh_name(name), attrs=attrs, inputs=inputs, outputs=[tensor])

    def dtype(self, tensor: gs.Tensor) -> str | None:
        """Returns a tensor's element type as numpy names it ("int8", "float32"), or None where it is not known."""
        return self.scope.dtype(tensor.name)

    def escapes(self, tensor: gs.Tensor) -> bool:
        """Whether something outside the field uses a tensor: a graph output, a subgraph, another node."""
        # A node that takes it twice stands among the takers twice.
        takers = {id(node): node for node in tensor.outputs}.values()
        return self.scope.uses_of(tensor.name) != sum(t is tensor for node in takers for t in node.inputs)

    def shape(self, tensor: gs.Tensor) -> tuple[int | None, ...] | None:
        """Returns a tensor's shape, None for each unknown size, or None where the rank is unknown."""
        return self.scope.shape(tensor.name)

    def keep_type(self, tensor: gs.Tensor) -> None:
        """Writes down what is known of a tensor, where the nodes that will make it do not tell its shape."""
        graph = self.scope.graph
        if any(value.name == tensor.name for value in (*graph.value_info, *graph.output)):
            return
        inferred = self.scope.whole.inferred[self.scope.position]
        graph.value_info.extend(value for value in inferred if value.name == tensor.name)

    def replace(self, node: gs.Node, by: Sequence[gs.Node]) -> None:
        """Puts nodes, in topological order, where a node was; `by` may contain the node itself, changed."""
        self._replaced[self.index(node)] = list(by)

    def take_over(self, node: gs.Node, layer: gs.Node, by: Sequence[gs.Node]) -> None:
        """Has the layer in front, replaced by nodes that contain it, make what a node made; the node goes."""
        output = node.outputs[0]
        node.outputs.clear()
        layer.outputs[0] = output
        self.replace(layer, by)
        self.replace(node, [])

    def fold_into(self, node: gs.Node, values: NDArray[Any]) -> None:
        """Makes an initializer of a node's output, under the same name; the node goes."""
        self._folded[node.outputs[0].name] = values
        self.replace(node, [])

    def close(self) -> bool:
        """Writes the replacements into the model and drops what only the replaced nodes used.

        Returns:
            Whether the graph changed.
        """
        return close_all([self])

    def _write(self) -> set[str]:
        """Writes the replacements into the graph; returns the tensors that the replaced nodes took."""
        graph, columns, uses = self.scope.graph, self.scope.columns, self.scope.whole.uses
        dropped: set[str] = set()
        fresh: dict[int, list[onnx.NodeProto]] = {}
        for index, nodes in self._replaced.items():
            dropped.update(columns.inputs[index])
            uses.subtract(columns.inputs[index])
            fresh[index] = [_carry_over(columns.nodes[index], OnnxExporter.export_node(n)) for n in nodes]
            try:
                graph.initializer.extend(self._new_initializers(nodes))
            except EncodeError as error:
                raise InputError(
                    f"{self.model.path}: node {columns.nodes[index].name!r} rewritten has a weight over 2 GiB,"
                    " which ONNX cannot hold",
                    "Leave it as it is with --no-rewrite, or split the layer.",
                ) from error
        graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in self._folded.items())
        # Up to IR version 3 every initializer must be a graph input.
        self.model.proto.ir_version = max(self.model.proto.ir_version, 4)
        for node in itertools.chain.from_iterable(fresh.values()):
            uses.update(node.input)
        self._forget_types(columns)
        splice(graph, fresh)
        columns.replace({index: len(nodes) for index, nodes in fresh.items()}, graph.node)
        self.scope.forget()
        return dropped

    def _forget_types(self, columns: Columns) -> None:
        """Drops what the graph says of integers that the replaced nodes made: they may make another type now."""
        values = self.scope.graph.value_info
        outputs = {name for index in self._replaced for name in columns.outputs[index]}
        drop(
            values,
            {i for i, v in enumerate(values) if v.name in outputs and v.type.tensor_type.elem_type in _QUANTIZED_TYPES},
        )

    def _new_initializers(self, nodes: Iterable[gs.Node]) -> Iterator[onnx.TensorProto]:
        for node in nodes:
            for tensor in node.inputs:
                constant = self._ours.pop(id(tensor), None)
                if constant is not None:
                    yield numpy_helper.from_array(np.asarray(constant.values, order="C"), constant.name)


def label(node: gs.Node) -> str:
    """Returns what a node is called, for the names of what is made of it: its name, or its operator if it has none."""
    return str(node.name or node.op)


def close_all(fields: Iterable[Field]) -> bool:
    """Closes the fields of several graphs of one model together, which costs less than one after the other.

    Returns:
        Whether the model changed.
    """
    edited = [field for field in fields if field._replaced]
    if not edited:
        return False
    prune(edited[0].model, {field.scope.position: field._write() for field in edited})
    return True


_QUANTIZED_TYPES = frozenset(
    code for name, code in onnx.TensorProto.DataType.items() if name.removeprefix("U") in ("INT4", "INT8", "INT16")
)
"""Types of tensors that a pass may give another type."""


def _field_indices(scope: Scope, matches: Collection[int], looks_around: bool) -> list[int]:
    """Returns the nodes of a field: the wanted ones, their neighbours, and where their further inputs come from."""
    columns, field = scope.columns, {*matches}
    if matches and looks_around:
        outputs = {name for i in matches for name in columns.outputs[i]}
        field.update(i for i, inputs in enumerate(columns.inputs) if not outputs.isdisjoint(inputs))
    for index in matches:
        if looks_around:
            field.update(_sources(scope, columns.inputs[index][:1], 1))
        field.update(_sources(scope, columns.inputs[index][1:], _MAX_CONE))
    return sorted(i for i in field if columns.ops[i] in _CONSTANTS or all(_survives(a) for a in columns.attributes[i]))


def _survives(attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute is one that graph-surgeon reads and writes without losing or refusing it."""
    if attribute.type in _LISTS:
        # An empty list loses its type.
        return bool(len(getattr(attribute, _LISTS[attribute.type])))
    if attribute.type == onnx.AttributeProto.STRING:
        return is_text(attribute.s)
    return bool(attribute.type in _SINGLE)


def _bare(node: onnx.NodeProto) -> onnx.NodeProto:
    """Returns a node without its attributes."""
    return onnx.NodeProto(
        op_type=node.op_type, domain=node.domain, name=node.name, input=node.input, output=node.output
    )


def _sources(scope: Scope, names: Iterable[str], limit: int) -> set[int]:
    """Returns up to `limit` nodes that these tensors come from, nearest first."""
    sources: set[int] = set()
    queue = list(names)
    for name in queue:
        index = scope.producers.get(name)
        if index is not None and index not in sources:
            if len(sources) == limit:
                break
            sources.add(index)
            queue.extend(scope.columns.inputs[index])
    return sources


def _carry_over(old: onnx.NodeProto, new: onnx.NodeProto) -> onnx.NodeProto:
    """Gives a replacement the doc string and metadata of the node it replaces."""
    new.doc_string = old.doc_string
    if hasattr(old, "metadata_props"):
        new.metadata_props.extend(old.metadata_props)
    return new
