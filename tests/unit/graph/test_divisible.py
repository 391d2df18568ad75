"""A model as the cut sees it: what each node needs, what is copied into every part, and what is work enough."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.onnx_models import parse, wrap
from trtconv.graph.divisible import Divisible, hold_outputs

HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
TEXT = f"""{HEAD} g (float[n,4] x, float[n,4] z, bool c) => (float[n,4] y, float[n,4] v)
    <float[1] one = {{1}}, float[4,4] w, int64[1] zero = {{0}}, float[1] unused = {{1}}> {{
    [n0] s = Shape (x)
    [n1] k = ConstantOfShape (s)
    [n2] k2 = Add (k, one)
    [n3] a = MatMul (x, w)
    [n4] b = Add (a, k2)
    [n5] t = Relu (z)
    [n6] noise = RandomNormal <shape = [1,4]> ()
    [n7] d = Add (b, noise)
    [n8] dead = Neg (t)
    [n9] y = Mul (d, t)
    [n10] v = If (c) < then_branch = p () => (float[n,4] e) {{ e = Add (t, k2) }},
                      else_branch = q () => (float[n,4] f) {{ f = Neg (b) }}> }}"""


def made(refused: tuple[int, ...] = (), text: str = TEXT) -> Divisible:
    proto = parse(text)
    for value in list(proto.graph.value_info):
        proto.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), value.name))
    return Divisible(wrap(proto), refused)


def test_what_follows_from_shapes_and_constants_is_copied() -> None:
    whole = made()
    assert all(whole.maker(name) is not None for name in ("s", "k", "k2"))
    assert not any(whole.maker(name) is not None for name in ("x", "a", "b", "t", "noise", "d", "y", "v", "one", "w"))
    assert made((0,)).maker("s") is None
    assert made((0,)).maker("k2") is None, "what is behind it neither"
    assert made((2,)).maker("k2") is None
    assert made((2,)).maker("k") == 1
    assert made((0, 2)).is_of_shapes("k2"), "whoever computes it"
    assert not whole.is_of_shapes("noise")


def test_nodes_that_results_depend_on_with_what_they_need() -> None:
    links = made().links
    assert list(links) == [3, 4, 5, 6, 7, 9, 10]
    assert {index: set(link.reads) for index, link in links.items()} == {
        3: {"x"},
        # Of the copied ones it is what they start from.
        4: {"a", "x"},
        5: {"z"},
        6: set(),
        7: {"b", "noise"},
        9: {"d", "t"},
        10: {"c", "t", "b", "x"},
    }
    assert links[9].makes == ("y",)
    assert 0 in made((0,)).links
    assert made((0,)).links[0].reads == {"x"}


def test_a_part_has_what_is_copied_for_it() -> None:
    whole = made()
    assert whole.with_copies([4]) == [0, 1, 2, 4]
    assert whole.with_copies([3, 5]) == [3, 5]
    assert whole.with_copies([10, 3]) == [0, 1, 2, 3, 10]
    assert whole.inputs([7, 9]) == ["b", "noise", "t"]
    assert whole.inputs([9, 10]) == ["d", "t", "b", "c", "x"]
    assert whole.inputs([3, 4, 5]) == ["x", "z"]
    assert whole.outputs([3, 4, 5]) == ["b", "t"]
    assert whole.outputs([3]) == ["a"]
    assert whole.outputs([9, 10]) == ["y", "v"]
    part = whole.part([4], [], [])
    assert [node.name for node in part.graph.node] == ["n0", "n1", "n2", "n4"]
    assert [tensor.name for tensor in part.graph.initializer] == ["one"]
    assert [tensor.name for tensor in whole.part([3], [], []).graph.initializer] == ["w"]
    assert (part.ir_version, part.opset_import[0].version) == (8, 17)


@pytest.mark.parametrize(
    ("ops", "enough"),
    [
        ("Conv Relu", False),
        ("Conv Relu Relu", True),
        ("Conv Conv", True),
        ("Relu " * 5, False),
        ("Relu " * 6, True),
        ("Conv Relu Cast Concat Reshape Transpose", False),
        ("MatMul Neg Neg", True),
        ("Cast " * 9, False),
    ],
)
def test_work_that_is_enough_for_an_engine(ops: str, enough: bool) -> None:
    nodes = [onnx.helper.make_node(op, ["x"], [f"t{n}"]) for n, op in enumerate(ops.split())]
    proto = parse(f"{HEAD} g (float[1] x) => (float[1] y) {{ y = Relu (x) }}")
    proto.graph.node.extend(nodes)
    assert Divisible(wrap(proto), ()).is_worth_it(range(1, len(nodes) + 1)) == enough


def test_functions_that_a_part_calls_come_along() -> None:
    text = f"""{HEAD} g (float[2] x, bool c) => (float[2] y, float[2] z) {{ y = my.f (x)
        z = If (c) < then_branch = p () => (float[2] e) {{ e = my.h (x) }},
                     else_branch = q () => (float[2] r) {{ r = Neg (x) }}> }}
        <domain: "my", opset_import: ["": 17, "my": 1]> f (a) => (b) {{ b = my.g (a) }}
        <domain: "my", opset_import: ["": 17]> g (a) => (b) {{ b = Neg (a) }}
        <domain: "my", opset_import: ["": 17]> h (a) => (b) {{ b = Exp (a) }}"""
    whole = made((), text)
    called = [[each.name for each in whole.part([index], [], []).functions] for index in (0, 1)]
    assert called == [["f", "g"], ["h"]]


def test_results_that_are_constants_are_made_by_a_node() -> None:
    proto = parse(
        f"{HEAD} g (float[2] x) => (float[2] y, float[1] k, float[2] x) <float[1] k = {{3}}> {{ y = Relu (x) }}"
    )
    model = wrap(proto)
    hold_outputs(model)
    (first, _) = model.proto.graph.node
    (tensor,) = model.proto.graph.initializer
    assert (first.op_type, list(first.input), list(first.output)) == ("Identity", [tensor.name], ["k"])
    assert tensor.name != "k"
    assert numpy_helper.to_array(tensor).tolist() == [3]
    again = len(model.proto.graph.node)
    hold_outputs(model)
    assert len(model.proto.graph.node) == again
