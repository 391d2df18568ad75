"""Numbers at many sizes at once are what each operation makes of them at every size alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.shapes.lattice.number import (
    Num,
    cancel,
    ceil_div,
    combine,
    distinct,
    floor_div,
    identical,
    is_just,
    is_mixed,
    is_negative,
    larger,
    lift,
    product,
    same,
    select,
    smaller,
    truncated_div,
)
from trtconv.shapes.lattice.tensor import MAX_ELEMENTS, Tensor, boxed, map_elements

ROWS = [(h, w) for h in (1, 2, 3, 6) for w in (1, 2, 5)]
UNKNOWN = Num(None)
H, W = 1, 2


def numbers(rows: Sequence[tuple[int, int]]) -> dict[str, Num]:
    """Numbers of every kind, at some sizes h and w."""
    h, w = (Num(np.array(column, np.int64), mask) for column, mask in zip(zip(*rows, strict=True), (H, W), strict=True))
    return {
        "0": Num(0),
        "1": Num(1),
        "3": Num(3),
        "-2": Num(-2),
        "h": h,
        "w": w,
        "2h": h * 2,
        "6w": 6 * w,
        "hw": h * w,
        "4hw": h * 4 * w,
        "h+1": h + 1,
        "h-2": h - 2,
        "2-w": 2 - w,
        "h//2": h // 2,
    }


KINDS = tuple(numbers(ROWS))


def at(num: Num, count: int) -> list[Any]:
    assert num.is_known
    values: list[Any] = np.broadcast_to(num.value, count).tolist()
    return values


BINARY: dict[str, tuple[Callable[[Num, Num], Num], Callable[[int, int], int | None]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (floor_div, lambda a, b: a // b if b else None),
    "%": (lambda a, b: a % b, lambda a, b: a % (b or 1)),
    "larger": (larger, max),
    "smaller": (smaller, min),
    "truncated": (truncated_div, lambda a, b: math.trunc(a / b) if b else None),
    "less": (lambda a, b: combine(np.less, a, b), lambda a, b: a < b),
    "equal": (lambda a, b: combine(np.equal, a, b), lambda a, b: a == b),
    "chosen": (lambda a, b: select(combine(np.less, a, b), b * 2, a - 1), lambda a, b: b * 2 if a < b else a - 1),
}


@pytest.mark.parametrize("name", BINARY)
def test_two_numbers_at_every_size(name: str) -> None:
    ours, plain = BINARY[name]
    whole = numbers(ROWS)
    for one, two in itertools.product(KINDS, repeat=2):
        a, b = whole[one], whole[two]
        if name == "//" and (is_negative(a) or is_negative(b)):
            continue
        found = ours(a, b)
        values = at(found, len(ROWS))
        for x, y, value in zip(at(a, len(ROWS)), at(b, len(ROWS)), values, strict=True):
            # What is divided by 0 has no meaning.
            assert plain(x, y) in (value, None), (one, two)
        grid = np.array(values).reshape(4, 3)
        depends = H * bool((grid != grid[:1]).any()) | W * bool((grid != grid[:, :1]).any())
        assert found.mask & depends == depends, (one, two)
        assert not found.mask & ~(a.mask | b.mask), (one, two)


@pytest.mark.parametrize("name", [name for name in BINARY if name not in ("*", "//")])
@pytest.mark.parametrize("rows", [ROWS[:1], ROWS[3:5], ROWS[-1:]])
def test_what_depends_on_two_sizes_is_known_to_at_any_of_them(name: str, rows: list[tuple[int, int]]) -> None:
    """At a few sizes a choice may always come out the same. That others may choose otherwise is not forgotten."""
    ours, _ = BINARY[name]
    whole, few = numbers(ROWS), numbers(rows)
    for one, two in itertools.product(KINDS, repeat=2):
        grid = np.array(at(ours(whole[one], whole[two]), len(ROWS))).reshape(4, 3)
        if (grid != grid[:1]).any() and (grid != grid[:, :1]).any():
            assert is_mixed(ours(few[one], few[two]).mask), (one, two)


def test_a_choice_keeps_the_number_that_it_is() -> None:
    """It is then the same number elsewhere, without a comparison."""
    known = numbers(ROWS)
    h, more = known["h"], known["h+1"]
    assert larger(h, more) is more
    assert larger(more, h) is more
    assert smaller(h, more) is h
    assert smaller(more, h) is h
    assert larger(h, h) is smaller(h, h) is h
    assert larger(h, Num(1)) is h
    assert smaller(h, Num(6)) is h
    assert select(Num(True), h, more) is h
    assert select(Num(False), h, more) is more
    assert select(UNKNOWN, h, h) is h
    for made in (h + 0, 0 + h, h - 0, h * 1, h // 1, ceil_div(h, 1)):
        assert made is h


@pytest.mark.parametrize("name", BINARY)
def test_of_an_unknown_number_nothing_is_known(name: str) -> None:
    ours, _ = BINARY[name]
    h = numbers(ROWS)["h"]
    for a, b in ((Num(None, W), h), (h, Num(None, W))):
        found = ours(a, b)
        assert not found.is_known
        assert found.mask == H | W
    assert not select(Num(None, W), h, Num(2)).is_known
    masks = {"condition": 4, "a": 8, "b": 16}
    for unknown in masks:
        parts = [Num(None if part == unknown else np.arange(2) % 2 == 1, mask) for part, mask in masks.items()]
        assert (select(*parts).value, select(*parts).mask) == (None, 4 | 8 | 16), unknown


def test_kinds_of_numbers() -> None:
    vector = numbers(ROWS)["h"]
    assert (vector.constant, Num(3).constant, UNKNOWN.constant) == (False, True, False)
    assert (vector.is_known, Num(0).is_known, UNKNOWN.is_known) == (True, True, False)
    assert [is_just(num, 3) for num in (Num(3), Num(2), vector, UNKNOWN)] == [True, False, False, False]
    assert [is_negative(num) for num in (Num(-1), Num(0), vector - 3, vector - 1, UNKNOWN)] == [
        *(True, False, True, False, False),
    ]
    assert [is_mixed(mask) for mask in range(9)] == [bin(mask).count("1") > 1 for mask in range(9)]


def test_integers_of_more_than_64_bits_are_unknown() -> None:
    for plain in (2**63 - 1, -(2**63), 2**64 - 1):
        assert lift(plain).value == lift(np.array([plain]).ravel()[0]).value == plain
        assert product((Num(plain), Num(1))).value == plain
    assert not lift(2**64).is_known
    assert not product((Num(2**32), Num(2**32))).is_known
    assert product((Num(2**32), Num(2**31))).value == 2**63


def test_products_of_the_same_factors_are_the_same_and_others_are_not() -> None:
    known = numbers(ROWS)
    h, w = known["h"], known["w"]
    alike = [(h * w, w * h), (h * 2, 2 * h), (h * 2 * w, h * w * 2), (h * w * h, h * h * w), (h, h)]
    unlike = [(h * w, h * h), (h * 2, h * 3), (h * w, h * w * h), (h, w), (h * 2, h), (h * w, h * 2), (h + 1, h + 2)]
    assert [identical(a, b) for a, b in alike] == [True] * len(alike)
    assert [identical(a, b) for a, b in unlike] == [False] * len(unlike)


def test_the_same_at_every_size() -> None:
    known = numbers(ROWS)
    for one, two in itertools.product(KINDS, repeat=2):
        equal = at(known[one], len(ROWS)) == at(known[two], len(ROWS))
        assert same(known[one], known[two]) == equal
    assert same(known["h"], known["h"] + 1 - 1)
    assert same(UNKNOWN, UNKNOWN)
    assert not same(UNKNOWN, Num(None))
    assert not same(known["h"], UNKNOWN)


@pytest.mark.parametrize(
    ("above", "below", "left"),
    [
        (["h", "w"], ["hw"], ("1", "1")),
        (["4hw"], ["h"], ("4w", "1")),
        (["h", "6"], ["3", "w"], ("2h", "w")),
        (["h", "3"], ["6", "w"], ("h", "2w")),
        (["h", "4"], ["6"], ("4h", "6")),
        (["h", "h"], ["h"], ("h", "1")),
        (["h"], ["h", "h"], ("1", "h")),
        (["h", "0"], ["w"], ("0", "w")),
    ],
)
def test_common_factors_are_cancelled(above: list[str], below: list[str], left: tuple[str, str]) -> None:
    known = numbers(ROWS)
    known |= {"2": Num(2), "6": Num(6), "4": Num(4)}
    known |= {f"{n}{dim}": n * known[dim] for n in (2, 4) for dim in "hw"}
    top, bottom = cancel([known[name] for name in above], [known[name] for name in below])
    assert (at(top, len(ROWS)), at(bottom, len(ROWS))) == tuple(at(known[name], len(ROWS)) for name in left)


def test_whole_quotients_of_products_keep_their_identity() -> None:
    known = numbers(ROWS)
    h, w = known["h"], known["w"]
    assert floor_div(h * w, h) is w
    assert floor_div(h * 6, Num(6)) is h
    assert floor_div(known["4hw"], w * 4) is h
    assert at(floor_div(h * w, w * 2), len(ROWS)) == [n // 2 for n, _ in ROWS]
    assert at(floor_div(Num(np.array([0.5, 4.0]), H), Num(2)), 2) == [0, 2]


@given(st.lists(st.integers(-5, 5)))
def test_distinct_values(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@pytest.mark.parametrize(("count", "divisor"), [*itertools.product(range(-3, 9), (1, 2, 3))])
def test_division_that_rounds_up(count: int, divisor: int) -> None:
    for num in (Num(count), Num(np.array([count, 7]), H)):
        assert at(ceil_div(num, divisor), 2)[0] == math.ceil(count / divisor)


@pytest.mark.parametrize("count", [MAX_ELEMENTS, MAX_ELEMENTS + 1])
def test_elements_are_kept_where_they_are_few(count: int) -> None:
    tensor = Tensor.of_array(np.arange(count))
    assert tensor.ints == (list(range(count)) if count == MAX_ELEMENTS else None)
    assert [num.value for num in tensor.shape or ()] == [count]
    nums = Tensor([Num(count)]).nums
    assert (nums and len(nums)) == (count if count == MAX_ELEMENTS else None)
    # Each another one.
    assert not nums or not (nums[0].is_known or same(nums[0], nums[1]))


def test_elements_of_tensors() -> None:
    h = numbers(ROWS)["h"]
    three = Num(3)
    assert Tensor.of_nums([h, three]).nums == [h, three]
    assert Tensor.of_nums([h, Num(3)]).ints is None
    assert Tensor.of_nums([Num(4), Num(3)]).ints == [4, 3]
    assert Tensor.of_array(np.array(["a"])).data is None
    assert [Tensor(shape).nums for shape in (None, [], [h], [Num(2), Num(2)], [Num(-1)])] == [None] * 5
    assert Tensor([Num(0)]).nums == []
    assert Tensor(None).ints is None
    summed = map_elements(lambda a, b: a + b, boxed([h, Num(1)], (2, 1)), boxed([Num(1), Num(2)], (2,)))
    assert [[at(num, len(ROWS))[0] for num in row] for row in summed] == [[2, 3], [2, 3]]
    scalar = map_elements(lambda a: a * 2, boxed([h], ()))
    assert scalar.shape == ()
    assert at(scalar.item(), len(ROWS)) == [2 * n for n, _ in ROWS]
