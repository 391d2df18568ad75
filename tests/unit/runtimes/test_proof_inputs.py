"""What the proof feeds: each kind of input is what it is called, and integers keep to their role."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trtconv.core.dims import InputSpec
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.feeds import CALM, InputKind, Role, Source, make, sizes
from trtconv.runtimes.proof.reference import Wanted, feeds_of
from trtconv.runtimes.proof.roles import sizing_inputs
from trtconv.runtimes.proof.tolerance import magnitude

K = InputKind
MANY = (1000,)
FLOATS = Source("x", "float32")


def made(source: Source, shape: tuple[int, ...], kind: InputKind, calm: int = 0, **more: object) -> NDArray[np.generic]:
    found = make([source], {source.name: shape}, kind, more.get("limits", ()), more.get("largest", 50.0), calm)  # type: ignore[arg-type]
    return found[source.name]


def floats(kind: InputKind, **more: object) -> NDArray[np.float64]:
    return made(FLOATS, MANY, kind, **more).astype(np.float64)


def test_kinds_of_floats_are_what_they_are_called() -> None:
    ordinary = floats(K.ORDINARY)
    assert 0.8 < ordinary.std() < 1.2 and abs(ordinary.mean()) < 0.2
    assert floats(K.LARGE).std() == pytest.approx(50, rel=0.2)
    assert floats(K.LARGE, largest=7.0).std() == pytest.approx(7, rel=0.2)
    assert np.abs(floats(K.SMALL)).max() < 0.02
    assert floats(K.SMALL).std() > 0.001
    assert floats(K.NEGATIVE).max() < 0 < -floats(K.NEGATIVE).min() - 1
    assert floats(K.POSITIVE).min() >= 1
    assert floats(K.DEEP).max() <= -10 < -9 < -floats(K.DEEP).std()
    assert not floats(K.ZEROS).any()
    wide = np.abs(floats(K.WIDE))
    assert wide.max() > 100 and wide.min() < 0.05


NORMAL = np.random.default_rng(0).standard_normal(100_000)
HALF = np.abs(NORMAL)
KINDS = {
    K.ORDINARY: NORMAL,
    K.LARGE: 50 * NORMAL,
    K.SMALL: 0.003 * NORMAL,
    K.NEGATIVE: -HALF - 0.01,
    K.TIES: np.rint(3 * NORMAL) / 2,
    K.POSITIVE: 3 * HALF + 1,
    K.DEEP: -3 * HALF - 10,
    K.WIDE: NORMAL * 300 ** np.random.default_rng(1).random(NORMAL.size),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_floats_are_spread_as_they_are_called(kind: InputKind) -> None:
    shares = np.linspace(0.05, 0.95, 19)
    expected, found = (np.quantile(values, shares) for values in (KINDS[kind], made(FLOATS, (16_000,), kind)))
    # By a twentieth of how far they are spread; of ties, by one.
    np.testing.assert_allclose(found, expected, atol=0.5 if kind is K.TIES else 0.05 * np.ptp(expected))


def test_ties_are_halves_between_integers_and_integers() -> None:
    ties = floats(K.TIES)
    np.testing.assert_array_equal(ties * 2, np.rint(ties * 2))
    assert (ties != np.rint(ties)).mean() > 0.2
    assert np.abs(ties).max() > 2


def test_limits_are_met_and_passed_on_both_sides() -> None:
    near = made(FLOATS, (16_000,), K.LIMITS, limits=(6.0,)).astype(np.float64)
    factors, steps = (1.0, 0.999, 1.001, 0.5, 1.5), (0.0, 1e-3, -1e-3)
    expected = {round(limit * factor + step, 6) for limit in (6.0, 0.0) for factor in factors for step in steps}
    assert {round(value, 6) for value in near.tolist()} == expected


@given(st.sampled_from(list(InputKind)), st.integers(0, 5), st.sampled_from(["float32", "int64", "bool"]))
def test_inputs_are_the_same_each_time_and_differ_between_names(kind: InputKind, count: int, dtype: str) -> None:
    one, again = (made(Source("x", dtype), (count, 3), kind) for _ in range(2))
    assert one.shape == (count, 3) and one.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize("kind", [K.ORDINARY, K.LIMITS])
def test_no_two_inputs_of_a_piece_have_the_same_numbers(kind: InputKind) -> None:
    names = [f"x{number}" for number in range(200)]
    feeds = make([Source(name, "float32") for name in names], dict.fromkeys(names, (40,)), kind, (1.5, -3.0), 50.0)
    assert len({values.tobytes() for values in feeds.values()}) == len(names)
    again = make([Source("x7", "float32")], {"x7": (40,)}, kind, (1.5, -3.0), 50.0)
    assert again["x7"].std() > 0


def test_beyond_the_places_no_two_inputs_have_the_same_numbers() -> None:
    names = [f"x{number}" for number in range(600)]
    feeds = make([Source(name, "float32") for name in names], dict.fromkeys(names, (4,)), K.SMALL, (), 1.0)
    assert len({values.tobytes() for values in feeds.values()}) == len(names)


@pytest.mark.parametrize("shape", [(64, 8, 8), (32, 64), (16, 12, 12), (8, 61)])
def test_no_rows_of_one_input_are_rows_of_another(shape: tuple[int, ...]) -> None:
    """Else a network that takes one for the other, moved, would agree in every kind."""
    names = [f"x{number}" for number in range(60)]
    feeds = make([Source(name, "float32") for name in names], dict.fromkeys(names, shape), K.ORDINARY, (), 1.0)
    rows = [row.tobytes() for values in feeds.values() for row in values]
    assert len(set(rows)) == len(rows)


def test_places_of_many_numbers_are_told_apart() -> None:
    for shape in ((3, 16_411), (16_411, 3), (2, 16_417)):
        values = made(Source("x", "float32"), shape, K.ORDINARY)
        assert not (values[0] == values[1]).all()
        assert not (values[:, 0] == values[:, 1]).all()


@pytest.mark.parametrize("kind", list(InputKind))
@pytest.mark.parametrize("bound", [1, 2, 7])
def test_indices_reach_the_whole_table_and_no_further(kind: InputKind, bound: int) -> None:
    for shape in ((12,), (3, 4)):
        assert set(made(Source("i", "int64", Role.INDEX, bound), shape, kind).ravel()) == set(range(bound))
        assert set(made(Source("i", "int64", Role.LENGTH, bound), shape, kind).ravel()) == set(range(1, bound + 1))
    # Of one, the last row and the first in turns.
    assert made(Source("i", "int64", Role.INDEX, bound), (1,), kind).item() in (0, bound - 1)


def test_a_single_index_is_the_last_row_or_the_first() -> None:
    found = {made(Source("i", "int64", Role.INDEX, 9), (1,), kind).item() for kind in (K.ORDINARY, K.LARGE)}
    assert found == {0, 8}
    assert made(Source("i", "int64", Role.INDEX, 9), (0,), K.ORDINARY).shape == (0,)
    assert made(Source("i", "int64", Role.INDEX), (3,), K.ORDINARY).tolist() == [0, 0, 0]


def test_calm_integers_are_valid_wherever_anything_is() -> None:
    for role in (Role.NUMBER, Role.INDEX, Role.SIZES):
        source = Source("i", "int64", role, 9)
        assert set(made(source, MANY, K.ORDINARY, 1)) == {0, 1}
        assert set(made(source, MANY, K.ORDINARY, 2)) == {1}


@pytest.mark.parametrize("kind", list(InputKind))
def test_integers_are_small_but_where_large_ones_are_wanted(kind: InputKind) -> None:
    found = set(made(Source("n", "int32"), MANY, kind).tolist())
    low, high = {K.ZEROS: (0, 0), K.LARGE: (0, 999), K.SMALL: (0, 1), K.NEGATIVE: (-10, 9)}.get(kind, (0, 9))
    assert min(found) == low or (kind is K.LARGE and min(found) < 20)
    assert max(found) == high or (kind is K.LARGE and 900 < max(found) <= high)
    assert min(made(Source("n", "uint32"), MANY, kind).tolist()) >= 0
    narrow = made(Source("n", "int8"), (20_000,), kind)
    assert (narrow.min(), narrow.max()) == (-128, 127)


def test_loops_run_a_few_times_and_once_not_at_all() -> None:
    trips = [made(Source("n", "int64", Role.TRIPS), (1,), kind).item() for kind in InputKind]
    assert 0 in trips and 1 in trips and max(trips) <= 5 and len(set(trips)) > 4


def test_a_single_condition_goes_both_ways() -> None:
    assert {made(Source("c", "bool"), (1,), kind).item() for kind in InputKind} == {True, False}
    assert set(made(Source("c", "bool"), MANY, K.ORDINARY).tolist()) == {True, False}


def test_boxes_are_centres_and_sizes_or_corners() -> None:
    source = Source("b", "float32", Role.BOXES)
    centres, corners = made(source, (50, 4), K.ORDINARY), made(source, (50, 4), K.LARGE)
    for extent in (centres[:, 2:], corners[:, 2:] - corners[:, :2]):
        assert extent.min() > 0.79 and extent.max() < 1.61
    # Each has a place of its own, and all lie about as far apart as they are large.
    assert len(np.unique(centres[:, :2] % 1)) == len(centres) * 2
    assert corners[:, :2].max() > 3 and corners[:, :2].min() < 0.4
    # Some overlap, some do not.
    gaps = np.abs(centres[:, None, :2] - centres[None, :, :2]).max(-1)
    assert (gaps < 0.8).mean() > 0.05 and (gaps > 1.6).any()
    # A tensor of another width is not one of boxes.
    assert not made(source, (50, 5), K.ZEROS).any()


@given(st.integers(0, 50), st.lists(st.integers(5, 99), max_size=3, unique=True))
def test_integers_that_decide_sizes_are_small_or_stated(seed: int, stated: list[int]) -> None:
    drawn = sizes((400,), np.dtype(np.int64), np.random.default_rng(seed), stated).tolist()
    found = set(drawn)
    assert set(range(-4, 5)) | set(stated) >= found >= set(stated)
    assert set(range(-4, 5)) <= found or stated
    for size in stated:
        # Each is as likely as all small ones together.
        assert 0.3 / (len(stated) + 1) < drawn.count(size) / 400 < 1.7 / (len(stated) + 1)
    rows = sizes((400,), np.dtype(bool), np.random.default_rng(seed), stated)
    assert rows.dtype == bool and 0 < rows.sum() < 400


def test_other_draws_are_for_what_decides_sizes_alone() -> None:
    calm = CALM[-1] + 1
    sizing, other = Source("s", "int64", Role.SIZES), Source("n", "int64")
    drawn = [made(sizing, (6,), K.ORDINARY, calm + more).tolist() for more in range(3)]
    assert drawn[0] != drawn[1] != drawn[2] and all(abs(n) <= 4 for each in drawn for n in each)
    assert made(other, (6,), K.ORDINARY, calm).tolist() == made(other, (6,), K.ORDINARY).tolist()


SPECS = [
    InputSpec(name, dtype, (4, 50)) for name, dtype in (("f", "float"), ("i", "int64"), ("u", "uint8"), ("b", "bool"))
]


def wanted(**more: object) -> Wanted:
    shape = {spec.name: (4, 50) for spec in SPECS}
    return Wanted("m.onnx", None, (shape, shape), **more)  # type: ignore[arg-type]


def test_inputs_of_a_whole_run() -> None:
    first, second = (feeds_of(wanted(), number, SPECS) for number in (0, 1))
    assert {name: each.dtype.name for name, each in first.items()} == {
        "f": "float32",
        "i": "int64",
        "u": "uint8",
        "b": "bool",
    }
    assert all(not np.array_equal(first[name], second[name]) for name in first)
    assert (first["f"] < 0).any() and 0.8 < first["f"].std() < 1.2
    assert set(first["i"].ravel()) == {0, 1, 2, 3} and first["u"].max() > 200
    assert set(first["b"].ravel()) == {True, False}
    again = feeds_of(wanted(), 0, SPECS)
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_magnitudes_bounds_and_values_of_a_run() -> None:
    large = feeds_of(wanted(magnitudes=(100.0, 1.0)), 0, SPECS)["f"]
    assert large.min() >= 0 and 100 < large.max() < 1000
    assert (feeds_of(wanted(magnitudes=(100.0, 1.0)), 1, SPECS)["f"] < 0).any()
    assert feeds_of(wanted(spans={"i": range(7, 9)}), 0, SPECS)["i"].min() == 7
    assert set(feeds_of(wanted(plain=True), 0, SPECS)["i"].ravel()) == {1}
    given_ = feeds_of(wanted(values=({"i": [[7]]}, {})), 0, SPECS)["i"]
    assert given_.tolist() == [[7]] and given_.dtype == np.int64


def test_only_what_decides_sizes_is_drawn_again() -> None:
    first, other = (feeds_of(wanted(), 0, SPECS, draw, {"i"}, (77,)) for draw in (0, 1))
    assert np.array_equal(first["f"], other["f"])
    assert set(other["i"].ravel()) == {*range(-4, 5), 77}


@pytest.mark.parametrize(
    ("body", "sizing"),
    [
        ("a = Cast <to = 7> (n) y = Reshape (x, a)", True),
        ("a = Concat <axis = 0> (n, n) y = Reshape (x, a)", True),
        ("a = Add (n, n) y = Reshape (x, a)", False),
        ("a = Gather (x, n) y = Identity (a)", False),
        ("y = ReduceSum (x, n)", True),
        ("y = Relu (x)", False),
    ],
)
def test_what_decides_sizes_is_followed_through_what_hands_it_on(body: str, sizing: bool) -> None:
    text = f'<ir_version: 8, opset_import: ["": 18]> g (float[2,3] x, int64[2] n) => (float[a,b] y) {{ {body} }}'
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    assert sizing_inputs(model.main.columns.nodes, model.inputs) == ({"n"} if sizing else set())


def test_the_magnitude_of_inputs_is_of_finite_floats() -> None:
    feeds = {
        "a": np.array([1.0, -7.0, np.inf, np.nan]),
        "b": np.zeros((0, 2)),
        "c": np.array([1000]),
        "d": np.array([np.nan]),
    }
    assert magnitude(feeds) == 7
    assert magnitude({"b": feeds["b"], "c": feeds["c"]}) == 0
