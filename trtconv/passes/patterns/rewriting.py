"""The pass that a rule of rewriting is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from trtconv.core.documents.rewrite import Edit
from trtconv.core.errors import InputError
from trtconv.core.target import Target
from trtconv.graph import order
from trtconv.graph.folding import evaluate
from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches
from trtconv.graph.scope import Scope
from trtconv.graph.walk import constant_of
from trtconv.passes.base import Pass, PassResult
from trtconv.passes.patterns.match import Binding, Instance, Matcher
from trtconv.passes.patterns.text import TYPE, Texts

_MOST_ROUNDS = 1000
Elsewhere = Callable[[int], Collection[Instance]]


class RewritingPass(Pass):
    """Rewrites by a rule of two ONNX texts.

    Args:
        texts: The rule.
        instances: For what its texts were shown to be equal; nothing else is rewritten.
        elsewhere: Returns for what they are equal with the operators of another opset; None: that is not asked.
    """

    def __init__(self, texts: Texts, instances: Collection[Instance], elsewhere: Elsewhere | None = None) -> None:
        self.name = texts.rule.name  # type: ignore[misc]
        self._texts = texts
        self._instances = {texts.rule.opset: frozenset(instances)}
        self._elsewhere = elsewhere
        self._ops = {node.op_type for node in texts.pattern.node if constant_of(node) is None}

    @property
    def instances(self) -> frozenset[Instance]:
        """For what its texts were shown to be equal, at the rule's own opset."""
        return self._instances[self._texts.rule.opset]

    def example(self) -> OnnxModel:
        """Returns a model of the pattern alone, of the first types and ranks that were shown."""
        texts, instance = self._texts, min(self.instances, key=repr)
        floats = {name: 0.5 for name in texts.kinds if name != TYPE}
        types = dict(zip(texts.inputs, instance.types, strict=True))
        model = texts.model(texts.pattern, types, instance.kind, {**floats, **dict(instance.attributes)})
        graph = model.proto.graph
        for value, rank in zip(list(graph.input), instance.ranks, strict=True):
            condition = texts.rule.inputs.get(value.name)
            shape = condition.shape if condition and condition.shape else (2,) * rank
            sizes = [size if isinstance(size, int) else 2 for size in shape]
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, sizes))
            if condition and condition.constant:
                number = 1 if condition.least is None else condition.least
                values = np.full(sizes, number, onnx.helper.tensor_dtype_to_np_dtype(kind))
                graph.initializer.append(numpy_helper.from_array(values, value.name))
        model.touch()
        return model

    @property
    def page(self) -> str:
        """What the rule is for, and its two texts."""
        rule = self._texts.rule
        texts = f"Pattern:\n    {rule.pattern.strip()}\nReplacement:\n    {rule.replacement.strip()}"
        return f"{rule.about or 'Rewrites by a rule.'}\n\n{texts}"

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return any(self._ops <= scope.by_op.keys() for scope in model.scopes) and bool(self._shown_at(model.opset))

    def _shown_at(self, opset: int) -> frozenset[Instance]:
        """Returns for what the texts are equal with the operators of an opset."""
        own = self._texts.rule.opset
        if opset not in self._instances and self._texts.means_the_same(opset):
            self._instances[opset] = self._instances[own]
        elif opset not in self._instances:
            self._instances[opset] = frozenset() if self._elsewhere is None else frozenset(self._elsewhere(opset))
        return self._instances[opset]

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        edits: list[Edit] = []
        most = 2 * sum(len(scope.columns) for scope in model.scopes) + _MOST_ROUNDS
        while self.may_act(model, target) and (more := self._round(model)):
            edits += more
            if len(edits) > most:
                raise InputError(
                    f"rule of rewriting {self.name!r} never ends: it matches what it makes", "Narrow its pattern."
                )
        return PassResult(tuple(edits))

    def _round(self, model: OnnxModel) -> list[Edit]:
        """Rewrites what matches now, each node once."""
        patches, edits = [], []
        for scope in model.scopes:
            patch, nodes = Patch(model, scope), set[int]()
            for matcher, bound, instance in self._matches(scope, model.opset):
                if nodes.isdisjoint(bound.nodes.values()):
                    nodes.update(bound.nodes.values())
                    edits.append(self._replace(patch, matcher, bound, instance))
            patches.append(patch)
        close_patches(patches)
        if edits:
            order.sort(model)
        return edits

    def _matches(self, scope: Scope, opset: int) -> Iterator[tuple[Matcher, Binding, Instance]]:
        instances = self._shown_at(opset)
        for kind in dict.fromkeys(instance.kind for instance in sorted(instances, key=repr)):
            matcher = Matcher(self._texts, kind, scope, opset)
            for bound in matcher.matches():
                instance = matcher.instance(bound)
                if instance is not None and instance in instances:
                    yield matcher, bound, instance

    def _replace(self, patch: Patch, matcher: Matcher, bound: Binding, instance: Instance) -> Edit:
        scope, model = patch.scope, patch.model
        last = max(bound.nodes.values())
        place = scope.columns.names[last] or str(scope.location(last))
        names = {name: bound.tensors[name] for name in (*self._texts.inputs, *self._texts.outputs)}
        nodes: list[onnx.NodeProto] = []
        for node in self._texts.nodes(self._texts.replacement, instance.kind, bound.attributes):
            for name in node.output:
                if name and name not in names:
                    names[name] = model.fresh_name(f"{self.name}/{name}")
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = model.fresh_name(f"{self.name}/{node.op_type}")
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names.get(name, name) for name in node.output]
            nodes.append(copy)
        nodes, initializers = _folded(scope, nodes, {names[name] for name in self._texts.outputs}, model)
        for index in bound.nodes.values():
            patch.replace(index, nodes if index == last else [], initializers if index == last else [])
        was = ", ".join(scope.columns.ops[index] for index in sorted(bound.nodes.values()))
        return Edit(self.name, place, f"{was} written as {', '.join(node.op_type for node in nodes)}")


def _folded(
    scope: Scope, nodes: list[onnx.NodeProto], outputs: Collection[str], model: OnnxModel
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Returns nodes without those that have nothing but constants to work on, and what these make."""
    rest: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    for node in nodes:
        constant = constant_of(node)
        feeds = {
            name: values for name in node.input if name and (values := _values(scope, name, constants)) is not None
        }
        values = numpy_helper.to_array(constant) if constant is not None else None
        if constant is None and len(feeds) == len([name for name in node.input if name]) and len(node.output) == 1:
            values = evaluate([node], feeds, node.output[0], model.proto.opset_import)
        if values is None or node.output[0] in outputs:
            rest.append(node)
        else:
            constants[node.output[0]] = values
    names = {name for node in rest for name in node.input}
    return rest, [numpy_helper.from_array(values, name) for name, values in constants.items() if name in names]


def _values(scope: Scope, name: str, constants: dict[str, np.ndarray]) -> np.ndarray | None:
    return constants[name] if name in constants else scope.values(name)
