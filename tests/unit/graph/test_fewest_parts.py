"""How nodes are divided between engine and ONNX, against all there is to try on small graphs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtconv.graph.partition import Links, NodeGroup, crossings, cut


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, Links], set[int]]:
    """Draws a few nodes of one or two results each, at positions with gaps, and those that no engine takes."""
    nodes: dict[int, Links] = {}
    made = ["x", "z"]
    for position in range(0, 2 * draw(st.integers(1, 7)), 2):
        reads = draw(st.sets(st.sampled_from(made[-6:]), min_size=1, max_size=3))
        makes = tuple(f"t{position}_{number}" for number in range(draw(st.sampled_from((1, 1, 2)))))
        nodes[position] = Links(frozenset(reads), makes)
        made += makes
    return nodes, draw(st.sets(st.sampled_from(sorted(nodes))))


def is_in_order(nodes: Mapping[int, Links], parts: Sequence[Sequence[int]]) -> bool:
    """Whether each part reads only what it makes itself, at positions before, or what parts before it make."""
    ready = {"x", "z"}
    for part in parts:
        for node in part:
            if not nodes[node].reads <= ready:
                return False
            ready.update(nodes[node].makes)
    return True


def changes(nodes: Mapping[int, Links], refused: set[int]) -> int:
    """Returns how often the longest path changes sides, of those that begin with ONNX."""
    makers = {name: node for node, links in nodes.items() for name in links.makes}
    last: dict[int, int] = {}
    for node, links in nodes.items():
        before = max((last[makers[name]] for name in links.reads if name in makers), default=0)
        last[node] = before + ((before % 2 == 0) != (node in refused))
    return max(last.values())


def moved(parts: Sequence[NodeGroup], node: int, to: int) -> list[NodeGroup]:
    groups = [set(part.nodes) - {node} for part in parts]
    groups[to].add(node)
    return [NodeGroup(part.is_engine, tuple(sorted(g))) for part, g in zip(parts, groups, strict=True)]


@settings(deadline=None, max_examples=150)
@given(graphs())
def test_parts_are_few_and_no_node_is_better_off_in_another(drawn: tuple[dict[int, Links], set[int]]) -> None:
    nodes, refused = drawn
    parts = cut(nodes, refused, lambda group: True)
    assert sorted(node for part in parts for node in part.nodes) == sorted(nodes)
    assert all((node in refused) != part.is_engine for part in parts for node in part.nodes)
    assert all(list(part.nodes) == sorted(part.nodes) and part.nodes for part in parts)
    assert is_in_order(nodes, [part.nodes for part in parts])
    assert len(parts) <= changes(nodes, refused) + 1
    for node, to in itertools.product(nodes, range(len(parts))):
        other = moved(parts, node, to)
        if parts[to].is_engine == (node not in refused) and is_in_order(nodes, [part.nodes for part in other]):
            assert crossings(nodes, other) >= crossings(nodes, parts)


def chain(*reads: str) -> dict[int, Links]:
    """Makes nodes that make a, b, c, ... of what is told by letters."""
    return {number: Links(frozenset(letters), ("abcdefgh"[number],)) for number, letters in enumerate(reads)}


# What each node reads, which of them no engine takes, and the parts; those of engines in capitals.
CUTS = [
    ("x", "", ["A"]),
    ("x", "a", ["a"]),
    ("x a b", "b", ["A", "b", "C"]),
    # A side branch waits for its reader, and runs with it.
    ("x x a b", "d", ["ABC", "d"]),
    ("x x ab c", "a", ["a", "BCD"]),
    # What ONNX runs first runs with what it has to run later.
    ("x x b ac", "ac", ["B", "ac", "D"]),
    ("x x b ac", "acd", ["B", "acd"]),
    # Two that are refused one after the other, and one beside them that fits between.
    ("x a b c x", "bd", ["AE", "b", "C", "d"]),
    ("x a b c ad", "bd", ["A", "b", "C", "d", "E"]),
    # It runs where what it reads is made, or where it is read, whichever takes fewer tensors across.
    ("x a b ac", "b", ["A", "b", "CD"]),
    ("x a b c xd", "c", ["AB", "c", "DE"]),
]


@pytest.mark.parametrize(("reads", "refused", "parts"), CUTS)
def test_parts_by_hand(reads: str, refused: str, parts: list[str]) -> None:
    nodes = chain(*reads.split())
    found = cut(nodes, {"abcdefgh".index(letter) for letter in refused}, lambda group: True)
    said = ["".join("abcdefgh"[node] for node in part.nodes) for part in found]
    assert [name.upper() if part.is_engine else name for name, part in zip(said, found, strict=True)] == parts


def test_the_smallest_engine_is_given_up_first_and_asked_only_where_nodes_are_refused() -> None:
    nodes = chain("x", "a", "b", "c", "d", "e", "f")
    asked: list[Sequence[int]] = []

    def is_worth_it(group: Sequence[int]) -> bool:
        asked.append(tuple(group))
        return len(group) > 2

    # Engines of one, two and one; what is given up joins what ONNX runs beside it.
    found = cut(nodes, {1, 4, 6}, is_worth_it)
    assert [(part.is_engine, part.nodes) for part in found] == [(False, (0, 1, 2, 3, 4, 5, 6))]
    assert asked[0] == (0,)
    asked.clear()
    assert [part.nodes for part in cut(nodes, (), is_worth_it)] == [(0, 1, 2, 3, 4, 5, 6)] and not asked
    found = cut(nodes, {1}, is_worth_it)
    assert [(part.is_engine, part.nodes) for part in found] == [(False, (0, 1)), (True, (2, 3, 4, 5, 6))]


def test_a_tensor_crosses_once_for_each_part_that_reads_it() -> None:
    nodes = chain("x", "a", "a", "abc", "ad")
    parts = [NodeGroup(True, (0,)), NodeGroup(False, (1, 2)), NodeGroup(True, (3, 4))]
    # a into both others, and b and c into the last; not x, which nobody makes.
    assert crossings(nodes, parts) == 4
    assert crossings(nodes, [NodeGroup(True, tuple(nodes))]) == 0
