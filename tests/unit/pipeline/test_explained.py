"""Refusals of the parser, told with why trtconv could not write the node in other operators."""

from __future__ import annotations

import pytest

from trtconv.core import codes
from trtconv.core.documents.rewrite import Skip
from trtconv.core.findings import Finding, Location, Severity
from trtconv.pipeline.mended import after_rules, explained

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
