"""One graph of a model, of its main graph or of a body inside it: nodes, makers, uses and constants."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import onnx
from numpy.typing import NDArray

from trtconv.core.findings import Location
from trtconv.graph.nodes import Columns
from trtconv.graph.types import ONNX_DOMAINS, known_dtype_name
from trtconv.graph.walk import constant_of, positions_of_readers, reads

_STACK_TRACES = ("pkg.torch.onnx.stack_trace", "pkg.onnxscript.stack_trace")
SOURCE_KEY = "trtconv.source"
"""Node metadata that `trtconv export` writes: the line of Python, "models/unet.py:31"."""
_SOURCE = re.compile(r"[^\n]+:[1-9]\d*")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
Inferred = tuple[list[onnx.ValueInfoProto], ...]
"""The tensors whose types are known, one list a graph."""


class ElementKinds(Protocol):
    """What tells the ONNX element type of a tensor, 0 where it is not known."""

    def __getitem__(self, name: str) -> int: ...


class Scope:
    """One graph of a model - the main graph or the body of an If, Loop or Scan - and the names that it sees.

    Args:
        whole: All graphs of its model.
        graph: The live GraphProto.
        path: "" for the main graph, "loop_node/body" for a subgraph; need not be unique.
        parent: The graph around it.
    """

    def __init__(self, whole: Whole, graph: onnx.GraphProto, path: str, parent: Scope | None) -> None:
        self.whole = whole
        self.graph = graph
        self.path = path
        self.parent = parent
        self.position = 0
        """Place among the model's scopes; no pass changes it."""

    @functools.cached_property
    def columns(self) -> Columns:
        """This graph's nodes, column by column."""
        return Columns(self.graph.node)

    def forget(self) -> None:
        """Forgets what was derived from the nodes' columns and the initializers."""
        for cached in ("initializers", "reads", "producers", "by_op", "consumers", "readers", "constant_types"):
            self.__dict__.pop(cached, None)
        self.whole.__dict__.pop("mentions", None)

    @functools.cached_property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """This graph's own initializers by name."""
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @functools.cached_property
    def reads(self) -> list[set[str]]:
        """What each node reads, as `walk.reads`; without looking into nodes that hold no graph."""
        columns = self.columns
        inner = {index for index, *_ in columns.bodies()}
        rows = [set(inputs) - {""} for inputs in columns.inputs]
        for index in inner:
            rows[index] = reads(columns.nodes[index])
        return rows

    @functools.cached_property
    def producers(self) -> dict[str, int]:
        """Tensor name to the index of the node that makes it."""
        return {name: index for index, outputs in enumerate(self.columns.outputs) for name in outputs if name}

    def names(self) -> set[str]:
        """Returns the names of all nodes and tensors."""
        columns, graph = self.columns, self.graph
        ends = (value.name for value in (*graph.input, *graph.output))
        return set(columns.names).union(self.initializers, ends, *columns.inputs, *columns.outputs)

    def initializer(self, name: str) -> onnx.TensorProto | None:
        """Returns an initializer of this graph or of a graph around it."""
        tensor = self.initializers.get(name)
        if tensor is not None or self.parent is None or self._has(name):
            return tensor
        return self.parent.initializer(name)

    def constant(self, name: str) -> onnx.TensorProto | None:
        """Returns what an initializer or a Constant node holds, of this graph or one around it; None for the rest."""
        tensor = self.initializers.get(name)
        if tensor is not None:
            return tensor
        index = self.producers.get(name)
        if index is not None:
            # Asked of the column first, since the protobuf takes longer to say what it is.
            return constant_of(self.columns.nodes[index]) if self.columns.ops[index] == "Constant" else None
        return None if self.parent is None or self._has(name) else self.parent.constant(name)

    def _has(self, name: str) -> bool:
        """Whether a tensor of this graph has a name, which hides one of a graph around it."""
        return name in self.producers or name in self.initializers or name in self.input_names

    @functools.cached_property
    def input_names(self) -> frozenset[str]:
        """The names of this graph's inputs."""
        return frozenset(value.name for value in self.graph.input)

    @functools.cached_property
    def constant_types(self) -> frozenset[int]:
        """Element types of this graph's own initializers and Constant nodes."""
        constants = (constant_of(self.columns.nodes[index]) for index in self.by_op.get("Constant", ()))
        tensors = itertools.chain(self.graph.initializer, (tensor for tensor in constants if tensor is not None))
        return frozenset(tensor.data_type for tensor in tensors)

    def values(self, name: str) -> NDArray[Any] | None:
        """Returns the values of an initializer or of a Constant node's output; None for anything computed."""
        tensor = self.constant(name)
        return None if tensor is None else self.whole.array(tensor)

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Returns the node of this graph that makes a tensor."""
        index = self.producers.get(name)
        return None if index is None else self.columns.nodes[index]

    @functools.cached_property
    def by_op(self) -> dict[str, list[int]]:
        """Operator type to the nodes of this graph, by position."""
        indices: dict[str, list[int]] = {}
        for index, op in enumerate(self.columns.ops):
            indices.setdefault(op, []).append(index)
        return indices

    def positions(self, *ops: str) -> list[int]:
        """Returns the positions of this graph's nodes of these standard operators, in its order."""
        indices = (index for op in set(ops) for index in self.by_op.get(op, ()))
        return sorted(index for index in indices if self.columns.domains[index] in ONNX_DOMAINS)

    @functools.cached_property
    def consumers(self) -> dict[str, list[onnx.NodeProto]]:
        """Tensor name to the nodes of this graph that take it."""
        nodes = self.columns.nodes
        return {name: [nodes[index] for index in readers] for name, readers in self.readers.items()}

    @functools.cached_property
    def readers(self) -> dict[str, list[int]]:
        """Tensor name to the positions of the nodes of this graph that take it, in their order."""
        return positions_of_readers(self.columns.inputs)

    def seen_from(self, name: str) -> Iterator[Scope]:
        """Yields the graphs that mention a tensor of this graph: not those that have another one so named."""
        return (scope for scope in self.whole.mentions.get(name, ()) if scope._means(name, self))

    def _means(self, name: str, owner: Scope) -> bool:
        """Whether a name is, in this graph, that of a tensor of `owner`."""
        scope: Scope | None = self
        while scope is not None and scope is not owner:
            if scope._has(name):
                return False
            scope = scope.parent
        return scope is owner

    def uses_of(self, name: str) -> int:
        """Returns how often a tensor is an input of a node or an output of a graph.

        Branches of one If may use the same names for tensors of their own, which are then told apart.
        """
        if len(self.whole.scopes) == 1 or (name not in self.producers and name not in self.initializers):
            return self.whole.uses[name]
        return sum(
            len(scope.consumers.get(name, ()))
            + sum(value.name == name for value in (*scope.graph.output, *scope.graph.input))
            for scope in self.seen_from(name)
        )

    def location(self, index: int, tensor: str = "") -> Location:
        """Returns the place of a node of this graph."""
        node = self.columns.nodes[index]
        return Location(self.path, index, node.name, node.op_type, tensor, python_line(node))

    @property
    def types(self) -> Mapping[str, int]:
        """Tensor name to ONNX element type, as inference knows them."""
        return self.whole.inferred_types[self.position]

    @property
    def shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """Tensor name to shape, as inference knows them; what it cannot tell is left out."""
        return self.whole.inferred_shapes[self.position]

    def dtype(self, name: str) -> str | None:
        """Returns the element type of a tensor as numpy names it, or None where it is not known."""
        tensor = self.constant(name)
        if tensor is not None:
            return known_dtype_name(tensor.data_type)
        if self.parent is None:
            return known_dtype_name(self.whole.element_types[name])
        return known_dtype_name(self.types.get(name, 0)) or self.parent.dtype(name)

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Returns the shape of a tensor, None for each size that is not known, or None where the rank is not."""
        tensor = self.constant(name)
        if tensor is not None:
            return tuple(tensor.dims)
        shape = self.shapes.get(name)
        return shape if shape is not None or self.parent is None else self.parent.shape(name)


def python_line(node: onnx.NodeProto) -> str:
    """Returns the line of the user's own Python that a node was exported from, "unet.py:12", or an empty string."""
    entries = getattr(node, "metadata_props", ())
    if not entries:
        return ""
    source = next((entry.value for entry in entries if entry.key == SOURCE_KEY), "")
    if _SOURCE.fullmatch(source):
        return source
    trace = next((entry.value for entry in entries if entry.key in _STACK_TRACES), "")
    frames = [f"{file}:{line}" for file, line in _FRAME.findall(trace)]
    # Innermost last; the innermost ones are inside torch.
    own = [frame for frame in frames if "site-packages" not in frame and not frame.startswith("<")]
    return own[-1] if own else ""


