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
        in_float: Positions of the Concats that take it in float: what quantises their result quantises it too.
    """

    tensor: str
    concat: int
    scale: float
    nodes: tuple[int, ...]
    in_float: tuple[int, ...] = ()


def shared_skips(scope: Scope) -> Iterator[SharedSkip]:
    """Yields the shared skips of a graph, each once."""
    tensors: set[str] = set()
    for index in scope.by_op.get("Concat", ()):
        for scale in sorted(set(_scales_behind(scope, scope.columns.nodes[index].output[0]))):
            for name in scope.columns.inputs[index]:
                skip = _skip(scope, index, name, scale)
                if skip is not None and skip.tensor not in tensors:
                    tensors.add(skip.tensor)
                    yield skip


def _skip(scope: Scope, concat: int, name: str, scale: float) -> SharedSkip | None:
    """Returns what an input of a Concat is a skip of that shares the scale of the result; None where it is none."""
    tensor = _quantised(scope, name, scale)
    nodes = tuple(sorted(set(_of_scale(scope, name if tensor is None else tensor, scale))))
    if tensor is None:
        # Where only what MaxPool makes of it is quantised, TensorRT 8.6 was right (models/quantized_autoencoder.onnx).
        if not any(_single(scope, at) == scale for at in _positions(scope, name, "QuantizeLinear")):
            return None
        joins = {i for i in scope.by_op["Concat"] if name in scope.columns.inputs[i]}
        return SharedSkip(name, concat, scale, nodes, tuple(sorted(joins)))
    return SharedSkip(tensor, concat, scale, nodes) if _read_elsewhere(scope, tensor, name) else None


def _scales_behind(scope: Scope, tensor: str) -> Iterator[float]:
    """Yields the scales of the quantisers behind a tensor, and behind what MaxPool makes of it, that are single."""
    for quantizer in _positions(scope, tensor, "QuantizeLinear"):
        scale = _single(scope, quantizer)
        if scale is not None:
            yield scale
    for pool in _positions(scope, tensor, "MaxPool"):
        yield from _scales_behind(scope, scope.columns.nodes[pool].output[0])


def _single(scope: Scope, index: int) -> float | None:
    """Returns the scale of a symmetric quantiser of a whole tensor."""
    linear = Linear(scope, index)
    if linear.problem or linear.scale is None or linear.scale.size != 1:
        return None
    if linear.zero_point is None or np.any(linear.zero_point):
        return None
    return float(linear.scale.reshape(-1)[0])


def _quantised(scope: Scope, name: str, scale: float) -> str | None:
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
    is_input = tensor in scope.input_names
    return scope.uses_of(tensor) - is_input > 1 or scope.uses_of(codes) > 1 or scope.uses_of(joined) > 1


def _of_scale(scope: Scope, tensor: str, scale: float) -> Iterator[int]:
    """Yields the quantisers of a tensor that have a scale, and of what MaxPool makes of it."""
    for quantizer in _positions(scope, tensor, "QuantizeLinear"):
        if _single(scope, quantizer) != scale:
            continue
        yield quantizer
        for dequantizer in _positions(scope, scope.columns.nodes[quantizer].output[0], "DequantizeLinear"):
            yield dequantizer
            yield from _of_scale_pooled(scope, scope.columns.nodes[dequantizer].output[0], scale)
    yield from _of_scale_pooled(scope, tensor, scale)


def _of_scale_pooled(scope: Scope, tensor: str, scale: float) -> Iterator[int]:
    for pool in _positions(scope, tensor, "MaxPool"):
        yield from _of_scale(scope, scope.columns.nodes[pool].output[0], scale)


def _positions(scope: Scope, tensor: str, *ops: str) -> Iterable[int]:
    """Returns the positions of the nodes of some operators that read a tensor first."""
    users = (scope.producers[node.output[0]] for node in scope.consumers.get(tensor, ()) if node.op_type in ops)
    return [index for index in users if scope.columns.inputs[index][0] == tensor]
