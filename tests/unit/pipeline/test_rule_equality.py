"""A rule of rewriting is used only for what it was shown to be right for, and one that is wrong anywhere not at all."""

from __future__ import annotations

from typing import Any

import pytest

from trtconv.core.errors import InputError
from trtconv.core.rewrite_rules import rules_of
from trtconv.passes.patterns.match import Instance
from trtconv.passes.patterns.text import read
from trtconv.pipeline.extending.equality import passes_of, show


def rule(pattern: str, replacement: str, **more: Any) -> dict[str, Any]:
    return {"name": "acme-rule", "pattern": f"f {pattern}", "replacement": f"f {replacement}", **more}


def instances(table: dict[str, Any]) -> list[Instance]:
    return show(read(rules_of([table])[0]))


WRONG = {
    "negative values": rule("(x) => (y) { t = Mul (x, x) y = Sqrt (t) }", "(x) => (y) { y = Identity (x) }"),
    "zeros": rule(
        "(x) => (y) { y = Div (x, x) }",
        "(x) => (y) { z = Sub (x, x) one = Constant <value = float {1}> () y = Add (z, one) }",
    ),
    "large values": rule("(x) => (y) { e = Exp (x) y = Log (e) }", "(x) => (y) { y = Identity (x) }"),
    "one rank": rule(
        "(x) => (y) { y = Softmax <axis: int = 1> (x) }",
        "(x) => (y) { y = Softmax <axis: int = -1> (x) }",
        ranks=[2, 3],
    ),
    "one type": rule(
        "(x) => (y) { t = Add (x, x) y = Sub (t, x) }",
        "(x) => (y) { y = Sub (x, x) }",
        types=["int32"],
    ),
    "one value of an attribute": rule(
        "<a> (x) => (y) { y = Softmax <axis: int = @a> (x) }",
        "<a> (x) => (y) { y = Softmax <axis: int = -1> (x) }",
        ranks=[2],
        attributes={"a": {"least": -1, "most": 1}},
    ),
    "sizes of one": rule(
        "(x, z) => (y) { y = Add (x, z) }",
        "(x, z) => (y) { t = Expand_as (x) y = Add (x, z) }".replace("t = Expand_as (x) ", "").replace(
            "Add (x, z)", "Sum (x, x, z)"
        ),
        ranks=[2],
    ),
    "a half type, by a share of its tolerance": rule(
        "(x) => (y) { y = Abs (x) }",
        "(x) => (y) { c = Constant <value = float {1.005}> () a = Abs (x) y = Mul (a, c) }",
        types=["float16"],
    ),
    "whole numbers by one": rule(
        "(x) => (y) { y = Abs (x) }",
        "(x) => (y) { c = Constant <value = float {1}> () a = Abs (x) y = Add (a, c) }",
        types=["int64"],
    ),
    "one number that it writes": rule(
        "(x) => (y) { y = Identity (x) }",
        "(x) => (y) { c = Constant <value = float {1.2345}> () z = Sub (c, c) e = Equal (x, c) y = Where (e, z, x) }",
    ),
    "one number that an attribute holds": rule(
        "<a> (x) => (y) { y = ThresholdedRelu <alpha: float = @a> (x) }",
        "<a> (x) => (y) { c = Constant <value_float: float = @a> ()  b = GreaterOrEqual (x, c)"
        " k = Cast <to: int = @T> (b)  y = Mul (x, k) }",
        attributes={"a": {"least": 0.0, "most": 10.0}},
    ),
    "the type of the result": rule("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Cast <to: int = 11> (x) }"),
}


@pytest.mark.parametrize("table", WRONG.values(), ids=WRONG)
def test_a_wrong_rule_is_refused_with_inputs_that_show_it(table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"should be|is not valid|does not run") as refused:
        instances(table)
    assert "acme-rule" in refused.value.message and "x of" in refused.value.message


def test_a_division_by_zero_is_a_fault_of_the_rule() -> None:
    """ONNX Runtime before 1.25 ends its process there, which is none of ours."""
    table = rule("(x) => (y) { t = Add (x, x) y = Div (t, x) }", "(x) => (y) { y = Div (x, x) }", types=["int32"])
    with pytest.raises(InputError, match="acme-rule"):
        passes_of(rules_of([table]))


def test_what_a_rule_was_shown_for() -> None:
    table = rule(
        "(x) => (y) { t = Neg (x) y = Neg (t) }",
        "(x) => (y) { y = Identity (x) }",
        types=["float", "int8"],
        ranks=[0, 2],
    )
    assert {(each.kind, each.ranks) for each in instances(table)} == {
        (kind, ranks) for kind in ("float", "int8") for ranks in ((0,), (2,))
    }


