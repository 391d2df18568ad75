"""Strict JSON."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trtconv.cli.formats.json import render

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@settings(max_examples=30)
@given(st.dictionaries(st.text(), VALUES))
def test_strict_ascii_and_complete(document: dict[str, object]) -> None:
    text = render(document)
    assert text.isascii()
    assert set(json.loads(text, parse_constant=refuse)) == set(document)


def test_keeps_order_and_values() -> None:
    document = {"b": 1, "a": [1.5, None, True, "\u4e2d"]}
    assert json.loads(render(document)) == document
    assert list(json.loads(render(document))) == ["b", "a"]


def test_what_json_lacks_becomes_text() -> None:
    document = {"a": math.nan, "b": [math.inf, {"c": (-math.inf, 1.0)}]}
    assert json.loads(render(document)) == {"a": "nan", "b": ["inf", {"c": ["-inf", 1.0]}]}
