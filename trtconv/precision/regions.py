"""Which parts of a graph a cast leaves alone: shapes, quantised layers, repeated bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.walk import reads

_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def is_repeated(scope: Scope) -> bool:
    """Whether a graph is, or is in, the body of a Loop or Scan, where every round adds its own rounding."""
    # The attribute that holds it is "body"; an If has branches.
    inside: Scope | None = scope
    while inside is not None:
        if inside.path.endswith("/body"):
            return True
        inside = inside.parent
    return False


def data_names(model: OnnxModel) -> set[tuple[int, str]]:
    """Returns the tensors, with the position of their graph, that depend on the values of an input."""
    tensors: set[tuple[int, str]] = set()
    for scope in model.scopes:
        chain = [scope.position]
        parent = scope.parent
        while parent is not None:
            chain.append(parent.position)
            parent = parent.parent
        tensors.update((scope.position, value.name) for value in scope.graph.input)
        for node in scope.graph.node:
            if node.op_type in ("Shape", "Size") or not any((p, n) in tensors for n in reads(node) for p in chain):
                continue
            tensors.update((scope.position, name) for name in node.output if name)
    return tensors


_LAYOUT = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


def quantized_nodes(model: OnnxModel) -> set[tuple[int, int]]:
    """Returns the nodes that TensorRT fuses into int8 layers: graph's position, node's position."""
    if not model.has(("DequantizeLinear",)):
        return set()
    return {(scope.position, index) for scope in model.scopes for index in _quantized_in(scope)}


def _quantized_in(scope: Scope) -> Iterator[int]:
    nodes = scope.graph.node
    fed: dict[str, bool] = {}
    for index, node in enumerate(nodes):
        if node.op_type == "DequantizeLinear":
            fed.update(dict.fromkeys(node.output, True))
        elif node.op_type in _LAYOUT and fed.get(node.input[0]):
            fed[node.output[0]] = True
        elif node.op_type in _MATRIX and all(fed.get(name) for name in node.input[:2]):
            yield index
    # What stands between int8 layers, such as an activation: before a quantiser only, and behind dequantisers only.
    behind = _reached(nodes, lambda node: node.op_type == "DequantizeLinear", scope)
    outputs = {value.name for value in scope.graph.output}
    before: set[str] = set()
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        uses = [consumer for name in node.output for consumer in scope.consumers.get(name, ())]
        ends = uses and all(c.op_type == "QuantizeLinear" or before.issuperset(filter(None, c.output)) for c in uses)
        inner = any(scope.whole.uses[n] != len(scope.consumers.get(n, ())) for n in node.output if n)
        if ends and not inner and outputs.isdisjoint(node.output):
            before.update(name for name in node.output if name)
            if index in behind:
                yield index


def _reached(nodes: Sequence[onnx.NodeProto], is_source: Callable[[onnx.NodeProto], bool], scope: Scope) -> set[int]:
    """Returns the nodes all of whose computed inputs come from sources."""
    names: set[str] = set()
    indices: set[int] = set()
    for index, node in enumerate(nodes):
        computed = [n for n in node.input if n and scope.constant(n) is None] if names else []
        if is_source(node) or (computed and names.issuperset(computed)):
            names.update(node.output)
            indices.add(index)
    return indices
