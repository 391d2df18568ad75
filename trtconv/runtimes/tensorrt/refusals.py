"""Lists every node that the parser refuses, where the parser itself stops early.

The parser looks at each node twice: it checks the operator and its attributes, and it imports the node. Once a check
has failed it goes on checking but imports nothing more, and the first import that fails ends everything. So what it
reports may be one node of many. Here it is asked again: once with a node in front that it is sure to refuse, so that
it checks all others, and then as often as it names new nodes with the refused ones taken out and their outputs made
inputs of the graph.

A node must never be accused because of what was done to the model for asking. So only tensors whose type and shape
are known are made inputs, nodes behind others are left out, and a refusal is believed only of a node that reads such
an input as its data, and of none behind an input that may be a shape or an index.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from trtconv.core.frozen import frozen
from trtconv.graph.propagation import data_can_be_propagated
from trtconv.graph.walk import bodies, reads
from trtconv.runtimes.tensorrt.base import ParserIssue

if TYPE_CHECKING:
    import onnx

_ROUNDS = 50
_PROBE = "trtconv.probe"

Parse = Callable[[bytes], tuple[ParserIssue, ...]]
_Hidden = list[tuple[int, tuple[str, ...], Any]]


def all_issues(
    model: bytes, first: tuple[ParserIssue, ...], parse: Parse, knows: Callable[[str], bool]
) -> tuple[ParserIssue, ...]:
    """Lists all refused nodes of a model that the parser refused.

    Args:
        model: Serialized ModelProto.
        first: What the parser said of it.
        parse: Parses another model and returns what the parser said.
        knows: Whether the parser has an importer for an operator type.

    Returns:
        One issue or more a refused node, in the order of the graph; just `first` where that is about no node.
    """
    if any(issue.node_index < 0 for issue in first):
        return first
    graph = _Graph(model)
    issues = [graph.describe(issue) for issue in first]
    issues += graph.checked(parse, knows)
    refused = {issue.node_index for issue in issues}
    for _ in range(_ROUNDS):
        variant = graph.without(refused)
        fresh = [graph.describe(issue) for issue in variant.issues(parse) if issue.node_index not in refused]
        if not fresh:
            break
        issues += [issue for issue in fresh if issue.node_index in variant.trusted]
        refused.update(issue.node_index for issue in fresh)
    return tuple(sorted(dict.fromkeys(issues), key=lambda issue: issue.node_index))


@frozen
class _Variant:
    """A model made of a part of the nodes of another.

    Args:
        data: The serialized model.
        origin: For each node the position of its original; -1 for one that was added.
        trusted: Positions of those originals whose refusal is to be believed.
    """

    data: bytes
    origin: list[int]
    trusted: frozenset[int]

    def issues(self, parse: Parse) -> Iterator[ParserIssue]:
        """Parses, and numbers the issues as in the original; leaves out those that are about no node of it."""
        for issue in parse(self.data):
            position = self.origin[issue.node_index] if 0 <= issue.node_index < len(self.origin) else -1
            if position >= 0:
                yield dataclasses.replace(issue, node_index=position)


class _Graph:
    """The main graph of a model."""

    def __init__(self, model: bytes) -> None:
        import onnx

        self._model = onnx.load_model_from_string(model)
        self._nodes = list(self._model.graph.node)
        self._reads = [reads(node) for node in self._nodes]
        self._types = _types(self._model)
        self._constants = _constants(self._model)
        self._functions = {(f.domain, f.name) for f in self._model.functions}

    def describe(self, issue: ParserIssue) -> ParserIssue:
        """Fills in what the parser did not say: the node's name and operator (8.6), or the node that holds it."""
        node = self._nodes[issue.node_index]
        if not issue.op:
            return dataclasses.replace(issue, node_name=node.name, op=node.op_type)
        if issue.inside or (issue.op == node.op_type and issue.node_name in (node.name, _label(node))):
            return issue
        return dataclasses.replace(issue, inside=(f"{_label(node)} ({node.op_type})",))

    def checked(self, parse: Parse, knows: Callable[[str], bool]) -> list[ParserIssue]:
        """Returns what the parser says when it only checks: all of the main graph, and operators in subgraphs."""
        import onnx

        # Checks do not enter the branches of an If that is not imported. Operators without an importer are laid open
        # beside it, to be looked up among the plugins.
        knows = functools.cache(knows)
        hidden: _Hidden = [
            (index, inside, node)
            for index, outer in enumerate(self._nodes)
            for inside, node in _inner_nodes(outer)
            if (node.domain, node.op_type) not in self._functions and not knows(node.op_type)
        ]
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        del model.graph.node[:]
        model.graph.node.append(onnx.helper.make_node("Refused", [], [f"{_PROBE}.refused"], domain=_PROBE))
        model.graph.node.extend(self._nodes)
        for number, (_, _, node) in enumerate(hidden):
            copy = model.graph.node.add()
            copy.CopyFrom(node)
            copy.name = _label(node)
            del copy.input[:]
            del copy.output[:]
            copy.output.append(f"{_PROBE}.{number}")
        model.opset_import.append(onnx.helper.make_opsetid(_PROBE, 1))
        origin = [-1, *range(len(self._nodes)), *(index for index, _, _ in hidden)]
        return self._place(_Variant(model.SerializeToString(), origin, frozenset()).issues(parse), hidden)

    def _place(self, issues: Iterable[ParserIssue], hidden: _Hidden) -> list[ParserIssue]:
        """Says of the nodes that were laid open where they belong."""
        places = {(index, _label(node), node.op_type): inside for index, inside, node in hidden}
        placed = []
        for issue in issues:
            inside = places.get((issue.node_index, issue.node_name, issue.op), issue.inside)
            placed.append(self.describe(dataclasses.replace(issue, inside=inside)))
        return placed

    def without(self, refused: Iterable[int]) -> _Variant:
        """Makes the model without some nodes, their outputs inputs, and without those that then cannot be parsed."""
        import onnx

        drops = self._close(set(refused))
        rest = [index for index in range(len(self._nodes)) if index not in drops]
        missing = {name for index in drops for name in self._nodes[index].output if name}
        needs: set[str] = set().union(*(self._reads[index] for index in rest))
        stubs = sorted(missing & needs)
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        del model.graph.node[:]
        model.graph.node.extend(self._nodes[index] for index in rest)
        model.graph.input.extend(onnx.helper.make_value_info(name, self._types[name]) for name in stubs)
        outputs = [output for output in self._model.graph.output if output.name not in missing]
        del model.graph.output[:]
        model.graph.output.extend(outputs)
        fragile = self._behind({name for name in stubs if name in self._constants or not self._is_data(name)}, rest)
        trusted = frozenset(i for i in rest if not self._reads[i] & fragile and self._reads_as_data(i, set(stubs)))
        return _Variant(model.SerializeToString(), rest, trusted)

    def _close(self, gone: set[int]) -> set[int]:
        """Adds the nodes that read what can be no input, for want of a type or a shape."""
        while True:
            lost = {name for index in gone for name in self._nodes[index].output if name not in self._types}
            more = {index for index, reads in enumerate(self._reads) if index not in gone and lost & reads}
            if not more:
                return gone
            gone |= more

    def _is_data(self, name: str) -> bool:
        """Whether a tensor is of a floating point type, so that it is hardly a shape or an index."""
        from onnx import TensorProto

        data = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
        return self._types[name].tensor_type.elem_type in data

    def _behind(self, names: set[str], indices: Iterable[int]) -> set[str]:
        """Returns the given tensors and all that is computed from them."""
        behind = set(names)
        for index in indices:
            if self._reads[index] & behind:
                behind.update(self._nodes[index].output)
        return behind

    def _reads_as_data(self, index: int, stubs: set[str]) -> bool:
        """Whether a node reads no stub, or one only and as its first input."""
        inputs = self._reads[index] & stubs
        return not inputs or inputs == set(self._nodes[index].input[:1])


