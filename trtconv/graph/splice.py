"""New nodes put into a graph in place of old ones, and what nothing uses any more taken out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope


def splice(graph: onnx.GraphProto, fresh: dict[int, list[onnx.NodeProto]]) -> None:
    """Puts the new nodes where the old ones were; all others stay the objects that they are."""
    nodes = graph.node
    if all(len(group) == 1 for group in fresh.values()):
        for index, (node,) in fresh.items():
            nodes[index].CopyFrom(node)
        return
    places = [*range(len(nodes)), *(index for index, group in fresh.items() for _ in group)]
    marks = [index in fresh for index in range(len(nodes))] + [False] * (len(places) - len(nodes))
    nodes.extend(itertools.chain.from_iterable(fresh.values()))
    _arrange(nodes, zip(marks, places, strict=True))
    del nodes[len(nodes) - len(fresh) :]


def _arrange(entries: Any, keys: Iterable[Any]) -> None:
    """Sorts a repeated field by one key an entry; equals stay in order. Taking entries out one by one is quadratic."""
    order = iter(keys)
    entries.sort(key=lambda _: next(order))


def drop(entries: Any, gone: Collection[int]) -> None:
    """Removes the entries of a repeated field that lie at these positions."""
    if gone:
        _arrange(entries, (index in gone for index in range(len(entries))))
        del entries[len(entries) - len(gone) :]


def unread(scope: Scope) -> tuple[set[int], set[str]]:
    """Returns the positions of the nodes from which nothing comes that anybody reads, and the tensors at their ends."""
    names = {name for outputs in scope.columns.outputs for name in outputs if name and not scope.uses_of(name)}
    _, nodes, _ = _unused(scope, names, Counter(scope.whole.uses))
    return nodes, names


def prune(model: OnnxModel, dropped: dict[int, set[str]]) -> None:
    """Removes initializers and nodes that nothing uses any more.

    Args:
        model: The model; what its graphs know of `uses` is up to date.
        dropped: Position of a scope to tensors that lost a use there.
    """
    lost_bodies = False
    # Inner graphs first: what they leave may be the last use of a tensor outside.
    for scope in reversed(model.scopes):
        names = dropped.pop(scope.position, set())
        foreign, bodies = _prune_scope(scope, names, model.whole.uses) if names else (set(), False)
        lost_bodies |= bodies
        if scope.parent is not None and foreign:
            dropped.setdefault(scope.parent.position, set()).update(foreign)
    # Only now: the scopes find each other by identity.
    if lost_bodies:
        model.touch()
    model.forget_shapes()


def _prune_scope(scope: Scope, names: set[str], uses: Counter[str]) -> tuple[set[str], bool]:
    """Prunes one graph; returns the names that it does not own, and whether graphs inside it went."""
    initializers, nodes, foreign = _unused(scope, names, uses)
    lost_bodies = any(index in nodes for index, _, _ in scope.columns.bodies())
    if initializers:
        owned = enumerate(scope.graph.initializer)
        drop(scope.graph.initializer, {index for index, tensor in owned if tensor.name in initializers})
    if nodes:
        drop(scope.graph.node, nodes)
        scope.columns.replace(dict.fromkeys(nodes, 0), scope.graph.node)
    if initializers or nodes:
        scope.forget()
    return foreign, lost_bodies


def _unused(scope: Scope, names: set[str], uses: Counter[str]) -> tuple[set[str], set[int], set[str]]:
    """Finds what only made tensors that lost their last use: initializers, nodes, and names of outer graphs.

    Args:
        scope: The graph.
        names: Tensors that lost a use.
        uses: The model's; what the found nodes took is subtracted.
    """
    columns = scope.columns
    initializers: set[str] = set()
    nodes: set[int] = set()
    foreign: set[str] = set()
    counts: dict[str, int] = {}

    def count(name: str) -> int:
        return counts.setdefault(name, scope.uses_of(name))

    queue = [n for n in names if n]
    for name in queue:
        index = scope.producers.get(name)
        if name in scope.initializers:
            initializers.update([] if count(name) else [name])
        elif index is None:
            foreign.add(name)
        elif index not in nodes and not any(count(out) for out in columns.outputs[index] if out):
            nodes.add(index)
            sources = [n for n in columns.inputs[index] if n]
            for source in sources:
                counts[source] = count(source) - 1
            uses.subtract(columns.inputs[index])
            queue.extend(sources)
    return initializers, nodes, foreign
