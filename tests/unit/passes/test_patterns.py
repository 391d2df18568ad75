"""Rules of rewriting without code: where they match, what they put there, and what they leave alone."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from trtconv.core.errors import InputError
from trtconv.core.rewrite_rules import rules_of
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.patterns.match import Instance
from trtconv.passes.patterns.rewriting import RewritingPass
from trtconv.passes.patterns.text import read
from trtconv.pipeline.extending.equality import show
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.onnxruntime import random_feeds, session

RTX = Target("rtx", (1, 7))
TWICE = {
    "name": "acme-one-power",
    "pattern": "f (x) => (y) { t = Mul (x, x) y = Mul (t, x) }",
    "replacement": "f (x) => (y) { three = Constant <value = float {3}> () y = Pow (x, three) }",
    "ranks": [0, 1, 2, 3],
}
NEGATED = {
    "name": "acme-drop-negations",
    "pattern": "f (x) => (y) { t = Neg (x) y = Neg (t) }",
    "replacement": "f (x) => (y) { y = Identity (x) }",
    "types": ["float", "float16", "int32"],
}
SCALED = {
    "name": "acme-fold-scale",
    "pattern": "f (x, w, s) => (y) { t = MatMul (x, w) y = Mul (t, s) }",
    "replacement": "f (x, w, s) => (y) { scaled = Mul (w, s) y = MatMul (x, scaled) }",
    "inputs": {
        "x": {"shape": ["N", "K"]},
        "w": {"shape": ["K", "M"], "constant": True},
        "s": {"shape": ["M"], "constant": True},
    },
}
LEAKY = {
    "name": "acme-leaky-by-max",
    "pattern": "f <a> (x) => (y) { y = LeakyRelu <alpha: float = @a> (x) }",
    "replacement": "f <a> (x) => (y) { c = Constant <value_float: float = @a> () t = Mul (x, c) y = Max (x, t) }",
    "attributes": {"a": {"least": 0.0, "most": 1.0}},
}


def rewriting(table: dict[str, Any]) -> RewritingPass:
    texts = read(rules_of([table])[0])

    def elsewhere(opset: int) -> list[Instance]:
        with contextlib.suppress(InputError):
            return show(read(dataclasses.replace(texts.rule, opset=opset)))
        return []

    return RewritingPass(texts, show(texts), elsewhere)


def parsed(text: str, opset: int = 17) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}'), Path("m.onnx"))


def ops(model: OnnxModel) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


def rewrite(table: dict[str, Any], text: str, opset: int = 17) -> tuple[OnnxModel, int]:
    """Rewrites a model, twice, and holds the result to what it was."""
    model, before, each = parsed(text, opset), parsed(text, opset), rewriting(table)
    edits = len(run_passes(model, [each], RTX).edits)
    assert not run_passes(model, [each], RTX).edits
    shapes = {s.name: tuple(d if isinstance(d, int) else 3 for d in s.dims) for s in before.inputs}
    feeds = random_feeds(before.inputs, shapes)
    for one, two in zip(session(before).run(None, feeds), session(model).run(None, feeds), strict=True):
        assert relative_error(one, two) < 1e-5
    return model, edits


def test_nodes_are_replaced() -> None:
    model, edits = rewrite(
        NEGATED, "g (float[n, 4] x) => (float[n, 4] y) { a = Relu (x) b = Neg (a) c = Neg (b) y = Relu (c) }"
    )
    assert (ops(model), edits) == (["Relu", "Identity", "Relu"], 1)


@pytest.mark.parametrize("product", ["t, x", "x, t"])
def test_inputs_of_commutative_nodes_come_in_any_order(product: str) -> None:
    model, _ = rewrite(TWICE, f"g (float[n, 4] x) => (float[n, 4] y) {{ t = Mul (x, x) y = Mul ({product}) }}")
    assert ops(model) == ["Pow"]


def test_a_tensor_that_occurs_twice_is_one() -> None:
    _, edits = rewrite(TWICE, "g (float[4] x, float[4] z) => (float[4] y) { t = Mul (x, z) y = Mul (t, x) }")
    assert edits == 0


@pytest.mark.parametrize(
    "text",
    [
        "g (float[4] x) => (float[4] y, float[4] z) { t = Neg (x) y = Neg (t) z = Relu (t) }",
        "g (float[4] x) => (float[4] y, float[4] t) { t = Neg (x) y = Neg (t) }",
        "g (float[4] x, bool p) => (float[4] y, float[4] z) { t = Neg (x) y = Neg (t) z = If (p) "
        "<then_branch = a () => (float[4] u) { u = Relu (t) }, else_branch = b () => (float[4] v) { v = Abs (t) }> }",
    ],
    ids=["node", "output", "body"],
)
def test_what_is_used_elsewhere_prevents_a_match(text: str) -> None:
    _, edits = rewrite(NEGATED, text)
    assert edits == 0


def test_a_result_may_be_used_anywhere() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] z) { t = Neg (x) y = Neg (t) z = Relu (y) }"
    model, edits = rewrite(NEGATED, text)
    assert (edits, ops(model)) == (1, ["Identity", "Relu"])


def test_in_the_graphs_inside_nodes_too() -> None:
    text = (
        "g (float[4] x, bool p) => (float[4] z) { z = If (p) <then_branch = a () => (float[4] u) "
        "{ t = Neg (x) u = Neg (t) }, else_branch = b () => (float[4] v) { v = Abs (x) }> }"
    )
    assert rewrite(NEGATED, text)[1] == 1


def test_initializers_are_computed_with() -> None:
    text = (
        "g (float[n, 2] x) => (float[n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {2, 3, 4}> "
        "{ t = MatMul (x, w) y = Mul (s, t) }"
    )
    model, edits = rewrite(SCALED, text)
    assert (ops(model), edits) == (["MatMul"], 1)
    weights = [model.array(tensor) for tensor in model.proto.graph.initializer]
    assert [each.tolist() for each in weights] == [[[2, 6, 12], [8, 15, 24]]]


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n, 2] x, float[2, 3] w) => (float[n, 3] y) <float[3] s = {2, 3, 4}> "
        "{ t = MatMul (x, w) y = Mul (t, s) }",
        "g (float[b, n, 2] x) => (float[b, n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {2, 3, 4}> "
        "{ t = MatMul (x, w) y = Mul (t, s) }",
        "g (float[n, 2] x) => (float[n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[1] s = {2}> "
        "{ t = MatMul (x, w) y = Mul (t, s) }",
    ],
    ids=["not constant", "rank", "size"],
)
def test_conditions_of_inputs_hold(text: str) -> None:
    assert rewrite(SCALED, text)[1] == 0


def test_an_attribute_is_bound_and_used() -> None:
    model, edits = rewrite(LEAKY, "g (float[n] x) => (float[n] y) { y = LeakyRelu <alpha = 0.3> (x) }")
    assert edits == 1
    assert (
        np.float32(0.3) in [model.array(tensor) for tensor in model.proto.graph.initializer]
        or ops(model)[0] == "Constant"
    )


def test_a_default_is_bound_too() -> None:
    assert rewrite(LEAKY, "g (float[n] x) => (float[n] y) { y = LeakyRelu (x) }")[1] == 1


def test_conditions_of_attributes_hold() -> None:
    assert rewrite(LEAKY, "g (float[n] x) => (float[n] y) { y = LeakyRelu <alpha = 1.5> (x) }")[1] == 0


EQUAL = {
    "name": "acme-merge-transposes",
    "pattern": "f <p> (x) => (y) { t = Transpose <perm: ints = @p> (x) y = Transpose <perm: ints = @p> (t) }",
    "replacement": "f <p> (x) => (y) { y = Identity (x) }",
    "ranks": [3],
    "attributes": {"p": {"values": [[0, 2, 1], [1, 0, 2]]}},
}


@pytest.mark.parametrize(
    ("first", "second", "edits"),
    [([0, 2, 1], [0, 2, 1], 1), ([1, 0, 2], [1, 0, 2], 1), ([0, 2, 1], [1, 0, 2], 0), ([1, 2, 0], [1, 2, 0], 0)],
)
def test_attributes_of_two_nodes_are_equal(first: list[int], second: list[int], edits: int) -> None:
    text = (
        f"g (float[3, 3, 3] x) => (float[3, 3, 3] y) {{ t = Transpose <perm = {first}> (x) "
        f"y = Transpose <perm = {second}> (t) }}"
    )
    assert rewrite(EQUAL, text)[1] == edits


HALF = {
    "name": "acme-halve",
    "pattern": "f (x) => (y) { h = Constant <value = float {0.5}> () y = Mul (x, h) }",
    "replacement": "f (x) => (y) { two = Constant <value = float {2}> () y = Div (x, two) }",
    "types": ["float", "float16"],
    "ranks": [1, 2],
}


@pytest.mark.parametrize(
    ("held", "edits"),
    [("float h = {0.5}", 1), ("float[1] h = {0.5}", 1), ("float h = {0.25}", 0), ("float[1, 1] h = {0.5}", 0)],
)
def test_constants_of_the_pattern(held: str, edits: int) -> None:
    """One with more axes than the other side shows in the result, so it is another."""
    assert (
        rewrite(
            HALF,
            f"g (float[n] x) => (float[n] y) <{held}> {{ u = Mul (h, x) y = Flatten <axis = 0> (u) }}".replace(
                "float[n] y", "float[1, n] y"
            ),
        )[1]
        == edits
    )


def test_constant_nodes_are_constants_too() -> None:
    text = "g (float[n] x) => (float[n] y) { h = Constant <value_float = 0.5> () y = Mul (x, h) }"
    assert rewrite(HALF, text)[1] == 1


def test_what_was_not_shown_is_left_alone() -> None:
    """A rank that the rule does not list, and a rank that nobody knows."""
    assert rewrite(HALF, "g (float[a, b, 3] x) => (float[a, b, 3] y) <float h = {0.5}> { y = Mul (x, h) }")[1] == 0


def test_operators_that_mean_the_same_in_another_opset() -> None:
    """Identity of opset 9 takes fewer types, and is the same for these; LeakyRelu of opset 5 is not there."""
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Neg (x) y = Neg (a) }"
    assert rewrite(NEGATED, text, opset=9)[1] == 1


SOFTMAX = {
    "name": "acme-last-softmax",
    "pattern": "f (x) => (y) { y = Softmax <axis: int = 1> (x) }",
    "replacement": "f (x) => (y) { a = Transpose <perm: ints = [0, 2, 1]> (x) b = Softmax <axis: int = 2> (a) "
    "y = Transpose <perm: ints = [0, 2, 1]> (b) }",
    "ranks": [3],
}


@pytest.mark.parametrize(("opset", "edits"), [(13, 1), (11, 0)])
def test_operators_that_meant_something_else_in_another_opset(opset: int, edits: int) -> None:
    """Softmax of opset 11 divides by the sum over all axes from its own on."""
    text = "g (float[n, 4, 5] x) => (float[n, 4, 5] y) { y = Softmax <axis = 1> (x) }"
    assert rewrite(SOFTMAX, text, opset=opset)[1] == edits


def test_results_of_several_nodes() -> None:
    both = {
        "name": "acme-min-max",
        "pattern": "f (x, z) => (lo, hi) { lo = Min (x, z) hi = Max (x, z) }",
        "replacement": "f (x, z) => (lo, hi) { c = Less (x, z) lo = Where (c, x, z) hi = Where (c, z, x) }",
        "ranks": [1],
    }
    text = (
        "g (float[4] x, float[4] z) => (float[4] y) { lo = Min (x, z) a = Relu (lo) hi = Max (z, x) b = Neg (hi) "
        "y = Add (a, b) }"
    )
    model, edits = rewrite(both, text)
    assert edits == 1 and ops(model).count("Where") == 2


def test_tensors_of_a_replacement_have_names_of_their_own() -> None:
    """The model has tensors that are called like those of the rule, and two places where it fits."""
    text = """g (float[n] x) => (float[n] y) {
        t = LeakyRelu <alpha = 0.5> (x) c = Neg (t) a = LeakyRelu <alpha = 0.25> (c) b = Add (a, c) y = Add (b, t) }"""
    model, edits = rewrite(LEAKY, text)
    assert edits == 2
    made = [name for node in model.proto.graph.node for name in node.output]
    assert len(set(made)) == len(made)
    assert sum(name.startswith("acme-leaky-by-max/") for name in made) >= 2


def test_a_rule_that_makes_what_it_matches_ends() -> None:
    swap = {
        "name": "acme-swap",
        "pattern": "f (x, z) => (y) { y = Add (x, z) }",
        "replacement": "f (x, z) => (y) { y = Add (z, x) }",
        "ranks": [1],
    }
    with pytest.raises(InputError, match="never ends"):
        run_passes(parsed("g (float[4] x, float[4] z) => (float[4] y) { y = Add (x, z) }"), [rewriting(swap)], RTX)


def test_chains_are_rewritten_to_their_end() -> None:
    text = "g (float[4] x) => (float[4] y) { a = Neg (x) b = Neg (a) c = Neg (b) d = Neg (c) e = Neg (d) y = Abs (e) }"
    model, edits = rewrite(NEGATED, text)
    assert edits == 2 and ops(model).count("Neg") == 1


CLIPPED = {
    "name": "acme-relu-by-clip",
    "pattern": "f (x) => (y) { z = Constant <value = float {0}> () y = Clip (x, z) }",
    "replacement": "f (x) => (y) { y = Relu (x) }",
}


@pytest.mark.parametrize(
    ("inputs", "edits"),
    [("x, low", 1), ('x, low, ""', 1), ("x, low, high", 0), ('x, "", low', 0), ("x", 0)],
)
def test_a_node_has_the_inputs_that_the_pattern_has(inputs: str, edits: int) -> None:
    text = f"g (float[n] x) => (float[n] y) <float low = {{0}}, float high = {{1}}> {{ y = Clip ({inputs}) }}"
    assert rewrite(CLIPPED, text)[1] == edits


@pytest.mark.parametrize("name", ["a", "A", "Z", "_"])
@pytest.mark.parametrize(("axis", "edits"), [(0, 1), (1, 1), (2, 0)])
def test_only_the_values_that_are_listed_are_rewritten(name: str, axis: int, edits: int) -> None:
    table = {
        "name": "acme-two-concats",
        "pattern": f"f <{name}> (x) => (y) {{ y = Concat <axis: int = @{name}> (x) }}",
        "replacement": f"f <{name}> (x) => (y) {{ y = Identity (x) }}",
        "ranks": [3],
        "attributes": {name: {"values": [0, 1]}},
    }
    text = f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = Concat <axis = {axis}> (x) }}"
    assert rewrite(table, text)[1] == edits


def test_numbers_may_lie_in_a_wide_range_and_integers_may_not() -> None:
    text = "g (float[n] x) => (float[n] y) { y = LeakyRelu <alpha = 0.5> (x) }"
    wide = {**LEAKY, "attributes": {"a": {"least": 0.0, "most": 1.0}}}
    assert rewrite(wide, text)[1] == 1
    assert read(rules_of([{**LEAKY, "attributes": {"a": {"least": -1e6, "most": 1e6}}}])[0])
    softmax = {
        "name": "acme-softmax",
        "pattern": "f <a> (x) => (y) { y = Softmax <axis: int = @a> (x) }",
        "replacement": "f <a> (x) => (y) { y = Softmax <axis: int = @a> (x) }",
    }
    assert read(rules_of([{**softmax, "attributes": {"a": {"least": -1, "most": 2}}}])[0])
    for least, most in ((-1_000_000, 1_000_000), (0, 1_000_000), (-1_000_000, 0)):
        with pytest.raises(InputError, match="'a' may have too many values"):
            read(rules_of([{**softmax, "attributes": {"a": {"least": least, "most": most}}}])[0])


SAME = "(x) => (y) { y = Abs (x) }"
FAULTS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a condition of no input": (SAME, SAME, {"inputs": {"x": {}, "q": {"ranks": [1]}}}, "q"),
    "a condition of no attribute": (SAME, SAME, {"attributes": {"q": {"values": [1]}}}, "q"),
    "an attribute of the replacement alone": (
        "<q> (x) => (y) { y = Abs (x) }",
        "<q> (x) => (y) { y = Elu <alpha: float = @q> (x) }",
        {},
        "q",
    ),
    "an attribute of another type": (
        "<q> (x) => (y) { y = Softmax <axis: int = @q> (x) }",
        "<q> (x) => (y) { y = Elu <alpha: float = @q> (x) }",
        {},
        "q",
    ),
    "an input that is not used": ("(x, q) => (y) { y = Abs (x) }", "(x, q) => (y) { y = Abs (x) }", {}, "q"),
    "an output that is not made": ("(x) => (y, q) { y = Abs (x) }", "(x) => (y, q) { y = Abs (x) }", {}, "q"),
    "an output that is a constant": (
        "(x) => (y, q) { q = Constant <value = float {1}> () y = Abs (x) }",
        "(x) => (y, q) { q = Constant <value = float {1}> () y = Abs (x) }",
        {},
        "q",
    ),
    "used before it is made": ("(x) => (y) { y = Abs (q) q = Neg (x) }", SAME, {}, "q"),
    "made twice": ("(x) => (y) { q = Abs (x) q = Neg (x) y = Abs (q) }", SAME, {}, "q"),
    "used before it is made in the replacement": (SAME, "(x) => (y) { y = Abs (q) q = Neg (x) }", {}, "q"),
}


@pytest.mark.parametrize(("pattern", "replacement", "more", "name"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_with_the_texts_is_named(pattern: str, replacement: str, more: dict[str, Any], name: str) -> None:
    table = {"name": "acme-rule", "pattern": f"f {pattern}", "replacement": f"f {replacement}", **more}
    with pytest.raises(InputError, match=f"'{name}'"):
        read(rules_of([table])[0])


@pytest.mark.parametrize(("more", "fine"), [(0, True), (11, True), (12, False), (40, False)])
def test_brackets_inside_each_other_have_a_most(more: int, fine: bool) -> None:
    """Quotes are not looked at: a text of brackets is as deep."""
    text = f'f (x) => (y) {{ y = Abs <note: string = "{"(" * more}{")" * more}"> (x) }}'
    table = {"name": "acme-deep", "pattern": text, "replacement": text}
    with contextlib.nullcontext() if fine else pytest.raises(InputError, match="more than 12 deep"):
        read(rules_of([table])[0])


LARGER = {
    "a chain of three": ("a = Neg (x) b = Abs (a) y = Neg (b)", "a = Abs (x) y = Neg (a)"),
    "a chain of four": ("a = Neg (x) b = Abs (a) c = Neg (b) y = Neg (c)", "y = Abs (x)"),
    "two branches": ("a = Neg (x) b = Abs (x) c = Abs (a) y = Add (b, c)", "b = Abs (x) y = Add (b, b)"),
    "two branches of one": ("t = Abs (x) a = Neg (t) b = Neg (t) y = Mul (a, b)", "t = Abs (x) y = Mul (t, t)"),
    "an inner fork": ("t = Neg (x) a = Abs (t) b = Relu (a) c = Abs (b) y = Add (c, a)", "a = Abs (x) y = Add (a, a)"),
}


@pytest.mark.parametrize(("pattern", "replacement"), LARGER.values(), ids=LARGER)
@pytest.mark.parametrize("more", ["z = Relu (y)", "z = Neg (y)"])
def test_patterns_of_several_nodes(pattern: str, replacement: str, more: str) -> None:
    table = {
        "name": "acme-larger",
        "pattern": f"f (x) => (y) {{ {pattern} }}",
        "replacement": f"f (x) => (y) {{ {replacement} }}",
        "ranks": [1],
    }
    around = f"s = Sigmoid (w) {pattern.replace('(x', '(s')} {more}".replace(", x)", ", s)")
    assert rewrite(table, f"g (float[3] w) => (float[3] z) {{ {around} }}")[1] == 1
    # Where any node is another one, there is nothing to be found.
    for unary in re.finditer("Neg|Abs|Relu", around.removesuffix(more)):
        other = f"{around[: unary.start()]}Floor{around[unary.end() :]}"
        assert rewrite(table, f"g (float[3] w) => (float[3] z) {{ {other} }}")[1] == 0
