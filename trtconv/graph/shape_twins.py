"""What ONNX's inference is shown in the place of operators of ONNX Runtime, of which it knows nothing."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from trtconv.graph.scope import Scope, Whole
from trtconv.graph.types import MICROSOFT
from trtconv.graph.walk import inner_graphs

_ROOT_NORM = "SimplifiedLayerNormalization"
"""Which its files have in ONNX's domain."""
_OWN = ("QuantizeLinear", "DequantizeLinear")
"""Operators that ONNX has by the same name."""
_FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
"""Operators of ONNX with something behind them that leaves the shape as it is; they have three inputs."""
_ACTIVATION = "activation"
_OPERANDS = 3
_ALIKE = {
    "BiasGelu": (0,),
    "FastGelu": (0,),
    "Gelu": (0,),
    "QuickGelu": (0,),
    "RotaryEmbedding": (0,),
    _ROOT_NORM: (0,),
    "SkipLayerNormalization": (0, 3),
    "SkipSimplifiedLayerNormalization": (0, 3),
}
"""Operators, and which of their results are as their first input is."""
_IDENTITY = "Identity"
_OPS = frozenset({*_OWN, *_FUSED, *_ALIKE})


def with_shape_twins(whole: Whole, data: bytes) -> bytes:
    """Returns a model, serialized, in which nodes of ONNX Runtime's operators have others in their place.

    These have results of the same types and shapes, by which inference comes past them; what they compute is another
    matter.
    """
    if not any(_has_place(scope) for scope in whole.scopes):
        return data
    copy = onnx.ModelProto.FromString(data)
    # The innermost first: a graph's nodes are copied with the graphs inside them.
    for graph in reversed((copy.graph, *inner_graphs(copy.graph.node))):
        nodes = [twin for node in graph.node for twin in _twins(node)]
        del graph.node[:]
        graph.node.extend(nodes)
    serialized: bytes = copy.SerializeToString()
    return serialized


def _has_place(scope: Scope) -> bool:
    ops, domains = scope.by_op, scope.columns.domains
    return _ROOT_NORM in ops or any(domains[i] == MICROSOFT for op in _OPS & ops.keys() for i in ops[op])


def _twins(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    op = node.op_type
    if node.domain != MICROSOFT and op != _ROOT_NORM:
        return (node,)
    # Whoever asks counts the graphs inside nodes.
    if next(inner_graphs((node,)), None) is not None:
        return (node,)
    if op in _OWN:
        node.ClearField("domain")
    elif op in _FUSED:
        attributes = [a for a in node.attribute if not a.name.startswith(_ACTIVATION)]
        twin = onnx.NodeProto(
            op_type=_FUSED[op], input=node.input[:_OPERANDS], output=node.output, attribute=attributes
        )
        return (twin,)
    elif op in _ALIKE:
        names = (name for slot, name in enumerate(node.output) if slot in _ALIKE[op] and name)
        return [onnx.NodeProto(op_type=_IDENTITY, input=node.input[:1], output=[name]) for name in names]
    return (node,)
