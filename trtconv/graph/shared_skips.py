"""Skip connections of quantised networks whose scale is that of the Concat that takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.scope import Scope
from trtconv.graph.views import Linear


@frozen
class SharedSkip:
    """A tensor that a Concat takes and others read too, quantised with the scale of the Concat's result.

    Args:
        tensor: What is quantised.
        concat: Position of the Concat.
        scale: The scale.
        nodes: Positions of its QuantizeLinear and DequantizeLinear nodes, and of those of what MaxPool makes of it.
    """

    tensor: str
    concat: int
    scale: float
    nodes: tuple[int, ...]


def shared_skips(scope: Scope) -> Iterator[SharedSkip]:
    """Yields the shared skips of a graph, each once."""
    seen: set[str] = set()
    for index in scope.by_op.get("Concat", ()):
        scale = _scale_behind(scope, scope.columns.nodes[index].output[0])
        for name in scope.columns.inputs[index] if scale is not None else ():
            tensor = _quantised(scope, name, scale)
            if tensor is not None and tensor not in seen and _read_elsewhere(scope, tensor, name):
                seen.add(tensor)
                yield SharedSkip(tensor, index, float(scale or 0), tuple(sorted(_of_scale(scope, tensor, scale))))


def _scale_behind(scope: Scope, tensor: str) -> float | None:
    """Returns the scale of the quantiser behind a tensor; None without one, or where it is not a single number."""
    scales = [_single(scope, at) for at in _positions(scope, tensor, "QuantizeLinear")]
    return scales[0] if scales else None


def _single(scope: Scope, index: int) -> float | None:
    """Returns the scale of a symmetric quantiser of a whole tensor."""
    linear = Linear(scope, index)
    if linear.problem or linear.scale is None or linear.scale.size != 1:
        return None
    if linear.zero_point is None or np.any(linear.zero_point):
        return None
    return float(linear.scale.reshape(-1)[0])


def _quantised(scope: Scope, name: str, scale: float | None) -> str | None:
    """Returns the tensor that an input of a Concat is the quantised form of, with a scale; None where it is not."""
    dequantizer = scope.producers.get(name)
    if dequantizer is None or scope.columns.ops[dequantizer] != "DequantizeLinear":
        return None
    quantizer = scope.producers.get(scope.columns.inputs[dequantizer][0])
    if quantizer is None or scope.columns.ops[quantizer] != "QuantizeLinear":
        return None
    if _single(scope, dequantizer) != scale or _single(scope, quantizer) != scale:
        return None
    return scope.columns.inputs[quantizer][0]


def _read_elsewhere(scope: Scope, tensor: str, joined: str) -> bool:
    """Returns whether a tensor, or one of the two of its quantised form that a Concat takes, has other readers."""
    codes = scope.columns.inputs[scope.producers[joined]][0]
    # An input of the graph is mentioned there too.
    given = any(value.name == tensor for value in scope.graph.input)
    return scope.uses_of(tensor) - given > 1 or scope.uses_of(codes) > 1 or scope.uses_of(joined) > 1


def _of_scale(scope: Scope, tensor: str, scale: float | None) -> Iterator[int]:
    """Yields the quantisers of a tensor that have a scale, and of what MaxPool makes of it."""
    for quantizer in _positions(scope, tensor, "QuantizeLinear"):
        if _single(scope, quantizer) != scale:
            continue
        yield quantizer
        for dequantizer in _positions(scope, scope.columns.nodes[quantizer].output[0], "DequantizeLinear"):
            yield dequantizer
            real = scope.columns.nodes[dequantizer].output[0]
            for moved in _positions(scope, real, "MaxPool"):
                yield from _of_scale(scope, scope.columns.nodes[moved].output[0], scale)


def _positions(scope: Scope, tensor: str, *ops: str) -> Iterable[int]:
    """Returns the positions of the nodes of some operators that read a tensor first."""
    users = (scope.producers[node.output[0]] for node in scope.consumers.get(tensor, ()) if node.op_type in ops)
    return [index for index in users if scope.columns.inputs[index][0] == tensor]
