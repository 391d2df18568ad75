"""A graph on its way to another float type."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.walk import constant_of
from trtconv.precision.regions import is_repeated
from trtconv.precision.schemas import FLOAT, Kind


@dataclasses.dataclass
class Lowering:
    """What a model is cast to, and how.

    Args:
        model: The model.
        kind: What to cast to.
        stored: Whether weights are stored in the lower precision.
        emulated: Whether all is computed in float32 and rounded.
        graphs: Its graphs, by the position of their scope.
    """

    model: OnnxModel
    kind: Kind
    stored: bool
    emulated: bool
    graphs: dict[int, LoweredGraph] = dataclasses.field(default_factory=dict)


class LoweredGraph:
    """One graph while it is cast: which of its tensors exist in the lower precision, under which name."""

    def __init__(self, lowering: Lowering, scope: Scope) -> None:
        self.lowering = lowering
        self.scope = scope
        self.nodes = list(scope.graph.node)
        self._lower: dict[str, str] = {}
        self._behind: dict[int, list[onnx.NodeProto]] = {}
        self._raised: dict[str, onnx.NodeProto] = {}
        self._weights: dict[str, onnx.TensorProto] = {}
        self._raised_by: dict[int, list[str]] = {}
        self._overflows: dict[str, bool] = {}
        self._inputs = {value.name for value in scope.graph.input}
        self.repeated = is_repeated(scope)

    def owner(self, name: str) -> LoweredGraph | None:
        """Returns the graph that a tensor is of."""
        scope: Scope | None = self.scope
        while scope is not None:
            graph = self.lowering.graphs.get(scope.position)
            if graph is not None and graph.has(name):
                return graph
            scope = scope.parent
        return None

    @functools.cached_property
    def _own(self) -> dict[str, int]:
        """Tensor name to the position of its node; -1 for inputs and initializers."""
        own = dict.fromkeys([*self._inputs, *self.scope.initializers], -1)
        own.update({name: i for i, node in enumerate(self.nodes) for name in node.output if name})
        return own

    def has(self, name: str) -> bool:
        """Whether a tensor is of this graph."""
        return name in self._own

    def element(self, name: str) -> int:
        """Returns the element type of a tensor as it was before, 0 where it is not known."""
        scope: Scope | None = self.scope
        while scope is not None:
            tensor = scope.initializers.get(name)
            if tensor is not None:
                return int(tensor.data_type)
            if scope.types.get(name):
                return scope.types[name]
            scope = scope.parent
        return 0

    def is_lower(self, name: str) -> bool:
        """Whether a node that was cast makes this tensor."""
        owner = self.owner(name)
        return owner is not None and name in owner._raised

    def raised(self) -> dict[str, str]:
        """Returns the tensors that nodes which were cast make: the name before, and the one in the lower precision."""
        return {name: self._lower[name] for name in self._raised}

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is an initializer that no caller can replace, or what a Constant node holds."""
        owner = self.owner(name)
        return owner is not None and owner._constant(name) is not None

    def _constant(self, name: str) -> onnx.TensorProto | None:
        """Returns this graph's own constant of that name."""
        if name in self._inputs:
            return None
        tensor = self.scope.initializers.get(name)
        if tensor is not None:
            return tensor
        index = self._own.get(name, -1)
        return None if index < 0 else constant_of(self.nodes[index])

    def overflows(self, name: str) -> bool:
        """Whether a tensor is a constant with finite values that are too large."""
        owner = self.owner(name) if name else None
        if owner is None:
            return False
        if name not in owner._overflows:
            owner._overflows[name] = owner._too_large(name)
        return owner._overflows[name]

    def _too_large(self, name: str) -> bool:
        tensor = self._constant(name)
        if tensor is None or tensor.data_type != FLOAT:
            return False
        values, largest = self.lowering.model.array(tensor), self.lowering.kind.largest
        # Two passes without a copy say it of nearly all weights.
        if values.size == 0 or (values.max() <= largest and values.min() >= -largest):
            return False
        return bool(np.any((np.abs(values) > largest) & np.isfinite(values)))

    def lower(self, name: str) -> str:
        """Returns the name of a tensor in the lower precision, and sees to it that it exists."""
        owner = self.owner(name)
        if owner is None:
            return name
        if name not in owner._lower:
            owner._lower[name] = owner._make_lower(name)
        return owner._lower[name]

    def _fresh(self, name: str) -> str:
        return self.lowering.model.fresh_name(f"{name}_{self.lowering.kind.name}")

    def _make_lower(self, name: str) -> str:
        constant = self._constant(name)
        lower = self._fresh(name)
        if constant is not None and self.lowering.stored:
            self._weights[lower] = self._stored(constant, lower)
        else:
            self._behind.setdefault(self._own[name], []).extend(self._casts(name, lower))
        return lower

    def _casts(self, name: str, lower: str) -> list[onnx.NodeProto]:
        """Makes what rounds a float32 tensor."""
        fresh = self.lowering.model.fresh_name
        code = self.lowering.kind.code
        if not self.lowering.emulated:
            return [helper.make_node("Cast", [name], [lower], to=code, name=fresh(f"{lower}_cast"))]
        between = fresh(f"{lower}_rounded")
        return [
            helper.make_node("Cast", [name], [between], to=code, name=fresh(f"{lower}_round")),
            helper.make_node("Cast", [between], [lower], to=FLOAT, name=fresh(f"{lower}_cast")),
        ]

    def _stored(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        """Returns a weight in the lower precision. Values too small to be told from zero become the smallest ones.

        Zero is what a divisor's epsilon must not become.
        """
        kind = self.lowering.kind
        values = self.lowering.model.array(tensor)
        tiny = (np.abs(values) < kind.smallest) & (values != 0)
        if tiny.any():
            values = np.where(tiny, np.copysign(np.float32(kind.smallest), values), values)
        dtype = helper.tensor_dtype_to_np_dtype(kind.code)
        lowered = values.astype(dtype)
        return numpy_helper.from_array(lowered.astype(np.float32) if self.lowering.emulated else lowered, name)

    def write_lower(self, index: int, node: onnx.NodeProto, position: int) -> None:
        """Makes an output of a node one of the lower precision; the old name is made of it where it is still read."""
        name = node.output[position]
        lower = self._lower[name] = self._fresh(name)
        self._raised_by.setdefault(index, []).append(name)
        node.output[position] = lower
        if self.lowering.emulated:
            exact = self.lowering.model.fresh_name(f"{lower}_exact")
            node.output[position] = exact
            self._behind.setdefault(index, []).extend(self._casts(exact, lower))
        fresh = self.lowering.model.fresh_name(f"{name}_cast")
        self._raised[name] = helper.make_node("Cast", [lower], [name], to=FLOAT, name=fresh)

    def write(self, names: set[str]) -> None:
        """Writes the nodes with their casts, and drops constants that nothing reads any more.

        Args:
            names: Those that are read anywhere in the model.
        """
        graph = self.scope.graph
        nodes = list(self._behind.get(-1, ()))
        for index, node in enumerate(self.nodes):
            if node.op_type == "Constant" and names.isdisjoint(node.output) and index not in self._behind:
                continue
            nodes.append(node)
            # In emulation what rounds comes first: the old tensor is made of the rounded one.
            nodes += self._behind.get(index, ())
            nodes += [self._raised[name] for name in self._raised_by.get(index, ()) if name in names]
        del graph.node[:]
        graph.node.extend(nodes)
        self._drop_unread(names)
        graph.initializer.extend(self._weights.values())
        outputs = {name for node in nodes for name in node.output}
        for index in reversed(range(len(graph.value_info))):
            if graph.value_info[index].name not in outputs:
                del graph.value_info[index]

    def _drop_unread(self, names: set[str]) -> None:
        initializers = self.scope.graph.initializer
        for index in reversed(range(len(initializers))):
            tensor = initializers[index]
            if tensor.data_type == FLOAT and tensor.name not in names and tensor.name not in self._inputs:
                del initializers[index]

    def reads(self) -> Iterator[str]:
        """Yields what this graph's nodes read, their casts included, and what it returns."""
        for nodes in (self.nodes, *self._behind.values()):
            for node in nodes:
                yield from node.input
        yield from (value.name for value in self.scope.graph.output)
