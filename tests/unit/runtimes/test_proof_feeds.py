"""What a piece is run on: values of each kind, integers as their role says, and sizes that leave what is bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trtconv.runtimes.proof.feeds import SMALL_ELEMENTS, InputKind, Role, Shape, Source, make, schemes, sizes


def drawn(kind: InputKind, shape: Shape = (200,), dtype: str = "float32", calm: int = 0, **source: Any) -> NDArray[Any]:
    return make([Source("x", dtype, **source)], {"x": shape}, kind, (6.0, -50.0), 30.0, calm)["x"]


def test_floats_are_of_their_kind() -> None:
    values = {kind: drawn(kind) for kind in InputKind}
    assert 0.8 < values[InputKind.ORDINARY].std() < 1.2 and abs(values[InputKind.ORDINARY].mean()) < 0.3
    assert 24 < values[InputKind.LARGE].std() < 36
    assert 2.4e-3 < values[InputKind.SMALL].std() < 3.6e-3
    assert values[InputKind.NEGATIVE].max() <= -0.01 and values[InputKind.NEGATIVE].min() < -1.5
    assert values[InputKind.POSITIVE].min() >= 1 and 3 < values[InputKind.POSITIVE].max() < 20
    assert not values[InputKind.ZEROS].any()
    ties = values[InputKind.TIES]
    assert np.array_equal(ties * 2, np.rint(ties * 2)) and (ties % 1 == 0.5).any() and (ties % 1 == 0).any()
    wide = np.abs(values[InputKind.WIDE])
    assert wide.max() > 88 and (wide < 1).any()
    near = values[InputKind.LIMITS]
    for limit in (6.0, -50.0):
        beside = near[np.abs(near / limit - 1) < 2e-3]
        assert (np.abs(beside) < abs(limit)).any() and (np.abs(beside) > abs(limit)).any()
    assert (np.abs(near) <= 1e-3).any()


def test_the_same_are_made_again_and_others_for_another_name_or_kind() -> None:
    sources = [Source("x", "float32"), Source("z", "float32")]
    once, again = (make(sources, {"x": (9,), "z": (9,)}, InputKind.ORDINARY, (), 1.0) for _ in range(2))
    assert np.array_equal(once["x"], again["x"]) and not np.array_equal(once["x"], once["z"])
    assert not np.array_equal(once["x"], drawn(InputKind.LARGE, (9,)) / 30)


@pytest.mark.parametrize("shape", [(2, 16_411), (2, 16_417), (3, 20_000)])
def test_no_two_rows_of_many_numbers_are_alike(shape: Shape) -> None:
    rows = drawn(InputKind.ORDINARY, shape)
    assert not any(np.array_equal(rows[0], row) for row in rows[1:])


def test_a_single_boolean_takes_both_branches_and_several_are_mixed() -> None:
    assert [bool(drawn(kind, (), "bool")) for kind in (InputKind.ORDINARY, InputKind.LARGE)] == [True, False]
    assert set(drawn(InputKind.ORDINARY, (50,), "bool").tolist()) == {True, False}


@pytest.mark.parametrize("kind", InputKind)
def test_indices_reach_all_of_a_table_and_no_further(kind: InputKind) -> None:
    index = drawn(kind, (4, 10), "int64", role=Role.INDEX, bound=13)
    assert index.dtype == np.int64 and set(index.ravel().tolist()) == set(range(13))
    few = drawn(kind, (2,), "int64", role=Role.INDEX, bound=13)
    assert few[0] == (12 if kind % 2 == 0 else 0) and few.max() <= 12
    assert not drawn(kind, (3,), "int64", role=Role.INDEX).any()
    length = drawn(kind, (40,), "int32", role=Role.LENGTH, bound=7)
    assert set(length.tolist()) == set(range(1, 8))
    assert drawn(kind, (0,), "int64", role=Role.INDEX, bound=3).shape == (0,)


def test_loops_run_several_times_and_not_at_all() -> None:
    trips = [int(drawn(kind, (), "int64", role=Role.TRIPS)) for kind in InputKind]
    assert 0 in trips and 1 in trips and max(trips) >= 3 and min(trips) >= 0


def test_integers_are_within_what_their_kind_says() -> None:
    def ends(kind: InputKind, dtype: str = "int32") -> tuple[int, int]:
        values = drawn(kind, (2000,), dtype)
        return int(values.min()), int(values.max())

    assert ends(InputKind.ORDINARY) == (0, 9) and ends(InputKind.NEGATIVE) == (-10, 9)
    assert ends(InputKind.NEGATIVE, "uint32") == (0, 9) and ends(InputKind.SMALL) == (0, 1)
    assert ends(InputKind.ZEROS) == (0, 0) and ends(InputKind.LARGE)[1] > 900
    assert ends(InputKind.ORDINARY, "int8") == (-128, 127) and ends(InputKind.SMALL, "uint8") == (0, 255)
    assert set(drawn(InputKind.LARGE, (99,), "int32", calm=1).tolist()) == {0, 1}
    assert set(drawn(InputKind.LARGE, (99,), "int32", calm=2).tolist()) == {1}


def test_what_decides_sizes_is_drawn_anew_with_each_number() -> None:
    first, second = (drawn(InputKind.ORDINARY, (30,), "int64", calm, role=Role.SIZES) for calm in (3, 4))
    assert not np.array_equal(first, second)
    assert set(np.abs([first, second]).ravel().tolist()) == {0, 1, 2, 3, 4}


def test_sizes_that_the_model_states_are_as_likely_as_small_ones_together() -> None:
    found = sizes((3000,), np.dtype(np.int64), np.random.default_rng(0), (17, 23))
    share = {n: float((found == n).mean()) for n in (17, 23)}
    assert all(0.3 < part < 0.37 for part in share.values())
    assert set(found.tolist()) == {17, 23, *range(-4, 5)}
    assert set(sizes((99,), np.dtype(bool), np.random.default_rng(0)).tolist()) == {True, False}


def test_boxes_are_corners_and_centres_in_turn_and_overlap() -> None:
    centres, corners = (drawn(kind, (1, 60, 4), role=Role.BOXES)[0] for kind in (InputKind.ORDINARY, InputKind.LARGE))
    assert ((centres[:, 2:] >= 0.8) & (centres[:, 2:] <= 1.6)).all()
    extent = corners[:, 2:] - corners[:, :2]
    assert ((extent > 0.79) & (extent < 1.61)).all() and corners[:, :2].max() > 3 and corners[:, :2].min() < 0.4
    # A tensor of another width is not one of boxes.
    assert drawn(InputKind.ZEROS, (1, 60, 5), role=Role.BOXES).any() == np.False_


@given(
    st.dictionaries(st.sampled_from("xzw"), st.lists(st.integers(1, 600), max_size=5), min_size=1),
    st.sampled_from([0, 3]),
    st.integers(1, 30),
    st.sets(st.sampled_from([16, 64, 100, 512])),
)
def test_schemes_keep_what_is_equal_equal_and_end_with_the_sizes_of_the_network(
    lists: dict[str, list[int]], batch: int, extent: int, bound: set[int]
) -> None:
    shapes = {name: tuple(shape) for name, shape in lists.items()}
    made = list(schemes(shapes, batch, extent, bound))
    assert made[-1] == shapes and len({str(scheme) for scheme in made}) == len(made)
    whole = sum(int(np.prod(shape)) for shape in shapes.values())
    if whole <= SMALL_ELEMENTS and not batch:
        assert made == [shapes]
    for scheme in made:
        assert scheme.keys() == shapes.keys()
        became: dict[int, int] = {}
        for name, shape in scheme.items():
            assert len(shape) == len(shapes[name])
            for axis, (small, n) in enumerate(zip(shape, shapes[name], strict=True)):
                assert small <= n or (axis == 0 and small == batch)
                if axis >= 2:
                    # A window must still fit, and the sizes of one kind stay of one kind.
                    assert became.setdefault(n, small) == small and (small == n or small >= extent)


def test_sizes_are_made_small_along_places_and_not_along_channels() -> None:
    (small, *_) = schemes({"x": (1, 96, 200, 208)}, 0, 1, ())
    assert small["x"][:2] == (1, 96) and max(small["x"][2:]) <= 32
    (sequence, *_) = schemes({"x": (1, 4096, 96)}, 0, 1, ())
    assert sequence["x"][0] == 1 and sequence["x"][1] <= 32
    (volume, *_) = schemes({"x": (1, 2, 64, 64, 64)}, 0, 1, ())
    assert max(volume["x"][2:]) <= 8


def test_sizes_that_constants_have_are_kept_at_first_and_then_made_small_too() -> None:
    kept, smaller, real = schemes({"x": (1, 3, 512, 400)}, 0, 1, {512})
    assert kept["x"][2] == 512 and kept["x"][3] < 400
    assert max(smaller["x"][2:]) < 400 and real["x"] == (1, 3, 512, 400)


def test_multiples_stay_multiples() -> None:
    (small, *_) = schemes({"x": (1, 8, 256, 128), "z": (1, 8, 128, 64)}, 0, 1, ())
    assert small["x"][2] == 2 * small["x"][3] == 2 * small["z"][2] == 4 * small["z"][3]


def test_a_batch_comes_before_the_sizes_alone() -> None:
    assert [scheme["x"] for scheme in schemes({"x": (1, 4)}, 3, 1, ())] == [(3, 4), (1, 4)]
    assert [scheme["x"] for scheme in schemes({"x": ()}, 3, 1, ())] == [()]


def test_an_axis_that_only_values_decide_has_a_size() -> None:
    assert next(schemes({"x": (None, 4)}, 0, 1, ()))["x"] == (5, 4)
