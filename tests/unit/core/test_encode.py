"""One encoder and one decoder for every report."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any

import pytest

from trtconv.core.decode import decoded
from trtconv.core.dims import InputRange, Range
from trtconv.core.documents.export import Proof, ProofRun, SizeRule
from trtconv.core.documents.rewrite import Edit
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.encode import Document, plain
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.frozen import frozen
from trtconv.core.target import Target


class Colour(enum.Enum):
    """Something that JSON has no word for."""

    RED = "red"


@frozen
class Part:
    """No document of its own."""

    sizes: tuple[int, ...]
    colour: Colour | None = None


@frozen
class Whole(Document, keys="schema part called=name why? seconds double"):
    """Every way in which a key comes about."""

    name: str
    part: Part
    why: str = ""
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def double(self) -> str:
        """Returns the name twice."""
        return self.name * 2


def test_keys_are_written_in_their_order_and_under_their_names() -> None:
    document = Whole("h", Part((1, 2), Colour.RED), seconds={"build": 1.25}).to_json()
    assert list(document) == ["schema", "part", "called", "why", "seconds", "double"]
    assert document["part"] == {"sizes": [1, 2], "colour": "red"}
    assert (document["called"], document["why"], document["double"]) == ("h", None, "hh")
    assert document["seconds"] == {"build": 1.25}
    assert Whole("h", Part(()), "late").to_json()["why"] == "late"


def test_fields_are_the_keys_where_none_are_named() -> None:
    assert TensorInfo("x", "input", "float32", (-1, 3)).to_json() == {
        "name": "x",
        "kind": "input",
        "dtype": "float32",
        "shape": [-1, 3],
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Target("rtx", (1, 7)), "rtx-1.7"),
        (Range(1, 2, 3), "1:2:3"),
        ({"h": Range(1, 2, 3)}, {"h": "1:2:3"}),
        (Edit("p", "n", "done"), {"pass": "p", "node": "n", "what": "done"}),
        ((True, None, 1.5, "x"), [True, None, 1.5, "x"]),
        (Proof((ProofRun({"x": (1, 2)}, None, "too large"),), 1e-4).to_json()["runs"][0]["inputs"], {"x": [1, 2]}),
        (SizeRule("h", 8, step=0).to_json()["valid"], [8]),
    ],
)
def test_values(value: Any, expected: Any) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        Finding("TC101", "a-name", "what", Severity.ERROR, Location("g", 3, "n", "Op"), "fix", "a-pass"),
        TensorInfo("x", "input", "float32", (-1, 3)),
        InputRange((1, 2), (3, 4), (5, 6)),
    ],
)
def test_what_was_written_is_read(value: Any) -> None:
    assert decoded(type(value), json.loads(json.dumps(plain(value)))) == value


@pytest.mark.parametrize("data", [{}, {"min": [1], "opt": [1]}, {"min": ["a"], "opt": [1], "max": [1]}, [], None])
def test_what_is_something_else_is_refused(data: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        decoded(InputRange, data)
