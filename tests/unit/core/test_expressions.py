"""Dimension names that are computed from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.sizes import assert_exact, parse
from trtconv.core import expressions
from trtconv.core.bounds import bounds_by_name, make_profile
from trtconv.core.dims import InputSpec, Range
from trtconv.core.errors import InputError
from trtconv.shapes.lattice import Num, Sizes

SIZES = [3, 8, 63, 64, 65, 900]
VALUES = {
    "Max(1, h)": SIZES,
    "Max(h, 1)": SIZES,
    "Min(64, h)": [3, 8, 63, 64, 64, 64],
    "Min(h, 64)": [3, 8, 63, 64, 64, 64],
    "Max(2, h//2)": [2, 4, 31, 32, 32, 450],
    "Max(8, Min(h, 64), h//8)": [8, 8, 63, 64, 64, 112],
    "floor(h/2) + 1": [2, 5, 32, 33, 33, 451],
    "h//(2*4)*8": [0, 8, 56, 64, 64, 896],
}


@pytest.mark.parametrize("text", VALUES)
def test_of_integers_vectors_and_numbers(text: str) -> None:
    expression = expressions.parse(text)
    assert expression is not None

    def value(size: Any) -> Any:
        found = expression.evaluate({"h": size})
        return found.value if isinstance(found, Num) else found

    assert [value(n) for n in SIZES] == VALUES[text]
    assert value(np.array(SIZES)).tolist() == VALUES[text]
    assert value(Num(np.array(SIZES), 1)).tolist() == VALUES[text]


@pytest.mark.parametrize(
    "text",
    [
        "h/0",
        "h//0",
        "h % (2 - 2)",
        "64//h",
        "8*h//w",
        "floor(h,2)",
        "floor()",
        "floor*h",
        "floor(h)*floor",
        "Max()",
        "Max + h",
        "max*batch",
        "abs(h)",
        "h**2",
        "2000000000*2000000000*h",
    ],
)
def test_plain_names(text: str) -> None:
    assert expressions.parse(text) is None


@pytest.mark.parametrize("text", ["Max(1, h)", "Max(h, 1)", "Min(64, h)", "Min(h, 64)", "Max(2, h//2)"])
def test_sizes_of_computed_dimensions(text: str) -> None:
    model = parse(
        f'g (float[1,1,h] x, float[1,1,"{text}"] z) => (float[a,b,c] y) {{'
        " r = ReduceSum <keepdims = 1> (z) y = Add (x, r) }"
    )
    assert assert_exact(model, [{"h": n} for n in range(1, 80)]) == 79
    lattice = Sizes(model).lattice({"h": (8, 100)})
    expression = expressions.parse(text)
    assert expression is not None
    values = sorted({expression.evaluate({"h": n}) for n in range(8, 101)})
    assert lattice.dims[text].valid in (None, tuple(values))
    profile = make_profile(model.inputs, {"h": Range(8, 50, 100)})
    assert profile.dims[text] == Range(values[0], expression.evaluate({"h": 50}), values[-1])


@pytest.mark.parametrize(
    ("text", "linear"),
    [("8*h", True), ("2*h + 1", True), ("Min(500, h)", False), ("h % 200", False), ("h//2*2", False)],
)
def test_only_lines_are_solved(text: str, linear: bool) -> None:
    expression = expressions.parse(text, ["h"]) or expressions.parse(f"({text})")
    assert expression is not None
    assert expression.linear is linear
    assert linear == (expression.solve(expression.evaluate({"h": 17})) == 17)


def _bounds_error(dims: tuple[int | str, ...], bounds: dict[str, Range]) -> InputError:
    with pytest.raises(InputError) as caught:
        make_profile([InputSpec("x", "float", dims)], bounds)
    return caught.value


@pytest.mark.parametrize(
    ("dims", "given", "hint"),
    [
        (("h + k",), (), "--dim h=MIN:OPT:MAX --dim k=MIN:OPT:MAX"),
        (("h + k",), ("h",), "--dim k=MIN:OPT:MAX"),
        (("h", "h + k"), (), "--dim h=MIN:OPT:MAX --dim k=MIN:OPT:MAX"),
        (("Max(1, h)",), (), "--dim h=MIN:OPT:MAX"),
        (("8*h",), (), "--dim '8*h'=MIN:OPT:MAX"),
        (("8*h", "h + k"), (), "--dim h=MIN:OPT:MAX --dim k=MIN:OPT:MAX"),
    ],
)
def test_the_hint_can_be_followed(dims: tuple[int | str, ...], given: tuple[str, ...], hint: str) -> None:
    bounds = {name: Range(8, 8, 8) for name in given}
    assert _bounds_error(dims, bounds).hint == f"Add: {hint}"
    asked = [part.partition("=")[0].strip("'") for part in hint.split("--dim ")[1:]]
    assert make_profile([InputSpec("x", "float", dims)], {**bounds, **{name: Range(8, 8, 8) for name in asked}})


def test_bounds_of_what_cannot_be_solved() -> None:
    error = _bounds_error(("Min(500, h)",), {"Min(500, h)": Range(8, 16, 500)})
    assert "--dim h=MIN:OPT:MAX" in str(error.hint)
    given = {"Min(500, h)": Range(8, 16, 500), "h": Range(8, 16, 900)}
    assert bounds_by_name([InputSpec("x", "float", ("Min(500, h)",))], given) == given
