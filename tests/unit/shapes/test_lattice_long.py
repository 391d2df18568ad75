"""Ranges of more sizes than are run: what is said of the sizes between."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.sizes import parse
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.pipeline.profiles import settle
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.lattice.stretch import MAX_LISTED, pattern_of
from trtconv.shapes.lattice.tables import MAX_ROWS, Table, join
from trtconv.shapes.report import SizesRequest, sizes

ROWS_OF_64 = "g (float[1,1,t] x) => (float[a,b,c] y) <int64[3] s = {1,-1,64}> { y = Reshape (x, s) }"
BAKED = "g (float[1,1,t] x) => (float[a,b,c] y) <int64[3] s = {1,300,1000}> { y = Reshape (x, s) }"
POSITIONS = """g (float[1,t,1] x, float[1,100000,1] table) => (float[a,b,c] y)
    <int64[1] one = {1}, int64[1] zero = {0}> {
    s = Shape (x) n = Gather <axis = 0> (s, one) p = Slice (table, zero, n, one) y = Concat <axis = 2> (x, p) }"""
FREE = "g (float[1,t] x) => (float[1,t] y) { y = Relu (x) }"
SPAN = {"t": (16_000, 1_600_000)}


def test_a_pattern_goes_on_between_the_ends() -> None:
    dim = Sizes(parse(ROWS_OF_64)).lattice({"t": (6_400, 640_001)}, {"t": 160_000}).dims["t"]
    assert dim.valid == tuple(range(6_400, 640_001, 64))
    assert dim.describe() == "multiples of 64 from 6400 to 640000"
    assert (dim.accepts(160_000), dim.accepts(160_001)) == (True, False)
    assert dim.nearest(640_001) == (640_000, 640_064)


def test_every_size() -> None:
    dim = Sizes(parse(FREE)).lattice(SPAN).dims["t"]
    assert (dim.valid, dim.step) == (None, 1)
    assert dim.accepts(777_777)


def test_small_sizes_that_fill_no_window_break_no_pattern() -> None:
    model = parse(
        "g (float[1,1,t] x) => (float[a,b,c] y) <float[1,1,10] k = {0,0,0,0,0,0,0,0,0,0}> {"
        " p = Conv <strides = [5]> (x, k) q = ConvTranspose <strides = [5]> (p, k) y = Concat <axis = 1> (q, x) }"
    )
    lattice = Sizes(model).lattice({"t": (1, 200_000)})
    assert lattice.dims["t"].valid == tuple(range(10, 200_001, 5))
    assert not lattice.exact


def test_small_sizes_that_broadcast_do_not_hide_the_rule() -> None:
    model = parse(
        """g (float[1,1,h,8] x) => (float[1,1,h,8] y) {
            a = MaxPool <kernel_shape = [1,1], strides = [2,1]> (x)
            s = Constant <value = float[4] {1.0, 1.0, 2.0, 1.0}> ()
            b = Resize <mode = "nearest"> (a, , s)
            y = Add (b, x)
        }"""
    )
    dim = Sizes(model).lattice({"h": (1, 64)}, {"h": 8}).dims["h"]
    assert dim.describe() == "1 or, from 2 on, a multiple of 2, to 64"


def test_the_one_size_that_fits_is_found() -> None:
    lattice = Sizes(parse(BAKED)).lattice(SPAN, {"t": 160_000})
    assert lattice.dims["t"].valid == (300_000,)
    assert not lattice.empty
    assert lattice.rounded({"t": 160_000}, up=None) == {"t": 300_000}


def test_the_largest_size_is_found() -> None:
    lattice = Sizes(parse(POSITIONS)).lattice(SPAN, {"t": 160_000})
    dim = lattice.dims["t"]
    assert dim.valid is not None
    assert (dim.valid[-1], dim.accepts(100_000), dim.accepts(100_001)) == (100_000, True, False)
    assert lattice.imposed[0].needs == "at most 100000"


def test_what_was_not_looked_at_is_not_refused() -> None:
    model = parse("g (float[1,t] x, float[1,u] z) => (float[a,b] y) { y = Concat <axis = 0> (x, z) }")
    spans = {"t": (16_000, 1_600_000), "u": (16_000, 1_700_000)}
    lattice = Sizes(model).lattice(spans, {"t": 123_457, "u": 123_457}, {"t": [777_777], "u": [777_777]})
    assert lattice.rounded({"t": 123_457, "u": 123_457}, up=None) == {"t": 123_457, "u": 123_457}
    assert lattice.rounded({"t": 777_777, "u": 777_777}, up=True) == {"t": 777_777, "u": 777_777}
    assert not lattice.nearest({"t": 1_234_321, "u": 1_234_321})
    assert "that were looked at" in lattice.dims["t"].describe()
    assert not lattice.exact


def test_more_than_can_be_listed() -> None:
    span = {"t": (64, 64_000_000_000)}
    dim = Sizes(parse(ROWS_OF_64)).lattice(span, {"t": 6_400_000}).dims["t"]
    assert dim.valid is not None
    assert 10_000 < len(dim.valid) < MAX_LISTED
    assert all(n % 64 == 0 for n in dim.valid)
    assert dim.nearest(6_400_000) == (6_400_000, 6_400_000)
    assert dim.accepts(64 * 31_415_926)
    assert Sizes(parse(FREE)).lattice(span).dims["t"].valid is None


def test_computed_from_a_long_range() -> None:
    model = parse('g (float[1,"8*s"] x) => (float[a,b] y) <int64[2] s = {-1,64}> { y = Reshape (x, s) }')
    lattice = Sizes(model).lattice({"s": (1_000, 200_000)})
    assert lattice.dims["s"].valid == tuple(range(1_000, 200_001, 8))
    assert lattice.dims["8*s"].valid == tuple(range(8_000, 1_600_001, 64))


def test_the_sizes_command_judges_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(parse(ROWS_OF_64).proto.SerializeToString())
    report = sizes(SizesRequest(path, {"t": Range(6_400, 160_000, 640_001)}))
    assert report.nearest == {"t": {"640001": [640_000, 640_064]}}
    started = time.process_time()
    assert sizes(SizesRequest(path, {"t": Range(16_000, 160_000, 1_600_000)})).nearest == {}
    assert time.process_time() - started < 2


@pytest.mark.parametrize("split", [None, "auto"])
def test_profiles(split: str | None) -> None:
    model = parse(ROWS_OF_64)
    profile = make_profile(model.inputs, {"t": Range(6_400, 160_000, 640_001)})
    sized = settle(model, [profile], rounded=True, split=split)
    assert not sized.findings
    asked = [p.dims["t"] for p in sized.profiles]
    assert (asked[0].min, asked[-1].max) == (6_400, 640_064)
    assert 160_000 in {bound.opt for bound in asked}
    assert all(
        bound.opt % 64 == 0 and (split is None) == (bound.min == 6_400 and bound.max == 640_064) for bound in asked
    )


def test_a_middle_that_differs_is_no_pattern() -> None:
    table = np.concatenate([np.arange(30_000), np.arange(100_000, 130_000)])
    plain = table % 8 == 0
    found = pattern_of(table, plain, lambda sizes: sizes % 8 == 0)
    assert found is not None
    assert found.sizes() == range(0, 130_000, 8)
    # The same at both ends, and something else in between.
    assert pattern_of(table, plain, lambda sizes: (sizes % 8 == 0) & (sizes < 60_000)) is None
    # Another beat at the other end.
    assert pattern_of(table, np.where(table < 50_000, plain, table % 8 == 1), lambda sizes: sizes % 8 == 0) is None
    # Nothing accepted says nothing of what was not looked at.
    assert pattern_of(table, np.zeros(len(table), bool), lambda sizes: np.zeros(len(sizes), bool)) is None


def by_8(sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    return sizes % 8 == 0


@pytest.mark.parametrize(
    ("spoiled", "head", "tail"),
    [
        (13, (0, 8, 13), ()),
        (16, (0, 8), ()),
        (129_981, (), (129_981, 129_984, 129_992)),
        (129_984, (), (129_992,)),
        (64_001, None, None),
        (64_000, None, None),
    ],
)
def test_one_size_that_differs(spoiled: int, head: tuple[int, ...] | None, tail: tuple[int, ...] | None) -> None:
    """At an end it is told apart, and the pattern holds beside it; in between there is no pattern."""
    table = np.concatenate([np.arange(30_000), np.arange(64_000, 64_900), np.arange(100_000, 130_000)])
    found = pattern_of(table, by_8(table) ^ (table == spoiled), by_8)
    if head is None or tail is None:
        assert found is None
        return
    assert found is not None
    assert (found.head, found.tail) == (head, tail)
    assert found.begin == (spoiled + 1 if head else 0)
    assert found.end == (spoiled - 1 if tail else 129_999)


def test_thinned_combinations_keep_every_size_and_what_was_asked() -> None:
    sizes = np.arange(64, 2_112)
    one, two = Table({"h": sizes}), Table({"w": sizes})
    joined = join(one, two, sizes // 64, sizes // 64, ones=False, anchors={"h": [300], "w": [319]})
    assert MAX_ROWS < joined.rows < 2 * MAX_ROWS
    assert not joined.complete
    assert set(joined.columns["h"].tolist()) == set(joined.columns["w"].tolist()) == set(sizes.tolist())
    assert ((joined.columns["h"] == 300) & (joined.columns["w"] == 319)).any()
