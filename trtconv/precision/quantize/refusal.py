"""What is said of a network of which nothing can be quantised."""

from __future__ import annotations

import collections
from collections.abc import Collection, Sequence
from pathlib import Path

from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.kinds import KINDS, QuantizationKind
from trtconv.precision.quantize.layers import NEEDS_QUANTIZER, WeightedLayer, find_layers
from trtconv.precision.quantize.placement import place_of

_MOST = 4
"""Operators, or reasons, that are listed."""


def require_layers(
    model: OnnxModel,
    layers: Sequence[WeightedLayer],
    kind: QuantizationKind,
    in_float: Collection[str],
    attention: bool = False,
    *,
    path: Path | None = None,
) -> None:
    """Checks that a kind has a layer to quantise: a file of floats that is called quantised helps nobody.

    Args:
        model: The float model.
        layers: Its layers with weights.
        kind: What layers are to be quantised to.
        in_float: Names of nodes that the user wants to stay in float.
        attention: Whether products of computed matrices are quantised too.
        path: What the user calls the model, where it is another file by now.

    Raises:
        InputError: All layers would stay in float; it says why, and which other kinds have one to quantise.
    """
    if place_of(kind, model.main, [layer for layer in layers if not layer.reason]).layers:
        return
    raise InputError(
        f"{path or model.path} has nothing that --kind {kind.name} quantises: {_reasons(model, layers)}",
        _remedy(model, kind, in_float, attention),
    )


def _reasons(model: OnnxModel, layers: Sequence[WeightedLayer]) -> str:
    if not layers:
        operators = collections.Counter(node.op_type for node in model.proto.graph.node)
        counts = _joined([f"{count} {op}" for op, count in operators.most_common()])
        return f"no layer of its main graph has weights ({counts})"
    reasons = collections.Counter((layer.node.op_type, layer.reason or NEEDS_QUANTIZER) for layer in layers)
    return _joined([f"{count} {op} ({reason})" for (op, reason), count in reasons.most_common()], "; ")


def _joined(parts: Sequence[str], separator: str = ", ") -> str:
    more = len(parts) - _MOST
    return separator.join([*parts[:_MOST], *([f"{more} more"] if more > 0 else [])])


def _remedy(model: OnnxModel, kind: QuantizationKind, in_float: Collection[str], attention: bool) -> str:
    if in_float and (count := _count(model, kind, (), attention)):
        return f"Leave out --float: {count} {_layers(count)} could be quantised then."
    if count := _count(model, kind, in_float, attention=True):
        return f"Add --attention: {count} {_layers(count)} could be quantised then."
    others = {other.name: _count(model, other, in_float) for other in KINDS.values() if other is not kind}
    able = [f"--kind {name} ({count} {_layers(count)})" for name, count in others.items() if count]
    return f"Use {' or '.join(able)}." if able else "Build it in float: trtconv build MODEL --precision fp16."


def _layers(count: int) -> str:
    return "layer" if count == 1 else "layers"


def _count(model: OnnxModel, kind: QuantizationKind, in_float: Collection[str], attention: bool = False) -> int:
    """Returns how many layers a kind quantises."""
    able = [layer for layer in find_layers(model.main, in_float, kind, attention) if not layer.reason]
    return len(place_of(kind, model.main, able).layers)
