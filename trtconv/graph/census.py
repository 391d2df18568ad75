"""Counts what a file lists before anything looks at it: each entry costs every library behind trtconv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from trtconv.core import budget
from trtconv.core.findings import Location
from trtconv.graph.walk import BODIES, bodies


def take_census(proto: onnx.ModelProto) -> None:
    """Holds all that a model lists to the budget.

    Args:
        proto: The model, as it was parsed; nothing is known of it.

    Raises:
        BudgetExceeded: There is more of something than the budget allows.
    """
    weights_by_name = {tensor.name for tensor in proto.graph.initializer}
    inputs = sum(value.name not in weights_by_name for value in proto.graph.input)
    budget.spend("inputs", inputs + len(proto.graph.output), "with its outputs it")
    parts: list[Sequence[Any]] = [proto.metadata_props, proto.opset_import, proto.functions, proto.training_info]
    parts += [part for f in proto.functions for part in (f.input, f.output, f.attribute, f.opset_import)]
    entries = sum(map(len, parts))
    nodes = weights = tensors = 0
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [*proto.functions, proto.graph]
    while pending:
        scope = pending.pop()
        nodes += len(scope.node)
        budget.spend("nodes", nodes, "it")
        if isinstance(scope, onnx.GraphProto):
            weights += len(scope.initializer) + len(scope.sparse_initializer)
            tensors += len(scope.value_info) + len(scope.quantization_annotation)
            budget.spend("weights", weights, "it")
            budget.spend("tensors", tensors, "what it states of types and quantisation")
            entries += (
                len(scope.input) + len(scope.output) + sum(len(tensor.external_data) for tensor in scope.initializer)
            )
        entries += _entries(scope.node, pending)
        budget.spend("entries", nodes + weights + tensors + entries, "it")


def _entries(nodes: Sequence[onnx.NodeProto], pending: list[onnx.GraphProto | onnx.FunctionProto]) -> int:
    """Returns how much nodes list, and adds the graphs inside them to those that are to be counted.

    Raises:
        BudgetExceeded: One of them has more inputs and outputs, or more attributes, than the budget allows.
    """
    most_ends, most_attributes = budget.current().inputs, budget.current().attributes
    total = 0
    for index, node in enumerate(nodes):
        attributes = node.attribute
        ends, count = len(node.input) + len(node.output), len(attributes)
        if ends > most_ends or count > most_attributes:
            place = Location(index=index, node=node.name, op=node.op_type)
            budget.spend("inputs", ends, "the node, with its outputs,", place)
            budget.spend("attributes", count, "the node", place)
        for attribute in attributes:
            if attribute.type in BODIES:
                pending += bodies(attribute)
        total += ends + count + len(node.metadata_props)
    return total
