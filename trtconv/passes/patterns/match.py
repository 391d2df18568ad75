"""Where the pattern of a rule of rewriting matches in a graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, helper, numpy_helper

from trtconv.core.frozen import frozen
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import constant_of
from trtconv.passes.patterns.text import TYPE, Texts, default_of, same_value, typed

_COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
_BROADCASTING = _COMMUTATIVE | {"Sub", "Div", "Pow", "Where", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
_MOST_PERMUTED = 3
"""Inputs of a commutative node that are tried in every order."""
_MOST_MATCHES = 64
_DTYPES = {"float": "float32", "double": "float64"}


@frozen
class Instance:
    """For what the two texts of a rule are compared, and where they may stand for each other.

    Args:
        kind: The type of the rule.
        types: The type of each input.
        ranks: The number of axes of each input.
        attributes: The bound attributes that have a few values.
    """

    kind: str
    types: tuple[str, ...]
    ranks: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass
class Binding:
    """What the names of a pattern stand for, as far as it has matched.

    Args:
        nodes: Node of the pattern to the position of the node that it is.
        tensors: Name in the pattern to that of the tensor in the graph.
        attributes: Name of an attribute to its value.
    """

    nodes: dict[int, int] = dataclasses.field(default_factory=dict)
    tensors: dict[str, str] = dataclasses.field(default_factory=dict)
    attributes: dict[str, object] = dataclasses.field(default_factory=dict)

    def copy(self) -> Binding:
        """Returns a copy."""
        return Binding(dict(self.nodes), dict(self.tensors), dict(self.attributes))


class Matcher:
    """Looks for a pattern in one graph.

    Args:
        texts: The rule.
        kind: The type of the rule that is looked for.
        scope: The graph.
        opset: The model's.
    """

    def __init__(self, texts: Texts, kind: str, scope: Scope, opset: int) -> None:
        self._texts = texts
        self._kind = kind
        self._scope = scope
        self._opset = opset
        nodes = list(texts.pattern.node)
        self._constants = {
            node.output[0]: numpy_helper.to_array(_typed(constant, kind))
            for node in nodes
            if (constant := constant_of(node)) is not None
        }
        self._nodes = [node for node in nodes if constant_of(node) is None]
        self._order = _connected(self._nodes)
        self._is_whole = len(self._order) == len(self._nodes)

    def matches(self) -> Iterator[Binding]:
        """Yields where the pattern matches; matches may overlap."""
        if not self._is_whole:
            return
        first = self._nodes[self._order[0]]
        for index in self._scope.by_op.get(first.op_type, ()):
            # Several at one place differ in the order of the inputs of commutative nodes.
            yield from itertools.islice(self._extend(Binding(), 0, [index]), _MOST_MATCHES)

    def _extend(self, bound: Binding, step: int, candidates: Sequence[int]) -> Iterator[Binding]:
        position = self._order[step]
        for index in candidates:
            if index in bound.nodes.values():
                continue
            for further in self._node(position, index, bound):
                further.nodes[position] = index
                if step + 1 < len(self._order):
                    yield from self._extend(further, step + 1, self._candidates(self._order[step + 1], further))
                elif self._holds(further):
                    yield further

    def _candidates(self, position: int, bound: Binding) -> list[int]:
        """Returns the nodes that a node of the pattern may be: one that makes what is bound, or that takes it."""
        node, scope = self._nodes[position], self._scope
        for name in node.output:
            if name in bound.tensors:
                index = scope.producers.get(bound.tensors[name])
                return [] if index is None else [index]
        for name in node.input:
            if name in bound.tensors and name not in self._constants:
                tensor = bound.tensors[name]
                columns = scope.columns
                return [i for i in scope.by_op.get(node.op_type, ()) if tensor in columns.inputs[i]]
        return []

    def _node(self, position: int, index: int, bound: Binding) -> Iterator[Binding]:
        """Yields what is bound if a node of the graph is one of the pattern."""
        node, columns = self._nodes[position], self._scope.columns
        if columns.ops[index] != node.op_type or _domain(columns.domains[index]) != _domain(node.domain):
            return
        attributes = self._attributes(node, columns.nodes[index], bound.attributes)
        outputs = list(columns.outputs[index])
        if attributes is None or len([name for name in outputs if name]) > len(node.output):
            return
        names, inputs = _trimmed(node.input), _trimmed(columns.inputs[index])
        if len(names) != len(inputs) or len(outputs) < len(_trimmed(node.output)):
            return
        pairs = [(name, outputs[i]) for i, name in enumerate(node.output) if name]
        for order in _orders(node, inputs):
            further = bound.copy()
            further.attributes = attributes
            links = zip(names, order, strict=True)
            fits = all(self._tensor(node, index, name, other, further) for name, other in links)
            if fits and all(_bind(further.tensors, name, other) for name, other in pairs):
                yield further

    def _tensor(self, node: onnx.NodeProto, index: int, name: str, other: str, bound: Binding) -> bool:
        if not name or not other:
            return name == other
        constant = self._constants.get(name)
        if constant is not None and not self._is_constant(node, index, constant, other):
            return False
        return _bind(bound.tensors, name, other)

    def _is_constant(self, node: onnx.NodeProto, index: int, constant: NDArray[Any], name: str) -> bool:
        tensor = self._scope.constant(name)
        if tensor is None or int(np.prod(tensor.dims, dtype=np.int64)) != constant.size:
            return False
        values = self._scope.values(name)
        if values is None or values.dtype != constant.dtype or not np.array_equal(values.ravel(), constant.ravel()):
            return False
        if values.shape == constant.shape:
            return True
        # One number is one number, also with axes of its own, as long as these do not show in the result.
        others = [self._scope.shape(other) for other in self._scope.columns.inputs[index] if other != name]
        fits = any(shape is not None and len(shape) >= values.ndim for shape in others)
        return constant.size == 1 and constant.ndim == 0 and node.op_type in _BROADCASTING and fits

    def _attributes(
        self, pattern: onnx.NodeProto, node: onnx.NodeProto, bound: Mapping[str, Any]
    ) -> dict[str, object] | None:
        """Returns the bound attributes if those of a node fit; None where they do not."""
        attributes, there = dict(bound), {attribute.name: attribute for attribute in node.attribute}
        texts = {attribute.name: attribute for attribute in pattern.attribute}
        for name in {*there, *texts}:
            default = default_of(node.op_type, node.domain, self._opset, name)
            attribute, text = there.get(name, default), texts.get(name, default)
            if attribute is None or text is None or attribute.ref_attr_name:
                return None
            value = helper.get_attribute_value(attribute)
            if text.ref_attr_name:
                first = attributes.setdefault(text.ref_attr_name, self._type_number(text.ref_attr_name, value))
                if attribute.type != text.type or not same_value(first, value):
                    return None
            elif attribute.type != text.type or not _same_attribute(text, attribute):
                return None
        return attributes

    def _type_number(self, name: str, value: Any) -> Any:
        return onnx.TensorProto.DataType.Value(self._kind.upper()) if name == TYPE else value

    def _holds(self, bound: Binding) -> bool:
        """Whether what is inside the match is used nowhere else."""
        inside = [name for node in self._nodes for name in node.output if name and name not in self._texts.outputs]
        for name in inside:
            tensor = bound.tensors[name]
            uses = sum(list(self._scope.columns.inputs[index]).count(tensor) for index in bound.nodes.values())
            if self._scope.uses_of(tensor) != uses:
                return False
        return True

    def instance(self, bound: Binding) -> Instance | None:
        """Returns what a match is an instance of; None where a condition does not hold, or a rank is not known."""
        texts, types, ranks = self._texts, [], []
        for name in texts.inputs:
            tensor = bound.tensors[name]
            dtype, shape = self._scope.dtype(tensor), self._scope.shape(tensor)
            if dtype is None or shape is None:
                return None
            types.append(next((key for key, value in _DTYPES.items() if value == dtype), dtype))
            ranks.append(len(shape))
        if not self._shapes_hold(bound) or not self._constants_hold(bound) or not self._floats_hold(bound):
            return None
        names = [name for name in texts.kinds if name != TYPE and texts.kinds[name] != AttributeProto.FLOAT]
        names += [
            name
            for name in texts.kinds
            if texts.kinds[name] == AttributeProto.FLOAT
            and name in texts.rule.attributes
            and texts.rule.attributes[name].values
        ]
        choice = next((option for option in texts.choices() if self._agrees(option, bound.attributes, names)), None)
        if choice is None:
            return None
        return Instance(self._kind, tuple(types), tuple(ranks), tuple(sorted(choice.items())))

    @staticmethod
    def _agrees(choice: Mapping[str, Any], attributes: Mapping[str, Any], names: Sequence[str]) -> bool:
        return all(same_value(choice[name], attributes[name]) for name in names)

    def _floats_hold(self, bound: Binding) -> bool:
        texts = self._texts
        free = [
            name
            for name, kind in texts.kinds.items()
            if kind == AttributeProto.FLOAT
            and not (name in texts.rule.attributes and texts.rule.attributes[name].values)
        ]
        return all(_within(bound.attributes[name], *texts.range(name)) for name in free)

    def _shapes_hold(self, bound: Binding) -> bool:
        sizes: dict[str, object] = {}
        for name, condition in self._texts.rule.inputs.items():
            if not condition.shape:
                continue
            tensor = bound.tensors[name]
            shape = self._scope.shape(tensor)
            if shape is None or len(shape) != len(condition.shape):
                return False
            for axis, (goal, size) in enumerate(zip(condition.shape, shape, strict=True)):
                # What is not known may still be the same as another: the file may call both by one name.
                label = size if size is not None else _size_name(self._scope, tensor, axis)
                if isinstance(goal, int):
                    if size != goal:
                        return False
                elif self._is_shared(goal) and (label is None or sizes.setdefault(goal, label) != label):
                    return False
        return True

    def _is_shared(self, size: str) -> bool:
        return sum(condition.shape.count(size) for condition in self._texts.rule.inputs.values()) > 1

    def _constants_hold(self, bound: Binding) -> bool:
        for name, condition in self._texts.rule.inputs.items():
            if not condition.constant:
                continue
            values = self._scope.values(bound.tensors[name])
            if values is None:
                return False
            if condition.least is not None and not np.all(values >= condition.least):
                return False
            if condition.most is not None and not np.all(values <= condition.most):
                return False
        return True


def _within(value: object, least: float, most: float) -> bool:
    return isinstance(value, float | int) and least <= value <= most


def _connected(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Returns nodes, the last first, so that each shares a tensor with one before it; those that do not are left out.

    The output's maker goes first: there are fewest of it.
    """
    order, names = [len(nodes) - 1], {*nodes[-1].input}
    while True:
        makers = (i for i, node in enumerate(nodes) if i not in order and names & {*node.output} - {""})
        readers = (i for i, node in enumerate(nodes) if i not in order and names & {*node.input} - {""})
        index = next(itertools.chain(makers, readers), None)
        if index is None:
            return order
        order.append(index)
        names |= {*nodes[index].input, *nodes[index].output}


