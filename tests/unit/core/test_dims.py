"""Ranges, profiles, and the spellings in which the command line takes them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trtconv.core.bounds import make_profile
from trtconv.core.dim_flags import parse_dims, parse_profile, parse_trtexec
from trtconv.core.dims import InputSpec, Range, dynamic_dims
from trtconv.core.errors import InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest

SIZES = st.lists(st.integers(1, 2**31), min_size=3, max_size=3).map(sorted)
RANGES = SIZES.map(lambda sizes: Range(*sizes))
NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name == name.strip())
PROFILE_NAMES = st.one_of(
    NAMES.filter(lambda name: not set(name) & set(",()")),
    st.sampled_from(["4*h", "floor(h/2)", "Max(h, w)", "f(g(a, b), c)", "batch size", "h = w", "x:2", "a'b"]),
)
SHAPES = st.lists(st.integers(1, 2**31), max_size=5).map(tuple)

X = InputSpec("x", "float", ("batch", 3, "height", "width"))
Y = InputSpec("y", "float", ("batch", 8))


class TestRange:
    @given(RANGES)
    def test_round_trip(self, bound: Range) -> None:
        assert Range.parse(str(bound)) == bound

    @pytest.mark.parametrize(
        ("text", "bound"), [("8", Range(8, 8, 8)), ("1:4", Range(1, 4, 4)), ("1:2:4", Range(1, 2, 4))]
    )
    def test_short_forms(self, text: str, bound: Range) -> None:
        assert Range.parse(text) == bound

    @pytest.mark.parametrize("bound", [Range(8, 16, 32), "8:16:32", (8, 16, 32), [8, 16, 32]])
    def test_requests_take_what_python_users_write(self, bound: object) -> None:
        request = BuildRequest("net.onnx", dims={"h": bound, "w": 64, "b": "1:4"}, profiles=({"h": bound},))  # type: ignore[dict-item,arg-type]
        assert request.dims == {"h": Range(8, 16, 32), "w": Range(64, 64, 64), "b": Range(1, 4, 4)}
        assert request.profiles == ({"h": Range(8, 16, 32)},)

    @pytest.mark.parametrize(
        "bound", [None, 1.5, True, (), (1.0, 2.0), ("1", "2"), (1, 2, 3, 4), "4:2:8", 0, {"min": 1}]
    )
    def test_a_request_names_the_dimension_that_is_wrong(self, bound: object) -> None:
        with pytest.raises(InputError, match="bounds of 'h'"):
            CheckRequest("net.onnx", dims={"h": bound})  # type: ignore[dict-item,arg-type]

    @pytest.mark.parametrize("text", ["", "a", "1:b", "1.5", "1:2:3:4", ":", "0", "-1", "4:2:8", "1:9:8", "0x10"])
    def test_nonsense(self, text: str) -> None:
        with pytest.raises(InputError) as caught:
            Range.parse(text)
        assert caught.value.hint

    def test_wrong_order_suggests_the_right_one(self) -> None:
        with pytest.raises(InputError) as caught:
            Range(8, 4, 2)
        assert "2:4:8" in caught.value.hint


class TestMakeProfile:
    def test_dims(self) -> None:
        assert dynamic_dims([X, Y]) == {"batch": ["x:0", "y:0"], "height": ["x:2"], "width": ["x:3"]}

    def test_every_input_gets_its_shapes(self) -> None:
        bounds = {"batch": Range(1, 1, 4), "x:2": Range(8, 16, 32), "width": Range(8, 8, 8), "x:1": Range(3, 3, 3)}
        profile = make_profile([X, Y], bounds)
        assert profile.to_json() == {
            "x": {"min": [1, 3, 8, 8], "opt": [1, 3, 16, 8], "max": [4, 3, 32, 8]},
            "y": {"min": [1, 8], "opt": [1, 8], "max": [4, 8]},
        }

    @pytest.mark.parametrize(
        ("bounds", "message", "hint"),
        [
            ({}, "3 dynamic dimension(s) without bounds", "--dim batch=MIN:OPT:MAX --dim height=MIN:OPT:MAX"),
            ({"depth": Range(1, 1, 1)}, "no dimension 'depth'", "batch (x:0, y:0)"),
            ({"y:1": Range(8, 8, 9)}, "y:1 is static (8)", "Leave out y:1"),
            ({"batch": Range(1, 1, 1), "y:0": Range(2, 2, 2)}, "batch is given twice", "one range"),
        ],
    )
    def test_mistakes(self, bounds: dict[str, Range], message: str, hint: str) -> None:
        with pytest.raises(InputError) as caught:
            make_profile([X, Y], bounds)
        assert message in caught.value.message
        assert hint in caught.value.hint


class TestParseDims:
    @given(st.dictionaries(NAMES, RANGES, max_size=4))
    @example({"h=w": Range(1, 2, 3)})
    def test_round_trip(self, bounds: dict[str, Range]) -> None:
        assert parse_dims([f"{name}={bound}" for name, bound in bounds.items()]) == bounds

    def test_order_and_repetition(self) -> None:
        assert list(parse_dims(["b=1", "a=2", "b=1"])) == ["b", "a"]

    @pytest.mark.parametrize(
        ("items", "message"),
        [
            (["height"], "--dim 'height' is not NAME=MIN:OPT:MAX"),
            (["=4"], "--dim '=4' is not NAME=MIN:OPT:MAX"),
            (["h="], "--dim 'h=' is not NAME=MIN:OPT:MAX"),
            (["h=x"], "--dim h: 'x' is not MIN:OPT:MAX"),
            (["h=0:1:2"], "--dim h: 0:1:2: a dimension is at least 1"),
            (["h=1:1:99999999999999999999"], "--dim h: 1:1:99999999999999999999: no dimension is that large"),
            (["h=1:2:3:4"], "--dim h: '1:2:3:4' has 4 parts"),
            (["h=1", "h=2"], "--dim gives h twice: 1 and 2"),
        ],
    )
    def test_mistakes(self, items: list[str], message: str) -> None:
        with pytest.raises(InputError) as caught:
            parse_dims(items)
        assert message in caught.value.message
        assert caught.value.hint


class TestParseProfile:
    @given(st.dictionaries(PROFILE_NAMES, RANGES, min_size=1, max_size=4))
    def test_round_trip(self, bounds: dict[str, Range]) -> None:
        assert parse_profile(",".join(f"{name}={bound}" for name, bound in bounds.items())) == bounds

    def test_spaces_and_a_last_comma(self) -> None:
        assert parse_profile(" 4*h = 8 , batch size=1:2:3, ") == {"4*h": Range(8, 8, 8), "batch size": Range(1, 2, 3)}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "--profile is empty"),
            (" , ", "--profile is empty"),
            ("height,width=4", "--profile 'height' is not NAME"),
            ("h=1,h=2", "--profile gives h twice"),
            ("h=3:2:1", "--profile h: 3:2:1"),
            ("f(h=1,w", "--profile f(h: '1,w' is not"),
        ],
    )
    def test_mistakes(self, text: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            parse_profile(text)
        assert message in caught.value.message
        assert caught.value.hint


def _spell(shapes: dict[str, tuple[int, ...]]) -> str:
    return ",".join(f"'{name}':{'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())


class TestParseTrtexec:
    @given(st.dictionaries(NAMES.filter(lambda n: not set(n) & set("'\\")), SHAPES, min_size=1, max_size=4))
    def test_opt_alone_fixes_every_shape(self, shapes: dict[str, tuple[int, ...]]) -> None:
        expected = {f"{n}:{axis}": Range(s, s, s) for n, shape in shapes.items() for axis, s in enumerate(shape)}
        assert parse_trtexec(None, _spell(shapes), None) == expected

    def test_three_flags(self) -> None:
        bounds = parse_trtexec("x:1x3x64x64,y:1", "x:2x3x128x96,y:4", "y:8,x:4x3x256x256")
        assert bounds == {
            "x:0": Range(1, 2, 4),
            "x:1": Range(3, 3, 3),
            "x:2": Range(64, 128, 256),
            "x:3": Range(64, 96, 256),
            "y:0": Range(1, 4, 8),
        }

    @pytest.mark.parametrize(
        ("text", "bounds"),
        [
            ("input:0:2", {"input:0:0": 2}),
            ("'input:0':2", {"input:0:0": 2}),
            ("\\'input:0\\':2", {"input:0:0": 2}),
            ("'a,b':2,c:3", {"a,b:0": 2, "c:0": 3}),
            ("don't:2,c:3", {"don't:0": 2, "c:0": 3}),
            (" x : 2x3 , y:4 ", {"x:0": 2, "x:1": 3, "y:0": 4}),
            ("x:scalar,y:", {}),
            ("x:2,x:2", {"x:0": 2}),
        ],
    )
    def test_spellings(self, text: str, bounds: dict[str, int]) -> None:
        assert parse_trtexec(None, text, None) == {key: Range(size, size, size) for key, size in bounds.items()}

    def test_nothing_given(self) -> None:
        assert parse_trtexec(None, None, None) == {}

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (("x:1", None, None), "--optShapes and --maxShapes missing beside --minShapes"),
            (("x:1", "x:1", None), "--maxShapes missing beside --minShapes and --optShapes"),
            ((None, None, "x:1"), "--minShapes and --optShapes missing beside --maxShapes"),
            (("x:1", "x:1", "y:1"), "--maxShapes has no shape for input 'x'"),
            (("x:1", "x:1,y:1", "x:1,y:1"), "--minShapes has no shape for input 'y'"),
            (("x:1", "x:1x2", "x:1"), "1 in --minShapes, 2 in --optShapes, 1 in --maxShapes"),
            (("x:4", "x:2", "x:8"), "axis 0 of input 'x' in --minShapes, --optShapes, --maxShapes: 4:2:8"),
            ((None, "", None), "--optShapes '' is not INPUT:SHAPE"),
            ((None, "x", None), "--optShapes 'x' is not INPUT:SHAPE"),
            ((None, ":1x3", None), "--optShapes ':1x3' is not INPUT:SHAPE"),
            ((None, "x:1xx3", None), "shape '1xx3' of input 'x' is not integers joined by x"),
            ((None, "x:-1x3", None), "shape '-1x3' of input 'x' is not integers"),
            ((None, "x:1_0", None), "is not integers"),
            ((None, "x:" + "9" * 5000, None), "is not integers"),
            ((None, "x:0x3", None), "shape '0x3' of input 'x' has a size below 1"),
            ((None, "x:1,x:2", None), "--optShapes gives input 'x' twice"),
        ],
    )
    def test_mistakes(self, flags: tuple[str | None, str | None, str | None], message: str) -> None:
        with pytest.raises(InputError) as caught:
            parse_trtexec(*flags)
        assert message in caught.value.message
        assert caught.value.hint

    @given(st.text(), st.text(), st.text())
    def test_any_text_is_read_or_refused(self, low: str, middle: str, high: str) -> None:
        for parse in (lambda: parse_trtexec(low, middle, high), lambda: parse_profile(low), lambda: parse_dims([low])):
            try:
                parse()
            except InputError as error:
                assert error.message
                assert error.hint
