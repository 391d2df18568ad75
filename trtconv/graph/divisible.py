"""A model that is to be cut: what each node needs, what is copied into every part, and the parts as models."""

from __future__ import annotations

import functools
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

import onnx

from trtconv.graph.chance import RANDOM
from trtconv.graph.model import OnnxModel
from trtconv.graph.partition import Links
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes, reads

_OF_SHAPES = ("Shape", "Size")
_MOVES = frozenset(
    (
        *("Cast", "Concat", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split"),
        *("Squeeze", "Transpose", "Unsqueeze"),
    )
)
"""Operators that compute nothing: no engine is built for their sake."""
_HEAVY = frozenset(
    (
        *("Attention", "Conv", "ConvTranspose", "DeformConv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"),
        *("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "If", "Loop", "Scan"),
    )
)
_HEAVY_WORK = 4
_LEAST_WORK = 6
"""What an engine must have to do: a Conv and a Relu are not enough, two of each are."""


class Divisible:
    """The main graph of a model, as the cut sees it.

    What follows from shapes and constants alone is copied into every part that needs it: it would otherwise cross as
    the content of a shape, which an engine needs bounds for.

    Args:
        model: The model, its nodes in topological order; must not change meanwhile.
        refused: Positions of the nodes that no engine takes.
    """

    def __init__(self, model: OnnxModel, refused: Collection[int]) -> None:
        self.model = model
        self._columns = model.main.columns
        self._reads = [reads(node) for node in self._columns.nodes]
        self._constants = {tensor.name for tensor in model.proto.graph.initializer}
        self._constants.update(tensor.values.name for tensor in model.proto.graph.sparse_initializer)
        self._outputs = {value.name for value in model.proto.graph.output}
        self._free: dict[str, int] = {}
        self._of_shapes: set[str] = set()
        for index in range(len(self._columns)):
            if self._is_free(index, self._of_shapes):
                self._of_shapes.update(self._outputs_of(index))
            if index not in refused and self._is_free(index, self._free):
                self._free.update(dict.fromkeys(self._outputs_of(index), index))

    def _is_free(self, index: int, free: Container[str]) -> bool:
        """Whether a node can be copied: its results follow from free tensors, and are none of the model's."""
        node = self._columns.nodes[index]
        if not self._outputs.isdisjoint(node.output):
            return False
        if node.op_type in _OF_SHAPES and node.domain in ONNX_DOMAINS:
            return True
        if any(part.op_type in RANDOM for part in all_nodes([node])):
            return False
        return all(name in self._constants or name in free for name in self._reads[index])

    def is_of_shapes(self, name: str) -> bool:
        """Whether a tensor follows from shapes and constants alone, whoever computes it."""
        return name in self._constants or name in self._of_shapes

    def _outputs_of(self, index: int) -> tuple[str, ...]:
        return tuple(name for name in self._columns.outputs[index] if name)

    @functools.cached_property
    def links(self) -> dict[int, Links]:
        """The nodes that results of the model depend on and that are not copied, by position."""
        copied = set(self._free.values())
        needs = set(self._outputs)
        links: dict[int, Links] = {}
        for index in reversed(range(len(self._columns))):
            if needs.isdisjoint(self._outputs_of(index)):
                continue
            needs |= self._reads[index]
            if index not in copied:
                links[index] = Links(frozenset(self._needs(self._reads[index])), self._outputs_of(index))
        return dict(reversed(links.items()))

    def _needs(self, names: Iterable[str]) -> set[str]:
        """Returns the tensors that have to be there for some others: themselves, or what copied ones start from."""
        sources, copied = self._trace(names)
        return sources.union(*(self._reads[index] for index in copied)) - self._constants - self._free.keys()

    def _trace(self, names: Iterable[str], inputs: Collection[str] = ()) -> tuple[set[str], set[int]]:
        """Returns tensors that are not copied, or are inputs, and the copied nodes behind the others."""
        copied: set[int] = set()
        sources: set[str] = set()
        open_ = list(names)
        while open_:
            name = open_.pop()
            index = self._free.get(name)
            if index is None or name in inputs:
                sources.add(name)
            elif index not in copied:
                copied.add(index)
                open_ += self._reads[index]
        return sources, copied

    def maker(self, name: str) -> int | None:
        """Returns the position of the node that makes a free tensor; None for all else."""
        return self._free.get(name)

    def formula(self, name: str, shapes: Mapping[str, Sequence[int]]) -> OnnxModel | None:
        """Returns the nodes that compute a free tensor out of others, as a model; None where it takes something else.

        Args:
            name: The tensor.
            shapes: The shapes of the others; those that are not needed are no inputs.
        """
        sources = self._trace([name], shapes)[0] - self._constants
        if sources - shapes.keys():
            return None
        types = self.model.whole.element_types
        values = [onnx.helper.make_tensor_value_info(key, types[key], shapes[key]) for key in sorted(sources)]
        return OnnxModel(self.part([self._free[name]], values, [onnx.ValueInfoProto(name=name)]), self.model.path)

    def is_worth_it(self, nodes: Sequence[int]) -> bool:
        """Whether nodes are work enough for an engine."""
        return sum(map(self._work, nodes)) >= _LEAST_WORK

    def _work(self, index: int) -> int:
        op = self._columns.ops[index]
        return 0 if op in _MOVES else _HEAVY_WORK if op in _HEAVY else 1

    def with_copies(self, nodes: Sequence[int], inputs: Collection[str] = ()) -> list[int]:
        """Returns the positions of nodes and of what is copied for them, in order; inputs are there without."""
        _, copied = self._trace((name for index in nodes for name in self._reads[index]), inputs)
        return sorted({*nodes, *copied})

    def inputs(self, nodes: Sequence[int]) -> list[str]:
        """Returns the tensors that nodes need from elsewhere, in the order in which they are first read."""
        own = {name for index in nodes for name in self._outputs_of(index)}
        return list(dict.fromkeys(name for index in nodes for name in sorted(self.links[index].reads - own)))

    def outputs(self, nodes: Sequence[int]) -> list[str]:
        """Returns the tensors of nodes that are results of the model, or read by other nodes."""
        inside = set(nodes)
        needs = self._outputs.union(*(link.reads for index, link in self.links.items() if index not in inside))
        return [name for index in nodes for name in self._outputs_of(index) if name in needs]

    def part(
        self, nodes: Sequence[int], inputs: Iterable[onnx.ValueInfoProto], outputs: Iterable[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """Returns nodes as a model of its own, with what is copied for them and their weights.

        Args:
            nodes: Their positions.
            inputs: What they read.
            outputs: What they make.
        """
        whole, inputs = self.model.proto, list(inputs)
        indices = self.with_copies(nodes, {value.name for value in inputs})
        part = onnx.ModelProto(ir_version=whole.ir_version, producer_name=whole.producer_name)
        part.opset_import.extend(whole.opset_import)
        used = {(node.domain, node.op_type) for index in indices for node in all_nodes([self._columns.nodes[index]])}
        part.functions.extend(_called(whole.functions, used))
        part.graph.name = whole.graph.name or "part"
        part.graph.node.extend(self._columns.nodes[index] for index in indices)
        part.graph.input.extend(inputs)
        part.graph.output.extend(outputs)
        names: set[str] = set().union(*(self._reads[index] for index in indices))
        part.graph.initializer.extend(tensor for tensor in whole.graph.initializer if tensor.name in names)
        sparse = whole.graph.sparse_initializer
        part.graph.sparse_initializer.extend(tensor for tensor in sparse if tensor.values.name in names)
        return part


def _called(functions: Sequence[onnx.FunctionProto], used: Collection[tuple[str, str]]) -> Iterator[onnx.FunctionProto]:
    """Yields the functions that some operators are, and those that they call in turn."""
    needed = set(used)
    while True:
        inside = (
            node for function in functions if (function.domain, function.name) in needed for node in function.node
        )
        more = {(node.domain, node.op_type) for node in all_nodes(inside)} - needed
        if not more:
            break
        needed |= more
    yield from (function for function in functions if (function.domain, function.name) in needed)


def hold_outputs(model: OnnxModel) -> None:
    """Has every output of a model that is a constant made by a node, so that a part can return it."""
    graph = model.proto.graph
    outputs = {value.name for value in graph.output} - {value.name for value in graph.input}
    constants = [tensor for tensor in graph.initializer if tensor.name in outputs]
    for tensor in constants:
        name = tensor.name
        tensor.name = model.fresh_name(name)
        graph.node.insert(0, onnx.helper.make_node("Identity", [tensor.name], [name], name=tensor.name))
    if constants:
        model.touch()
