"""Documents are read and checked once, and an error names the key."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support import engines
from trtconv.core.decode import Fault, Measured, decoded, json_of
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.saved import load_report
from trtconv.core.documents.verify import Difference, Verdict
from trtconv.core.encode import Document, plain
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen


class Colour(enum.Enum):
    """Something that JSON has no word for."""

    RED = "red"
    BLUE = "blue"


@frozen
class Leaf(Document, keys="size=bytes far?"):
    """An object inside another one."""

    bytes: int
    far: str = ""


@frozen
class Tree(Document):
    """Every kind of value that a document has."""

    name: str
    number: float = 1.0
    flag: bool = False
    colour: Colour = Colour.RED
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    named: Mapping[str, Leaf] = dataclasses.field(default_factory=dict)
    pair: tuple[int, str] = (1, "a")
    either: int | str = 0
    bounds: Range = Range(1, 2, 3)
    error: Measured = 0.0


WHOLE = Tree(
    "t", 2.5, True, Colour.BLUE, Leaf(3, "x"), (Leaf(1), Leaf(2)), {"a": Leaf(4)}, (2, "b"), "n", Range(4, 5, 6), 0.5
)


def test_what_was_written_is_read() -> None:
    assert decoded(Tree, json.loads(json.dumps(plain(WHOLE)))) == WHOLE


def test_what_is_left_out_has_its_default_and_what_is_not_known_is_passed_over() -> None:
    assert decoded(Tree, {"name": "t", "later": [1]}) == Tree("t")
    assert decoded(Leaf, {"size": 1, "far": None}) == Leaf(1)


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"name": None}, "name", "null is not a text"),
        ({"number": "1"}, "number", "'1' is not a number"),
        ({"number": True}, "number", "true is not a number"),
        ({"number": math.nan}, "number", "nan is not a finite number"),
        ({"number": 10**400}, "number", "not a finite number"),
        ({"flag": 1}, "flag", "1 is not true or false"),
        ({"colour": "green"}, "colour", "'green' is not one of red, blue"),
        ({"leaf": []}, "leaf", "a list is not an object"),
        ({"leaf": {}}, "leaf.size", "it is missing"),
        ({"leaves": {"size": 1}}, "leaves", "an object is not a list"),
        ({"leaves": [{"size": 1}, {"size": 1.5}]}, "leaves[1].size", "1.5 is not an integer"),
        ({"leaves": [{"size": 2**63}]}, "leaves[0].size", "not an integer of 64 bits"),
        ({"named": {"b": {"size": False}}}, "named.b.size", "false is not an integer"),
        ({"pair": [1]}, "pair", "not a list of 2"),
        ({"either": 1.5}, "either", "1.5 is not a"),  # a text, or an integer: unions of one kind are equal
        ({"bounds": "9:1"}, "bounds", "ordered"),
        ({"error": "far"}, "error", "'far' is not a number"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(Fault) as caught:
        decoded(Tree, {**plain(WHOLE), **changes})
    assert str(caught.value).startswith(f"key {place!r}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(("written", "read"), [("nan", math.nan), ("-inf", -math.inf), ("inf", math.inf), (3, 3.0)])
def test_measured_numbers_may_be_infinite(written: Any, read: float) -> None:
    found = decoded(Tree, {"name": "t", "error": written}).error
    assert found == read or (math.isnan(found) and math.isnan(read))


@pytest.mark.parametrize(
    "text", ["", "{", "[NaN]", '[{"a": {"b": 1, "c": 2, "b": 1}}]', "[1e999]", "[" * 100_000, b"\xff"]
)
def test_what_is_not_json(text: str | bytes) -> None:
    with pytest.raises(Fault, match="it is not JSON"):
        json_of(text)


def test_a_difference_of_a_trtconv_without_verdicts() -> None:
    assert decoded(Difference, {"name": "y", "passed": False}).verdict is Verdict.BEYOND
    assert decoded(Difference, {"name": "y", "passed": True}).verdict is Verdict.PASSED


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    built = engines.build(tmp_path)
    saved = load_report(built.report)
    assert saved.report.to_json() == json.loads(built.report.read_text())
    assert decoded(BuildReport, saved.document) == saved.report


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 2}, "key 'schema': 2 is not the schema"),
        ({"plan__precision": "fp4"}, r"key 'plan\.precision': 'fp4' is not one of as-is"),
        ({"plan__node_precisions": {"a": "x"}}, r"key 'plan\.node_precisions\.a'"),
        ({"plan__options": {"hardware": 3}}, r"key 'plan\.options\.hardware'"),
        ({"runtime__family": "onnx"}, r"key 'runtime\.family': 'onnx' is not one of tensorrt, rtx"),
        ({"profiles": []}, "key 'dims': it has not as many entries as 'profiles'"),
        ({"engine__bytes": "many"}, r"key 'engine\.bytes'"),
        ({"findings": [{"code": "TC101"}]}, r"key 'findings\[0\]\.name': it is missing"),
        ({"seconds": {"build": "long"}}, r"key 'seconds\.build': 'long' is not a number"),
    ],
)
def test_what_is_wrong_in_a_report_is_named_with_the_file(tmp_path: Path, changes: Any, said: str) -> None:
    built = engines.build(tmp_path)
    built.change_report(**changes)
    with pytest.raises(InputError, match=said) as caught:
        load_report(built.report)
    assert str(built.report) in caught.value.message
    assert caught.value.hint