def _orders(node: onnx.NodeProto, inputs: Sequence[str]) -> Iterator[Sequence[str]]:
    if node.op_type in _COMMUTATIVE and len(inputs) <= _MOST_PERMUTED:
        return iter(dict.fromkeys(itertools.permutations(inputs)))
    return iter([inputs])


def _bind(tensors: dict[str, str], name: str, other: str) -> bool:
    return tensors.setdefault(name, other) == other


def _trimmed(names: Sequence[str]) -> list[str]:
    result = list(names)
    while result and not result[-1]:
        result.pop()
    return result


def _domain(domain: str) -> str:
    return "" if domain in ONNX_DOMAINS else domain


def _typed(constant: onnx.TensorProto, kind: str) -> onnx.TensorProto:
    return typed(constant, kind) if constant.data_type == onnx.TensorProto.FLOAT else constant


def _same_attribute(one: AttributeProto, two: AttributeProto) -> bool:
    if one.type == AttributeProto.TENSOR:
        first, second = numpy_helper.to_array(one.t), numpy_helper.to_array(two.t)
        return first.dtype == second.dtype and np.array_equal(first, second)
    return same_value(helper.get_attribute_value(one), helper.get_attribute_value(two))


def _size_name(scope: Scope, tensor: str, axis: int) -> str | None:
    """Returns what the file calls a size that it does not know."""
    for value in scope.whole.inferred[scope.position]:
        if value.name == tensor:
            return str(value.type.tensor_type.shape.dim[axis].dim_param) or None
    return None