def _label(node: Any) -> str:
    """Names a node as the parser does, which makes up a name for one without."""
    return node.name or f"node_of_{next(iter(node.output), '')}"


def _inner_nodes(node: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every node in the subgraphs of a node, and what it sits in, as the parser writes it."""
    for attribute, graph in ((a, body) for a in node.attribute for body in bodies(a)):
        inside = (f"{_label(node)} ({node.op_type})", f"{graph.name} ({attribute.name})")
        for inner in graph.node:
            yield inside, inner
            for deeper, innermost in _inner_nodes(inner):
                yield inside + deeper, innermost


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Returns the types of the tensors of the main graph whose shape is known but for named dimensions."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=data_can_be_propagated(model.graph, model)).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError):
        # Only a help: without types fewer nodes can be looked at.
        graph = model.graph
    return {value.name: value.type for value in (*graph.value_info, *graph.output) if _is_known(value.type)}


def _is_known(type_proto: Any) -> bool:
    tensor = type_proto.tensor_type
    if not type_proto.HasField("tensor_type") or not tensor.elem_type or not tensor.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim)


def _constants(model: Any) -> set[str]:
    """Returns the names of the tensors that depend on no input of the graph."""
    names = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if names.issuperset(reads(node)):
            names.update(node.output)
    return names