def test_what_cannot_run_is_not_shown() -> None:
    """The pattern is no model at rank 1, so nothing is said of that."""
    table = rule(
        "(x) => (y) { t = Transpose <perm: ints = [1, 0]> (x) y = Transpose <perm: ints = [1, 0]> (t) }",
        "(x) => (y) { y = Identity (x) }",
        ranks=[1, 2, 3],
    )
    assert [each.ranks for each in instances(table)] == [(2,)]


def test_what_runs_nowhere_is_refused() -> None:
    table = rule("(x, z) => (y) { y = MatMul (x, z) }", "(x, z) => (y) { y = Gemm (x, z) }", types=["bool"], ranks=[2])
    with pytest.raises(InputError, match="could not be shown"):
        instances(table)


def test_types_that_only_the_reference_runs() -> None:
    table = rule(
        "(x) => (y) { t = Neg (x) y = Neg (t) }", "(x) => (y) { y = Identity (x) }", types=["bfloat16"], ranks=[2]
    )
    assert [each.kind for each in instances(table)] == ["bfloat16"]


MALFORMED = {
    "no text of ONNX": rule("(x) => (y) {", "(x) => (y) { y = Abs (x) }"),
    "other inputs": rule("(x) => (y) { y = Abs (x) }", "(z) => (y) { y = Abs (z) }"),
    "an input that is not used": rule("(x, z) => (y) { y = Abs (x) }", "(x, z) => (y) { y = Abs (x) }"),
    "an unknown operator": rule("(x) => (y) { y = Abz (x) }", "(x) => (y) { y = Abs (x) }"),
    "another domain": rule("(x) => (y) { y = acme.Op (x) }", "(x) => (y) { y = Abs (x) }"),
    "random numbers": rule("(x) => (y) { y = RandomNormalLike (x) }", "(x) => (y) { y = RandomNormalLike (x) }"),
    "an attribute that is not bound": rule(
        "(x) => (y) { y = Abs (x) }", "<a> (x) => (y) { y = Elu <alpha: float = @a> (x) }"
    ),
    "an attribute that may be anything": rule(
        "<a> (x) => (y) { y = Softmax <axis: int = @a> (x) }", "<a> (x) => (y) { y = Softmax <axis: int = @a> (x) }"
    ),
    "a misspelt key": rule("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }", rank=[1]),
    "a misspelt condition": rule(
        "(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }", inputs={"x": {"constants": True}}
    ),
    "an input that is not there": rule(
        "(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }", inputs={"z": {"ranks": [1]}}
    ),
    "no type": rule("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }", types=["half"]),
    "no name": {**rule("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }"), "name": "Rule"},
    "many graphs inside each other": rule(
        "(x) => (y) { y = If <a = " + "{" * 5000 + " }", "(x) => (y) { y = Abs (x) }"
    ),
    "graphs in graphs": rule(
        "(x) => (y) { y = " + "If <then_branch = g () => (float[1] o) { o = " * 50 + "Abs (x)" + " }> (x)" * 50 + " }",
        "(x) => (y) { y = Abs (x) }",
    ),
    "a constant larger than its text": rule(
        "(x) => (y) { y = Abs (x) }",
        "(x) => (y) { s = Constant <value = float[100000000000] {1}> () y = Add (x, s) }",
    ),
    "a constant of fewer elements than it says": rule(
        "(x) => (y) { y = Abs (x) }", "(x) => (y) { s = Constant <value = float[3] {1}> () y = Add (x, s) }"
    ),
    "a constant of a negative size": rule(
        "(x) => (y) { y = Abs (x) }", "(x) => (y) { s = Constant <value = float[-3] {1}> () y = Add (x, s) }"
    ),
    "a value of another type": rule(
        "<a> (x) => (y) { y = Softmax <axis: int = @a> (x) }",
        "<a> (x) => (y) { y = Softmax <axis: int = @a> (x) }",
        attributes={"a": {"values": ["last"]}},
    ),
}


@pytest.mark.parametrize("table", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_rule(table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="rule of rewriting"):
        instances(table)


def test_two_rules_of_one_name() -> None:
    table = rule("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }")
    with pytest.raises(InputError, match="two rules"):
        rules_of([table, table])


def test_the_name_of_a_pass() -> None:
    table = {**rule("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }"), "name": "write-defaults"}
    with pytest.raises(InputError, match="name of a pass"):
        passes_of(rules_of([table]))


def test_texts_that_take_everything_run_in_a_process_of_their_own() -> None:
    table = rule(
        "(x) => (y) { s = Constant <value = int64[1] {1000000000000}> () y = Expand (x, s) }",
        "(x) => (y) { s = Constant <value = int64[1] {1000000000000}> () y = Expand (x, s) }",
        ranks=[1],
    )
    with pytest.raises(InputError, match="shown"):
        passes_of(rules_of([table]))
