"""Sizes that a network computes from two others, in every way that shapes are computed: what is said of them is so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.sizes import Brute, parse
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Num, SizeLattice, Sizes, first_faults

CONSTANTS = (0, 1, 2, 3, 5, 7, 9, 20, 40)
Points = list[dict[str, int]]


@st.composite
def expressions(draw: st.DrawFn, lines: list[str], depth: int) -> str:
    """Returns the name of a number, and adds the nodes that compute it."""
    if not depth:
        return draw(st.sampled_from(["h1", "w1", "h1", "w1", *(f"k{n}" for n in CONSTANTS[2:])]))
    a, b = draw(expressions(lines, depth - 1)), draw(expressions(lines, depth - draw(st.integers(1, depth))))
    name = f"t{len(lines)}"
    op = draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min", "Div", "Mod", "Where"]))
    if op == "Where":
        compared = draw(st.sampled_from(["Less", "Greater", "Equal", "LessOrEqual"]))
        lines.append(f"c{name} = {compared} ({a}, {b})")
        one, two = draw(st.sampled_from([a, "h1", "k7"])), draw(st.sampled_from([b, "w1", "k9"]))
        lines.append(f"{name} = Where (c{name}, {one}, {two})")
    else:
        b = draw(st.sampled_from(["k2", "k3", "k5", "k40"])) if op in ("Div", "Mod") else b
        lines.append(f"{name} = {op} ({a}, {b})")
    return name


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Two vectors whose lengths are computed, which are to fit each other."""
    lines: list[str] = []
    one, two = draw(expressions(lines, draw(st.integers(1, 3)))), draw(expressions(lines, draw(st.integers(0, 2))))
    return text(lines, one, two, draw(st.sampled_from(["Add (z, v)", "Sub (v, z)", "Concat <axis = 0> (z, v)"])))


def text(lines: Sequence[str], one: str, two: str, joined: str = "Add (z, v)") -> str:
    constants = " ".join(f"k{n} = Constant <value_ints = [{n}]> ()" for n in CONSTANTS)
    return f"""g (float[1,1,h,w] x) => (float[e] q, float[a,b,c,d] y) <float[1] one = {{1}}> {{
        {constants} s = Shape (x) h1 = Gather <axis = 0> (s, k2) w1 = Gather <axis = 0> (s, k3) {" ".join(lines)}
        o = Max ({one}, k0) o1 = Add (o, k1) z = Expand (one, o1)
        p = Max ({two}, k0) p1 = Add (p, k1) v = Expand (one, p1)
        q = {joined} y = Relu (x) }}"""


SPANS = st.tuples(st.sampled_from([1, 5, 10, 30]), st.sampled_from([0, 6, 20])).map(lambda s: (s[0], s[0] + s[1]))


def grid(h: tuple[int, int], w: tuple[int, int]) -> Points:
    return [{"h": a, "w": b} for a in range(h[0], h[1] + 1) for b in range(w[0], w[1] + 1)]


BOTH_LARGE = (
    "a = Less (h1, k5)",
    "b = Where (a, k7, k9)",
    "c = Less (w1, k5)",
    "d = Where (c, k7, k9)",
)
"""Each is one number at large sizes, so that there the sum depends on nothing."""
BRANCH = (
    "m = Sub (h1, k20)",
    "n = Sub (w1, k20)",
    "t = Min (m, n)",
    "c = Greater (t, k0)",
    "u = If (c) <then_branch = f () => (int64[1] r) { r = Identity (k7) },"
    " else_branch = e () => (int64[1] s3) { s3 = Identity (k3) }>",
)
"""Another branch where both sizes are above 20, which no line through the middle is."""
BESIDE_11 = ("e = Add (k9, k2)", "m = Sub (h1, e)", "n = Sub (w1, e)", "t = Mul (m, n)")
"""0 wherever one of the sizes is 11, in the middle of 1 to 21."""


