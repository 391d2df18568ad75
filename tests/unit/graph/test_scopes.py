"""Graphs and the graphs inside them: whose tensor a name is, who uses it, and what is left when nodes go."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from support.onnx_models import parse, wrap
from trtconv.graph.scope import Scope
from trtconv.graph.splice import drop, prune, splice

HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
TEXT = f"""{HEAD} g (float[2,n] x, bool c) => (float[2,n] y, float[2,n] a)
    <float[2,1] w = {{1,2}}, float[1] k = {{5}}> {{
    a = Add (x, w)
    h = Constant <value = float[1] {{7}}> ()
    [pick] y = If (c) <
        then_branch = t () => (float[p,q] u) <float[1] k = {{6}}> {{ b = Mul (a, k) u = Add (b, a) }},
        else_branch = e () => (float[r,s] v) {{
            a2 = Mul (a, h)
            v = If (c) < then_branch = i () => (float[l] m) {{ m = Sub (a2, k) }},
                         else_branch = j () => (float[o] a) {{ a = Relu (x) z = Neg (a) }}> }}> }}"""
"""Branch t has a constant k of its own, and j a tensor a."""


def test_every_graph_has_its_place() -> None:
    found = wrap(parse(TEXT)).scopes
    assert [scope.path for scope in found] == [
        "",
        "pick/then_branch",
        "pick/else_branch",
        "pick/else_branch/If[1]/then_branch",
        "pick/else_branch/If[1]/else_branch",
    ]
    assert [scope.position for scope in found] == list(range(5))
    assert [None if scope.parent is None else scope.parent.position for scope in found] == [None, 0, 0, 2, 2]
    place = found[0].location(2, "y")
    assert (place.graph, place.index, place.node, place.op, place.tensor) == ("", 2, "pick", "If", "y")


def numbered() -> list[Scope]:
    return list(wrap(parse(TEXT)).scopes)


@pytest.mark.parametrize(
    ("name", "owner", "uses"),
    [("a", 0, 4), ("a", 4, 2), ("k", 0, 1), ("k", 1, 1), ("w", 0, 1), ("h", 0, 1), ("b", 1, 1), ("y", 0, 1)],
)
def test_uses_are_those_of_the_tensor_that_is_meant(name: str, owner: int, uses: int) -> None:
    """A tensor is used where nodes read it, and where it is a result of a graph."""
    assert numbered()[owner].uses_of(name) == uses


@pytest.mark.parametrize(
    ("name", "owner", "seen"),
    [
        ("a", 0, [0, 1, 2]),
        ("a", 4, [4]),
        ("k", 0, [3]),
        ("k", 1, [1]),
        ("x", 0, [0, 4]),
        ("c", 0, [0, 2]),
        ("a2", 2, [3]),
    ],
)
def test_graphs_that_mention_a_tensor(name: str, owner: int, seen: list[int]) -> None:
    found = numbered()
    assert [scope.position for scope in found[owner].seen_from(name)] == seen


def test_constants_are_those_of_the_nearest_graph() -> None:
    found = numbered()

    def value(position: int, name: str) -> float | None:
        values = found[position].values(name)
        return None if values is None else float(values.ravel()[0])

    assert [value(position, "k") for position in range(5)] == [5, 6, 5, 5, 5]
    assert [value(position, "h") for position in range(5)] == [7] * 5
    assert [value(position, "a") for position in range(5)] == [None] * 5
    assert found[3].initializer("h") is None
    assert found[3].initializer("w") is not None
    assert found[3].initializer("a2") is None


def test_types_and_shapes_are_seen_from_inside() -> None:
    found = numbered()
    assert [scope.shape("w") for scope in found] == [(2, 1)] * 5
    assert [scope.shape("x") for scope in found] == [(2, None)] * 5
    assert [scope.dtype("c") for scope in found] == ["bool"] * 5
    assert [scope.dtype("w") for scope in found] == ["float32"] * 5
    assert found[0].shape("nowhere") is None
    assert found[0].dtype("nowhere") is None
    shapes = found[0].shapes
    assert {name: shapes[name] for name in shapes}["a"] == (2, None)
    assert len(shapes) == len(list(shapes))


def chain(count: int) -> onnx.GraphProto:
    nodes = [helper.make_node("Relu", [f"t{n}"], [f"t{n + 1}"], f"n{n}") for n in range(count)]
    return helper.make_graph(nodes, "g", [], [])


@given(st.integers(1, 8), st.dictionaries(st.integers(0, 7), st.integers(0, 3)))
def test_new_nodes_stand_where_the_old_ones_did(count: int, made: dict[int, int]) -> None:
    graph = chain(count)
    fresh = {
        index: [helper.make_node("Neg", ["x"], [f"new{index}_{n}"], f"new{index}_{n}") for n in range(number)]
        for index, number in made.items()
        if index < count
    }
    expected = [name for n in range(count) for name in ([each.name for each in fresh[n]] if n in fresh else [f"n{n}"])]
    splice(graph, fresh)
    assert [node.name for node in graph.node] == expected


@given(st.integers(0, 8), st.sets(st.integers(0, 7)))
def test_entries_that_go(count: int, gone: set[int]) -> None:
    graph = chain(count)
    gone = {index for index in gone if index < count}
    drop(graph.node, gone)
    assert [node.name for node in graph.node] == [f"n{n}" for n in range(count) if n not in gone]


def pruned(text: str, *names: str) -> tuple[list[str], list[str]]:
    """Returns the nodes and initializers that are left when tensors lost a use."""
    model = wrap(parse(f"{HEAD} {text}"))
    prune(model, {0: set(names)})
    graph = model.proto.graph
    return [node.output[0] for node in graph.node], [tensor.name for tensor in graph.initializer]


def test_what_only_made_what_nothing_uses_goes() -> None:
    text = """g (float[1] x) => (float[1] y) <float[1] k = {1}, float[1] w = {1}> {
        a = Add (x, k) b = Mul (a, w) d = Neg (b) e = Add (a, k) y = Relu (e) }"""
    assert pruned(text, "d") == (["a", "e", "y"], ["k"])
    assert pruned(text, "a") == (["a", "b", "d", "e", "y"], ["k", "w"])
    assert pruned(text, "k") == (["a", "b", "d", "e", "y"], ["k", "w"])
    assert pruned(text.replace("y) <", "y, float[1] d) <"), "d") == (["a", "b", "d", "e", "y"], ["k", "w"])
    both = "g (float[1] x) => (float[1] y) { p, q = Split <axis = 0, num_outputs = 2> (x) r = Neg (q) y = Relu (x) }"
    assert pruned(both, "p")[0] == ["p", "r", "y"], "one of its results is used"
    assert pruned(both, "p", "r")[0] == ["y"]


def test_what_a_body_took_from_outside_goes_with_it() -> None:
    text = """g (float[1] x, bool c) => (float[1] y) <float[1] k = {1}> {
        a = Neg (x) z = If (c) < then_branch = t () => (float[1] u) { b = Add (a, k) u = Relu (x) },
                                 else_branch = e () => (float[1] v) { v = Relu (x) }> y = Relu (z) }"""
    model = wrap(parse(f"{HEAD} {text}"))
    prune(model, {1: {"b"}})
    assert [node.output[0] for node in model.proto.graph.node] == ["z", "y"]
    assert not model.proto.graph.initializer
    body = model.proto.graph.node[0].attribute[0].g
    assert [node.output[0] for node in body.node] == ["u"]
