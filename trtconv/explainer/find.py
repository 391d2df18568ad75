"""The node that was asked for, by name, number or output."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from trtconv.core.errors import InputError
from trtconv.explainer.around import place_of
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import Deconv

_NEAR_NAMES = 5


def find(model: OnnxModel, nodes: Sequence[Deconv], query: str) -> Deconv:
    """Finds the ConvTranspose that a user means.

    Args:
        model: The model.
        nodes: Its ConvTransposes.
        query: A node's name, its index in the main graph, its place ("graph/node[5]"), or its output tensor.

    Raises:
        InputError: There is no such node, it is no ConvTranspose, or several have that name.
    """
    places = {(node.scope.path, node.index): node for node in nodes}
    matches = list(_matches(model, query))
    for kind in ("name", "place", "output"):
        hits = [places[at] for k, at in matches if k == kind and at in places]
        if len(hits) == 1:
            return hits[0]
        if hits:
            where = ", ".join(place_of(node) for node in hits)
            raise InputError(f"{query!r} is {len(hits)} ConvTranspose nodes", f"Give the place of one: {where}.")
    if matches:
        path, index = matches[0][1]
        scope = next(s for s in model.scopes if s.path == path)
        raise InputError(f"{scope.location(index)} is not a ConvTranspose", _choices(nodes, query))
    raise InputError(f"{model.path} has no node {query!r}", _choices(nodes, query))


def _matches(model: OnnxModel, query: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yields how a node fits what was asked, and its graph and index; every operator counts."""
    place = re.match(r"(?:(.*)/)?(?:node\[)?(\d+)\]?(?: |$)", query)
    for scope in model.scopes:
        for index, node in enumerate(scope.graph.node):
            at = (scope.path, index)
            if node.name and node.name == query:
                yield "name", at
            if place and int(place[2]) == index and (place[1] or "graph") == (scope.path or "graph"):
                yield "place", at
            if query in node.output:
                yield "output", at


def _choices(nodes: Sequence[Deconv], query: str) -> str:
    """Returns a hint that names ConvTransposes, those with near names first."""
    if not nodes:
        return "The model has no ConvTranspose."
    names = [node.node.name or place_of(node) for node in nodes]
    outputs: dict[str, str] = {node.node.output[0]: name for name, node in zip(names, nodes, strict=True)}
    labels = outputs | {name: name for name in names}
    close = difflib.get_close_matches(query, labels, n=_NEAR_NAMES, cutoff=0.5)
    near = dict.fromkeys(labels[label] for label in close)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(names) - _NEAR_NAMES} more" if len(names) > _NEAR_NAMES else ""
    return f"Its ConvTranspose nodes: {', '.join(names[:_NEAR_NAMES])}{more}."
