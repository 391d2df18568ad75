"""Tensors inside a model, named by patterns."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.core.errors import InputError
from trtconv.core.node_patterns import matches
from trtconv.core.suggest import did_you_mean
from trtconv.graph.model import OnnxModel


def tensors_meant(model: OnnxModel, patterns: Sequence[str], flag: str) -> tuple[str, ...]:
    """Returns the inner tensors of the main graph that patterns mean, by their names or those of their operators.

    Raises:
        InputError: A pattern means none.
    """
    inner = {
        name: node.op_type
        for node in model.proto.graph.node
        for name in node.output
        if name and name not in model.outputs
    }
    for pattern in patterns:
        if not any(matches(pattern, name, op) for name, op in inner.items()):
            hint = f"It has {', '.join(list(inner)[:10])}."
            raise InputError(
                f"{flag} {pattern!r} means no inner tensor of {model.path}", did_you_mean(pattern, inner, hint)
            )
    return tuple(name for name, op in inner.items() if any(matches(glob, name, op) for glob in patterns))
