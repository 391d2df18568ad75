"""Where a graph is cut when an engine cannot take all of it: a pure function of what nodes read and make.

Each node is on a level: 0 where nothing has to run before it, and one more than what it reads wherever the side changes
between engine and ONNX. The nodes of one level are one part. Levels never fall along an edge, so that parts cannot wait
for each other in a circle, and there are no more of them than the longest path changes sides.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from trtconv.core.frozen import frozen

_ROUNDS = 8
"""How often all nodes are looked at for a level with fewer crossings."""


@frozen
class Links:
    """A node as the cut sees it.

    Args:
        reads: The tensors that it needs, directly or through what is copied into each part.
        makes: The tensors that it makes.
    """

    reads: frozenset[str]
    makes: tuple[str, ...]


@frozen
class NodeGroup:
    """Nodes that run together.

    Args:
        is_engine: Whether an engine is to run them.
        nodes: Their positions, in order.
    """

    is_engine: bool
    nodes: tuple[int, ...]


def cut(
    nodes: Mapping[int, Links], refused: Collection[int], is_worth_it: Callable[[Sequence[int]], bool]
) -> tuple[NodeGroup, ...]:
    """Divides nodes into parts that can run one after the other.

    Args:
        nodes: Position to node; each reads only what nodes at lower positions make, or what nobody makes.
        refused: Positions of those that no engine takes.
        is_worth_it: Whether nodes are enough for an engine; where they are not, they stay with ONNX. Not asked where
            nothing is refused.

    Returns:
        The parts, in the order in which they run; every node is in exactly one of them.
    """
    outside = set(refused)
    while True:
        parts = _Levels(nodes, outside).parts()
        small = [part for part in parts if outside and part.is_engine and not is_worth_it(part.nodes)]
        if not small:
            return tuple(parts)
        # What the smallest gives up may be enough for the others.
        outside.update(min(small, key=lambda part: len(part.nodes)).nodes)


def crossings(nodes: Mapping[int, Links], parts: Sequence[NodeGroup]) -> int:
    """Returns how many tensors go from a part into another, counted once for each that reads it."""
    home = {name: number for number, part in enumerate(parts) for node in part.nodes for name in nodes[node].makes}
    return sum(
        len({name for node in part.nodes for name in nodes[node].reads if home.get(name, number) != number})
        for number, part in enumerate(parts)
    )


class _Levels:
    """Nodes on levels; even ones are for ONNX, odd ones for engines.

    Args:
        nodes: As for `cut`.
        rest: Positions of those that stay with ONNX.
    """

    def __init__(self, nodes: Mapping[int, Links], rest: Collection[int]) -> None:
        self._nodes = nodes
        self._rest = rest
        self._order = sorted(nodes)
        makers = {name: node for node in self._order for name in nodes[node].makes}
        self._before = {
            node: {makers[name] for name in nodes[node].reads if name in makers} - {node} for node in self._order
        }
        self._after: dict[int, set[int]] = {node: set() for node in self._order}
        for node, before in self._before.items():
            for earlier in before:
                self._after[earlier].add(node)
        self._makers = makers
        self._readers: dict[str, list[int]] = collections.defaultdict(list)
        for node in self._order:
            for name in nodes[node].reads:
                self._readers[name].append(node)
        self._level: dict[int, int] = {}
        for node in self._order:
            self._level[node] = self._earliest(node)

    def parts(self) -> list[NodeGroup]:
        """Returns the parts after what can be moved to another level has been."""
        self._empty_levels()
        for _ in range(_ROUNDS):
            if not self._move_nodes():
                break
        groups: dict[int, list[int]] = collections.defaultdict(list)
        for node in self._order:
            groups[self._level[node]].append(node)
        return [NodeGroup(level % 2 == 1, tuple(groups[level])) for level in sorted(groups)]

    def _side(self, node: int) -> int:
        return 0 if node in self._rest else 1

    def _earliest(self, node: int) -> int:
        lowest = max((self._level[earlier] for earlier in self._before[node]), default=0)
        return lowest if lowest % 2 == self._side(node) else lowest + 1

    def _latest(self, node: int, levels: Mapping[int, int]) -> int | None:
        """Returns the last level that a node may be on; None where nothing waits for it."""
        highest = min((levels[later] for later in self._after[node]), default=None)
        return highest if highest is None or highest % 2 == self._side(node) else highest - 1

    def _empty_levels(self) -> None:
        """Moves whole levels, the first ones first, behind others of their side: that makes one part fewer."""
        top = max(self._level.values(), default=0)
        for level in range(top - 1):
            moved = [node for node in self._order if self._level[node] == level]
            levels = dict(self._level)
            for node in reversed(moved):
                latest = self._latest(node, levels)
                # What nothing waits for may go anywhere; the next part of its side is as good as any.
                levels[node] = level + 2 if latest is None else min(latest, level + 2)
            if moved and all(levels[node] > level for node in moved):
                self._level = levels

    def _move_nodes(self) -> bool:
        """Moves single nodes to the level at which fewest tensors cross; returns whether any moved."""
        used = set(self._level.values())
        changed = False
        for node in (*reversed(self._order), *self._order):
            first, here = self._earliest(node), self._level[node]
            last = self._latest(node, self._level)
            choices = [level for level in sorted(used) if level % 2 == here % 2 and first <= level]
            choices = [level for level in choices if level <= (max(used) if last is None else last)]
            best = min(choices, key=functools.partial(self._crossing, node))
            if self._crossing(node, best) < self._crossing(node, here):
                self._level[node], changed = best, True
        return changed

    def _crossing(self, node: int, level: int) -> int:
        """Returns how many tensors cross to and from a node if it is on a level."""
        return sum(1 for _ in self._crossed(node, level))

    def _crossed(self, node: int, level: int) -> Iterator[str]:
        for name in self._nodes[node].reads:
            if name in self._makers:
                beside = any(self._level[reader] == level for reader in self._readers[name] if reader != node)
                if self._level[self._makers[name]] != level and not beside:
                    yield name
        for name in self._nodes[node].makes:
            for _ in {self._level[reader] for reader in self._readers[name]} - {level}:
                yield name
