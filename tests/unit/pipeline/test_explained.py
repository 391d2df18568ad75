"""Refusals of the parser, told with why trtconv could not write the node in other operators."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from trtconv import rules
from trtconv.core import codes
from trtconv.core.documents.rewrite import Skip
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, PassResult
from trtconv.pipeline.mended import after_rules, declined, explained
from trtconv.pipeline.preparation import Preparation
from trtconv.rules import CHECKS

REFUSED = codes.PARSER_REFUSED.finding("it has no MultiHeadAttention", fix="Replace it.")
WHY = "trtconv cannot write it in other operators: its inputs are packed. Replace it."


@pytest.mark.parametrize(
    ("place", "node"),
    [(Location(index=3, op="MultiHeadAttention"), "graph/node[3] MultiHeadAttention"), (Location(node="a"), "a")],
)
def test_a_node_that_a_spelling_left(place: Location, node: str) -> None:
    finding = codes.PARSER_REFUSED.finding(REFUSED.message, place=place, fix=REFUSED.fix)
    (told,) = explained([finding], [Skip("expand-fused", node, "its inputs are packed")])
    assert (told.fix, told.message, told.location) == (WHY, REFUSED.message, place)


@pytest.mark.parametrize(
    ("code", "skip"),
    [
        (codes.PARSER_REFUSED, Skip("expand-fused", "other", "its inputs are packed")),
        (codes.PARSER_REFUSED, Skip("explicit-deconv", "a", "its inputs are packed")),
        (codes.BUILDER_REFUSED, Skip("expand-fused", "a", "its inputs are packed")),
    ],
)
def test_what_is_said_of_other_nodes_or_by_others_stays(code: codes.Code, skip: Skip) -> None:
    finding = code.finding("refused", place=Location(node="a"), fix="Replace it.")
    assert explained([finding], [skip]) == (finding,)


def test_where_a_rule_says_what_is_misread_nothing_is_to_be_reported() -> None:
    differs, refused = codes.NETWORK_DIFFERS.finding("it differs"), codes.PARSER_REFUSED.finding("no such operator")
    rules = [
        Finding("TC608", "resize-scales-at-run-time", "rounded", Severity.ERROR, Location(), ""),
        Finding("TC609", "nms-limit-missing", "none", Severity.WARNING, Location(), ""),
        Finding("TC203", "no-valid-size", "none", Severity.ERROR, Location(), ""),
    ]
    first, second = after_rules([differs, refused], rules)
    assert first.fix == "Mend what TC608 says first: that may be what differs."
    assert second == refused
    # What is no error, or is about sizes, explains none.
    assert after_rules([differs], rules[1:]) == (differs,)


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        ({"a": "it is bare"}, {"it is bare"}),
        # Of the others' only where all have the same.
        ({"b": "it is bare", "c": "it is bare"}, {"it is bare"}),
        ({"b": "it is bare", "c": "it is odd"}, set()),
        ({"a": "it is odd", "b": "it is bare"}, {"it is odd"}),
        ({}, set()),
    ],
)
def test_a_pass_that_leaves_a_node_says_why(reasons: dict[str, str], told: set[str]) -> None:
    rule = next(rule for rule in CHECKS if rule.by_hand and any(rule.code in pass_.fixes for pass_ in PASSES))
    (mends, *_) = (pass_ for pass_ in PASSES if rule.code in pass_.fixes)
    finding = Finding(rule.code, rule.name, "misread", Severity.ERROR, Location(node="a"), "")
    skips = tuple(Skip(mends.name, node, why) for node, why in reasons.items())
    (left,) = declined([finding], PassResult((), skips), PASSES)
    assert left.fix.startswith(rule.by_hand)
    assert {why for why in ("it is bare", "it is odd") if why in left.fix} == told


def test_a_node_inside_a_function_has_no_index_in_the_main_graph() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
    g (float[1,2,4,4] x, float[2,3,2,2] w) => (float[1,3,p,q] y) { [first] a = Relu (x) [up] y = my.up (a, w) }
    <domain: "my", opset_import: ["": 17]> up (a, w) => (y) {
        [in] y = ConvTranspose <auto_pad = "VALID", output_padding = [1, 1], strides = [2, 2]> (a, w) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    judged = Preparation(model, Target("rtx", (1, 7)), Stopwatch(None)).judge(())
    assert [finding.location.index for finding in judged.findings] == [None]


@pytest.mark.parametrize(
    ("size", "leaves_weights", "order"),
    [
        (1, False, ["passes", "rules", "rules"]),
        (1 << 25, True, ["passes", "rules", "rules"]),
        (1 << 25, False, ["rules", "passes", "rules"]),
    ],
)
def test_rules_asked_behind_the_passes_say_what_they_say_before(
    monkeypatch: pytest.MonkeyPatch, size: int, order: list[str], *, leaves_weights: bool
) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[1,2,4,4] x) => (float[1,2,p,q] y) <float[2,2,2,2] w = {{{", ".join(["1"] * 16)}}}>
    {{ a = ConvTranspose <auto_pad = "VALID", output_padding = [1, 1], strides = [2, 2]> (x, w)
    y = ConvTranspose <auto_pad = "VALID", output_padding = [1, 1], strides = [2, 2]> (a, w) }}"""
    done: list[str] = []
    run_rules = rules.run_rules
    monkeypatch.setattr(rules, "run_rules", lambda *args: done.append("rules") or run_rules(*args))
    sides = []
    for rewritten in (None, lambda: done.append("passes")):
        done.clear()
        model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
        model._size, model.leaves_weights = size, leaves_weights
        sides.append(Preparation(model, Target("rtx", (1, 7))).judge(PASSES, rewritten=rewritten))
    assert done == order
    before, behind = sides
    assert before.rewrite.edits and before.findings
    assert (behind.findings, behind.rewrite) == (before.findings, before.rewrite)
