"""Two parsed networks of one model, layer by layer."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from trtconv.core.documents.upgrade import AttributeChange, LayerDifference, ParsedLayer


def differences(before: Sequence[ParsedLayer], after: Sequence[ParsedLayer]) -> tuple[LayerDifference, ...]:
    """Returns the layers that are not the same, in the networks' order.

    Layers belong together by their node and kind, in order; names and numbers of tensors count for nothing, since
    parsers number what they add. An attribute that only one version tells of is no difference.
    """
    return tuple(_differences(before, after))


def _differences(before: Sequence[ParsedLayer], after: Sequence[ParsedLayer]) -> Iterator[LayerDifference]:
    keys, other_keys = ([(layer.node, layer.kind) for layer in layers] for layers in (before, after))
    matcher = difflib.SequenceMatcher(None, keys, other_keys, autojunk=False)
    for tag, start, stop, other_start, other_stop in matcher.get_opcodes():
        if tag == "equal":
            for one, other in zip(before[start:stop], after[other_start:other_stop], strict=True):
                changed = tuple(_attributes(one, other))
                if changed:
                    yield LayerDifference(one.node, one.kind, other.kind, changed)
            continue
        for index in range(start, stop):
            yield LayerDifference(_node(before, index), before[index].kind, None)
        for index in range(other_start, other_stop):
            yield LayerDifference(_node(after, index), None, after[index].kind)


def _attributes(one: ParsedLayer, other: ParsedLayer) -> Iterator[AttributeChange]:
    for name, value in one.attributes.items():
        if name in other.attributes and other.attributes[name] != value:
            yield AttributeChange(name, value, other.attributes[name])


def _node(layers: Sequence[ParsedLayer], index: int) -> str:
    """Returns the node that a layer came from: what the parser adds mostly goes before the layer that needs it."""
    return next((layer.node for layer in (*layers[index:], *reversed(layers[:index])) if layer.node), "")
