"""What an export is asked for: flags and dimensions. Needs no torch."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT
from trtconv.cli.commands.export import command
from trtconv.core.dims import Range
from trtconv.core.documents.export import Blame, Proof, ProofRun, SizeRule
from trtconv.core.errors import InputError
from trtconv.exporter.inputs import (
    InputDecl,
    SteppedRange,
    all_axes,
    parse_bounds,
    parse_dynamic,
    parse_input,
    parse_inputs,
    with_places,
)
from trtconv.exporter.request import parse_argument, plan_axes

X = InputDecl("x", (1, 3, 64, 64))
AXES = {"x": ("batch", None, "height", "width")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=1x3x64x64", X),
        ("x=1x3x64x64:half", InputDecl("x", (1, 3, 64, 64), "float16")),
        ("t=1:int64", InputDecl("t", (1,), "int64")),
        ("s=scalar:bool", InputDecl("s", (), "bool")),
    ],
)
def test_input(text: str, expected: InputDecl) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize("text", ["x", "=1x3", "x=", "x=1x", "x=ax3", "x=0x3", "x=1x3:float31", "x=-1x3", "x=1,3"])
def test_bad_input(text: str) -> None:
    with pytest.raises(InputError):
        parse_input(text)


@pytest.mark.parametrize(
    ("text", "name", "shape", "axes", "bounds"),
    [
        ("1x3x8x8", "", (1, 3, 8, 8), None, {}),
        ("x=batch,3,h=16:32:64,w=16:64", "x", (1, 3, 32, 64), ("batch", None, "h", "w"), {"h": Range(16, 32, 64)}),
        ("batch=1:2:4,3,h=8:16:32:/8", "", (2, 3, 16), ("batch", None, "h"), {"h": SteppedRange(8, 16, 32, 8)}),
        ("t=batch,tokens=4:8:int64", "t", (1, 8), ("batch", "tokens"), {"tokens": Range(4, 8, 8)}),
        ("x=batch=1:2:4,3,h=8:16:32:/8", "x", (2, 3, 16), ("batch", None, "h"), {"batch": Range(1, 2, 4)}),
        ("t=tokens=4:8:16:int64", "t", (8,), ("tokens",), {"tokens": Range(4, 8, 16)}),
    ],
)
def test_one_flag_for_an_input(text: str, name: str, shape: tuple, axes: object, bounds: dict) -> None:
    (found,) = parse_inputs([text])
    assert (found.name, found.shape, found.axes) == (name, shape, axes)
    assert found.dtype == ("int64" if "int64" in text else "float32")
    assert {key: found.bounds[key] for key in bounds} == bounds


def test_every_input_that_help_and_docs_show_can_be_read() -> None:
    shown = [
        command.epilog or "",
        *(page.read_text("utf-8") for page in ((ROOT / "README.md"), *(ROOT / "docs").glob("*.md"))),
    ]
    calls = [call for text in shown for call in re.findall(r"trtconv export (?:[^\n`\\]|\\\n)*", text)]
    texts = [text for call in calls for text in re.findall(r"--input '?([^\s'|]+)", call) if text != "NAME=SHAPE"]
    assert len(texts) > 8
    for text in texts:
        parse_inputs([text])


def test_a_static_axis_after_one_with_bounds() -> None:
    (found,) = parse_inputs(["x=batch,frames=2:6:20,80"])
    assert (found.shape, found.dtype, found.axes) == ((1, 6, 80), "float32", ("batch", "frames", None))


def test_bounds_that_stand_with_another_input() -> None:
    mask, ids = parse_inputs(["mask=batch,t", "ids=batch,t=2:6:20:int64"])
    assert (mask.shape, mask.dtype, ids.shape, ids.dtype) == ((1, 6), "float32", (1, 6), "int64")


@pytest.mark.parametrize(
    "texts", [["x=batch,,3"], ["x=_,3"], ["1x3", "y=1x3"], ["x=batch,h=3:2"], ["x=a,b=8:16:/0"], ["b=1:2,3:/8"]]
)
def test_a_flag_that_is_no_input(texts: list[str]) -> None:
    with pytest.raises(InputError):
        parse_inputs(texts)


def test_usual_names_of_axes() -> None:
    axes = plan_axes(parse_inputs(["x=1x3x8x8"]), dict([parse_dynamic("x")]), {})
    assert axes.example == {"batch": 1, "height": 8, "width": 8}


def test_a_step() -> None:
    bounds = parse_bounds(["height=16:512:/8", "width=16:64"])
    assert bounds == {"height": SteppedRange(16, 512, 512, 8), "width": Range(16, 64, 64)}
    axes = plan_axes(
        (InputDecl("x", (1, 3, 32, 32)),), {"x": ("batch", None, "height", None)}, {"height": bounds["height"]}
    )
    assert axes.on_steps({"height": 24, "batch": 3})
    assert not axes.on_steps({"height": 28})
    with pytest.raises(InputError, match="no multiple of 8"):
        plan_axes((InputDecl("x", (1, 3, 36)),), {"x": (None, None, "height")}, {"height": bounds["height"]})


def test_a_near_type_is_suggested() -> None:
    with pytest.raises(InputError) as caught:
        parse_input("x=1:float31")
    assert caught.value.hint == "Did you mean float32?"


def test_dynamic() -> None:
    assert parse_dynamic("x=batch,_,height,width") == ("x", AXES["x"])
    for text in ("x=", "x=a,,b", "=a"):
        with pytest.raises(InputError):
            parse_dynamic(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", ("a", 1)),
        ("a=(1, 2)", ("a", (1, 2))),
        ("a=true", ("a", True)),
        ("a=None", ("a", None)),
        ("a=tiny", ("a", "tiny")),
        ("a=b=c", ("a", "b=c")),
        ("a=__import__('os')", ("a", "__import__('os')")),
    ],
)
def test_argument(text: str, expected: object) -> None:
    assert parse_argument(text) == expected


@pytest.mark.parametrize("text", ["a", "1=2", "=3"])
def test_bad_argument(text: str) -> None:
    with pytest.raises(InputError):
        parse_argument(text)


def test_axes() -> None:
    axes = plan_axes([X], AXES, {"height": Range(32, 64, 128)})
    assert axes.example == {"batch": 1, "height": 64, "width": 64}
    assert axes.bounds == {"height": Range(32, 64, 128)}
    assert axes.names(0, 4) == AXES["x"]
    assert axes.shapes([X], {"height": 96}) == ((1, 3, 96, 64),)


def test_a_dimension_of_one_size_is_static() -> None:
    assert list(plan_axes([X], AXES, {"batch": Range(1, 1, 1)}).places) == ["height", "width"]
    assert not plan_axes([X], AXES, {}, static=True).places


def test_an_axis_can_be_named_by_its_place() -> None:
    assert plan_axes([X], {}, {"x:2": Range(32, 64, 128)}).places == {"x_2": ((0, 2),)}
    assert plan_axes([X], AXES, {"x:2": Range(32, 64, 128)}).bounds == {"height": Range(32, 64, 128)}


@pytest.mark.parametrize(
    ("dynamic", "dims", "said"),
    [
        ({"y": ("a",)}, {}, "not an input"),
        ({"x": ("a", None)}, {}, "2 axes"),
        (AXES, {"hight": Range(1, 2, 3)}, "not a dimension"),
        (AXES, {"x:7": Range(1, 2, 3)}, "not a dimension"),
        (AXES, {"height": Range(1, 2, 3)}, "outside"),
        ({"x": ("n", "n", None, None)}, {}, "different sizes"),
    ],
)
def test_bad_axes(dynamic: dict, dims: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan_axes([X], dynamic, dims)


BLAME = Blame("unet.py", 31, "x2 = torch.cat([a, b])")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            SizeRule("height", 64, 8, 0, 8, blame=BLAME),
            "height must be a multiple of 8: from `x2 = torch.cat([a, b])` at unet.py:31",
        ),
        (SizeRule("h", 63, 2, 1, 3), "h must be a multiple of 2 plus 1, at least 3"),
        (SizeRule("h", 64, 1, 0, 1), "h may be any size"),
        (SizeRule("h", 64, 1, 0, 32, 96, asked=Range(32, 64, 128)), "h may be any size, at most 96"),
        (SizeRule("h", 64, 8, 0, 64, 128, asked=Range(60, 64, 130)), "h must be a multiple of 8"),
        (SizeRule("h", 64, 4, offsets=(3,)), "h must leave a remainder of 0 or 3 when divided by 4"),
        (SizeRule("h", 64, 0), "h must be 64"),
        (SizeRule("h", 3, 0, valid=(3, 5, 6)), "h must be one of 3, 5, 6"),
    ],
)
def test_sentences(rule: SizeRule, sentence: str) -> None:
    assert rule.sentence() == sentence


def test_the_line_of_a_complaint_says_what_it_complains_of() -> None:
    line = Blame("base/model.py", 57, "raise RuntimeError(", "Wrong input shape height=33, expected divisible by 32")
    assert str(line) == f"`raise RuntimeError(` at base/model.py:57 ({line.why})"


def test_a_proof_fails_on_infinity_and_nan() -> None:
    good, bad = ProofRun({}, 1e-6), ProofRun({}, float("inf"))
    assert not Proof((good,), 1e-4).failed
    assert Proof((good, bad), 1e-4).failed
    assert Proof((ProofRun({}, float("nan")),), 1e-4).failed
    assert not Proof((), 1e-4, "why").failed


def test_values_of_an_integer_input() -> None:
    inputs = parse_inputs(["x=batch=1:2:4,length=4:8:16,3", "n=batch:int64[1..length]", "ids=5:int32[0..49406]"])
    placed = with_places(inputs, all_axes(inputs, {}))
    assert [each.dtype for each in placed] == ["float32", "int64", "int32"]
    assert placed[1].values is not None
    assert placed[1].values.top([(2, 11, 3), (2,), (5,)]) == 11
    assert placed[2].values is not None
    assert (placed[2].values.low, placed[2].values.top([])) == (0, 49406)


@pytest.mark.parametrize(
    "text", ["n=2:int64[1..", "n=2:float32[0..1]", "n=2:int64[5..1]", "n=2:int64[a..b c]", "n=2:int64[1]"]
)
def test_values_that_are_no_range_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_inputs([text])


def test_values_bounded_by_an_axis_that_is_not_there() -> None:
    inputs = parse_inputs(["x=batch=1:2:4,length=4:8:16,3", "n=batch:int64[1..lenght]"])
    with pytest.raises(InputError, match="lenght"):
        with_places(inputs, all_axes(inputs, {}))
