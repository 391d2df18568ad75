"""Which forms of Attention the parser reads as ONNX means them."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute, attributes_of
from trtconv.graph.scope import Scope

_PLAIN = frozenset({"is_causal", "scale", "q_num_heads", "kv_num_heads", "qk_matmul_output_mode"})
_MASK = 3
_LEAST_HEAD = 16
"""Size of a head from which on TensorRT-RTX has kernels of attention."""
_KEY, _VALUE = 1, 2


def is_plain(scope: Scope, index: int) -> bool:
    """Whether a node of Attention is one that TensorRT's layer computes.

    That one has one output, no caches, lengths or windows, either a mask or causality, heads of one size, and a mask as
    long as its keys. Source: TensorRT-RTX 1.7.1, on ONNX's node tests.
    """
    columns = scope.columns
    inputs, outputs = columns.inputs[index], columns.outputs[index]
    attrs = attributes_of(columns.nodes[index])
    if any(outputs[1:]) or any(inputs[_MASK + 1 :]):
        return False
    if any(name not in _PLAIN and not _is_off(name, value) for name, value in attrs.items()):
        return False
    has_mask = len(inputs) > _MASK and bool(inputs[_MASK])
    if has_mask and attrs.get("is_causal"):
        return False
    shapes = [scope.shape(name) for name in inputs]
    key, value = shapes[_KEY], shapes[_VALUE]
    if key is None or value is None or key[-1] != value[-1]:
        # Sizes that are not known are no reason to take it apart.
        return key is None or value is None or None in (key[-1], value[-1])
    mask = shapes[_MASK] if has_mask else None
    return mask is None or None in (mask[-1], key[-2]) or len(key) == 3 or mask[-1] in (1, key[-2])


def has_kernel(scope: Scope, index: int, target: Target, in_half: bool) -> bool:
    """Whether the builder has a kernel for a node of Attention that the parser takes.

    TensorRT-RTX has them in float16 and bfloat16, for heads of at least 16. Source: builds on 1.7.1.

    Args:
        scope: The graph of the node.
        index: Its position.
        target: What the model is meant for.
        in_half: Whether the network is cast to a half type before it is built.
    """
    if target.family != "rtx":
        return True
    columns = scope.columns
    query = columns.inputs[index][0]
    if not in_half and scope.dtype(query) not in ("float16", "bfloat16", None):
        return False
    shape = scope.shape(query)
    heads = attribute(columns.nodes[index], "q_num_heads", 1)
    if shape is None or shape[-1] is None:
        return True
    return shape[-1] // (heads if len(shape) == 3 and heads else 1) >= _LEAST_HEAD


def _is_off(name: str, value: object) -> bool:
    """Whether an attribute says what is so without it."""
    return (name == "softcap" and value == 0.0) or ("window" in name and value == -1)
