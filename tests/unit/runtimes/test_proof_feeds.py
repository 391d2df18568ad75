"""At which sizes a piece is run: small ones that leave what is bound, and its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.runtimes.proof.feeds import SMALL_ELEMENTS, schemes


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
        changed = {n: small for n, small in became.items() if small != n}
        step = 4 if max(map(len, shapes.values())) > 4 else 8
        assert all(n > 8 for n in changed)
        # Divided by one factor, or each by itself: then none becomes another, and all leave the rest that they left.
        if len({n / small for n, small in changed.items()}) > 1:
            assert all((n - small) % step == 0 for n, small in changed.items())
            assert len(set(became.values())) == len(became)


@pytest.mark.parametrize(
    ("shape", "extent", "small"),
    [
        ((1, 1, 128, 128), 1, (128, 128)),  # As many as run at their own sizes, and more.
        ((1, 1, 128, 129), 1, (8, 9)),
        ((1, 1, 131, 127), 1, (11, 15)),
        ((1, 1, 132, 140), 1, (12, 20)),
        ((1, 1, 260, 252), 1, (20, 12)),
        ((1, 1, 9, 4000), 1, (9, 8)),
        ((1, 1, 8, 4000), 1, (8, 8)),
        ((1, 1, 133, 141), 9, (21, 29)),
        ((1, 1, 128, 256), 9, (16, 32)),
        ((1, 1, 16, 2048), 17, (16, 24)),
        ((1, 1, 256, 2048), 1, (8, 64)),
        ((1, 1, 256, 4096), 1, (8, 16)),
        ((1, 1, 64, 65, 8), 1, (4, 5, 8)),
        ((1, 1, 64, 65, 12), 5, (16, 9, 8)),
    ],
)  # fmt: skip
def test_sizes_become_the_smallest_that_leave_the_rest_or_parts_of_one_factor(
    shape: tuple[int, ...], extent: int, small: tuple[int, ...]
) -> None:
    first = next(schemes({"x": shape}, 0, extent, ()))["x"]
    assert first == (1, 1, *small)


def test_sizes_are_made_small_along_places_and_not_along_channels() -> None:
    (small, *_) = schemes({"x": (1, 96, 200, 208)}, 0, 1, ())
    assert small["x"][:2] == (1, 96) and max(small["x"][2:]) <= 32
    assert all(scheme["x"][1] == 96 for scheme in schemes({"x": (1, 96, 200, 208)}, 0, 1, {200}))
    (sequence, *_) = schemes({"x": (1, 4096, 96)}, 0, 1, ())
    assert sequence["x"][0] == 1 and sequence["x"][1] <= 32
    (batched, *_) = schemes({"x": (512, 64, 96)}, 0, 1, ())
    assert batched["x"][0] == 512 and max(batched["x"][1:]) <= 32
    (volume, *_) = schemes({"x": (1, 2, 64, 64, 64)}, 0, 1, ())
    assert max(volume["x"][2:]) <= 8


def test_sizes_that_constants_have_are_kept_at_first_and_then_made_small_too() -> None:
    kept, smaller, real = schemes({"x": (1, 3, 512, 400)}, 0, 1, {512})
    assert kept["x"][2] == 512 and kept["x"][3] < 400
    assert max(smaller["x"][2:]) < 400 and real["x"] == (1, 3, 512, 400)


def test_multiples_stay_multiples() -> None:
    (small, *_) = schemes({"x": (1, 8, 256, 128), "z": (1, 8, 128, 64)}, 0, 1, ())
    assert small["x"][2] == 2 * small["x"][3] == 2 * small["z"][2] == 4 * small["z"][3]


def test_what_is_small_already_is_no_part_of_the_factor() -> None:
    (small, *_) = schemes({"x": (1, 1, 96, 288), "z": (1, 1, 4, 96)}, 0, 1, ())
    assert small == {"x": (1, 1, 8, 24), "z": (1, 1, 4, 8)}


def test_a_batch_comes_before_the_sizes_alone() -> None:
    assert [scheme["x"] for scheme in schemes({"x": (1, 4)}, 3, 1, ())] == [(3, 4), (1, 4)]
    assert [scheme["x"] for scheme in schemes({"x": ()}, 3, 1, ())] == [()]


def test_an_axis_that_only_values_decide_has_a_size() -> None:
    assert next(schemes({"x": (None, 4)}, 0, 1, ()))["x"] == (5, 4)