@settings(max_examples=150, deadline=None)
@given(programs(), SPANS, SPANS)
@example(text(["m = Mod (h1, k5)", "c = Less (m, w1)", "t = Where (c, k7, k9)"], "t", "w1"), (30, 36), (30, 30))
@example(text(["m = Sub (k9, h1)", "c = Less (w1, m)", "t = Where (c, w1, k9)"], "h1", "t"), (1, 21), (1, 21))
@example(text(["m = Sub (h1, k5)", "n = Min (m, k0)", "t = Mod (n, k2)"], "t", "w1"), (10, 30), (10, 16))
@example(text(["t = Div (h1, k5)"], "w1", "t"), (1, 7), (1, 1))
@example(text([*BOTH_LARGE, "t = Add (b, d)"], "t", "k20"), (10, 16), (10, 16))
@example(text(["m = Sub (h1, k20)", "n = Sub (w1, k20)", "t = Min (m, n)"], "t", "k3"), (1, 40), (1, 40))
@example(text(BRANCH, "u", "k3"), (1, 40), (1, 40))
@example(text([*BESIDE_11, "u = Mul (t, k2)"], "t", "u"), (1, 21), (1, 21))
def test_what_is_said_of_two_sizes_is_so(program: str, h: tuple[int, int], w: tuple[int, int]) -> None:
    sizes, points = Sizes(parse(program)), grid(h, w)
    faults = first_faults(sizes.run(points).checks, len(points))
    lattice = sizes.lattice({"h": h, "w": w})
    assert_said(lattice, {"h": h, "w": w}, points, [p for p, f in zip(points, faults, strict=True) if f is None])


def assert_said(lattice: SizeLattice, spans: dict[str, tuple[int, int]], points: Points, good: Points) -> None:
    """Compares what the lattice says with the combinations that are accepted."""
    if not lattice.exact:
        return
    assert lattice.empty == (not good)
    for name, (low, high) in spans.items() if good else ():
        valid = lattice.dims[name].valid
        assert set(range(low, high + 1) if valid is None else valid) == {point[name] for point in good}
    assert bool(lattice.joint or lattice.imposed) == (len(good) < len(points)), "what is refused has a reason"
    alone = [{point[name] for point in good} for name in spans]
    if good and len(good) < len(alone[0]) * len(alone[1]):
        assert lattice.joint or any(len(each.dims) > 1 for each in lattice.imposed), "sizes are tied"


@settings(max_examples=60, deadline=None)
@given(programs(), SPANS, SPANS)
@example(text(["c = Less (h1, w1)", "t = Where (c, k7, k9)"], "t", "k3"), (1, 7), (1, 7))
def test_numbers_know_what_they_depend_on_and_are_those_of_each_size_alone(
    program: str, h: tuple[int, int], w: tuple[int, int]
) -> None:
    model = parse(program)
    sizes, points = Sizes(model), grid(h, w)
    trial = sizes.run(points, keep=True)
    shape = len(range(h[0], h[1] + 1)), len(range(w[0], w[1] + 1))
    for name, tensor in trial.tensors.items():
        for num in [*(tensor.shape or ()), *(() if tensor.data is None else tensor.data.flat)]:
            assert_depends(name, num, shape, sizes)
    assert_run(model, points, trial.tensors["q"].shape, first_faults(trial.checks, len(points)))


def assert_depends(name: str, num: Num, shape: tuple[int, int], sizes: Sizes) -> None:
    if not isinstance(num.value, np.ndarray):
        return
    values = np.broadcast_to(num.value, (shape[0] * shape[1],)).reshape(shape)
    for axis, dim in enumerate("hw"):
        if np.any(values != values.take([0], axis)):
            assert num.mask >> sizes.names.index(dim) & 1, f"{name} depends on {dim}"


def assert_run(model: OnnxModel, points: Points, shape: list[Num] | None, faults: Sequence[object]) -> None:
    """Compares some sizes with what ONNX Runtime computes there."""
    brute = Brute(model)
    assert shape is not None
    for row in range(0, len(points), max(1, len(points) // 12)):
        made = brute.shape(points[row])
        assert (made is None) == (faults[row] is not None), points[row]
        if made is not None:
            assert made == tuple(int(np.broadcast_to(num.value, (len(points),))[row]) for num in shape)


@pytest.mark.parametrize("asked", [{}, {"h": [777], "w": [888]}])
def test_pairs_with_a_size_of_1_are_never_left_out_unsaid(asked: dict[str, list[int]]) -> None:
    """More of them than can be looked at: what is left out is said to be, and each size has a partner."""
    model = parse(text(["t = Mod (h1, k2)"], "t", "w1"))
    lattice = Sizes(model).lattice({"h": (1, 900), "w": (1, 900)}, also=asked)
    assert not lattice.exact
    even = set(range(2, 901, 2))
    assert even <= set(lattice.dims["h"].around)
    assert set(range(1, 901)) <= set(lattice.dims["w"].around)
    assert lattice.rounded({"h": 900, "w": 900}, up=None) == {"h": 900, "w": 900}