def _inner_scopes(scope: Scope) -> Iterator[Scope]:
    """Yields the graphs inside a graph, each after the graph around it."""
    columns = scope.columns
    for index, name, body in columns.bodies():
        path = f"{columns.names[index] or f'{columns.ops[index]}[{index}]'}/{name}"
        inner = Scope(scope.whole, body, f"{scope.path}/{path}" if scope.path else path, scope)
        yield inner
        yield from _inner_scopes(inner)


def _used_names(scope: Scope) -> Iterator[str]:
    """Yields every name that the nodes and outputs of a graph read."""
    yield from itertools.chain.from_iterable(scope.columns.inputs)
    for value in (*scope.graph.output, *scope.graph.input):
        yield value.name


class InferredShapes(Mapping[str, "tuple[int | None, ...]"]):
    """Tensor name to shape; each is worked out when it is asked for, which few are."""

    def __init__(self, values: Iterable[onnx.ValueInfoProto]) -> None:
        self._values = {value.name: value for value in values}
        self._shapes: dict[str, tuple[int | None, ...]] = {}

    def __getitem__(self, name: str) -> tuple[int | None, ...]:
        shape = self._shapes.get(name)
        if shape is not None:
            return shape
        tensor = self._values[name].type.tensor_type
        if not tensor.HasField("shape"):
            raise KeyError(name)
        sizes = (d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim)
        return self._shapes.setdefault(name, tuple(sizes))

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._values.items() if value.type.tensor_type.HasField("shape"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Whole:
    """All graphs of a model, and what they know of each other's tensors.

    Args:
        graph: The main graph.
        columns: Its nodes.
        array: Returns the values of a tensor, wherever they are.
        infer: Returns the tensors whose types inference knows, one list a graph.
        element_types: Returns what tells the element type of a tensor of the main graph.

    Attributes:
        scopes: Every graph, the main graph first, each after the graph around it.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        columns: Columns,
        array: Callable[[onnx.TensorProto], NDArray[Any]],
        infer: Callable[[Whole], Inferred],
        element_types: Callable[[Whole], ElementKinds],
    ) -> None:
        self.array = array
        self._infer, self._element_types = infer, element_types
        main = Scope(self, graph, "", None)
        main.columns = columns
        self.scopes = (main, *_inner_scopes(main))
        for position, scope in enumerate(self.scopes):
            scope.position = position

    def nodes(self, *ops: str) -> Iterator[tuple[Scope, int, onnx.NodeProto]]:
        """Yields every node of these standard operators, in every graph."""
        for scope in self.scopes:
            for index in scope.positions(*ops):
                yield scope, index, scope.columns.nodes[index]

    @functools.cached_property
    def uses(self) -> Counter[str]:
        """How often each tensor is an input of a node or an output of a graph, in all graphs."""
        return Counter(itertools.chain.from_iterable(_used_names(scope) for scope in self.scopes))

    @functools.cached_property
    def mentions(self) -> dict[str, list[Scope]]:
        """Tensor name to the graphs in which a node takes it, or whose input or output it is."""
        mentions: dict[str, list[Scope]] = {}
        for scope in self.scopes:
            ends = (value.name for value in (*scope.graph.output, *scope.graph.input))
            for name in {*scope.consumers, *ends}:
                mentions.setdefault(name, []).append(scope)
        return mentions

    @functools.cached_property
    def derived(self) -> dict[str, Any]:
        """What other modules found out about the graphs, by a name of theirs; forgotten when these change."""
        return {}

    @functools.cached_property
    def inferred(self) -> Inferred:
        """The tensors whose types ONNX's inference knows, one list a graph."""
        return self._infer(self)

    @functools.cached_property
    def inferred_shapes(self) -> tuple[InferredShapes, ...]:
        """Tensor name to shape, one entry a graph; what inference cannot tell is left out."""
        return tuple(InferredShapes(values) for values in self.inferred)

    @functools.cached_property
    def inferred_types(self) -> tuple[dict[str, int], ...]:
        """Tensor name to ONNX element type, one entry a graph."""
        return tuple({v.name: v.type.tensor_type.elem_type for v in values} for values in self.inferred)

    @functools.cached_property
    def element_types(self) -> ElementKinds:
        """Tensor name to ONNX element type, of the main graph, 0 where it is not known; mostly without inference."""
        return self._element_types(self)

    def forget_shapes(self) -> None:
        """Forgets what is known of shapes and types, and what was derived from them."""
        for cached in ("inferred", "inferred_shapes", "inferred_types", "element_types", "derived"):
            self.__dict__.pop(cached, None)
