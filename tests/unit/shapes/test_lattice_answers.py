"""What the lattice answers of a network, held to every combination of its sizes one by one."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.sizes import parse, save
from trtconv.core.dims import Range
from trtconv.shapes.lattice import SizeLattice, Sizes, first_faults, together
from trtconv.shapes.lattice.tables import Table
from trtconv.shapes.report import SizesRequest, sizes

Point = dict[str, int]

ROWS = "g (float[1,h,w] x) => (float[a,b] y) <int64[2] s = {{-1,{}}}> {{ y = Reshape (x, s) }}"
NETS = {
    "multiples of both": """g (float[1,1,h,w] x) => (float[a,b,c,d] y, float[e,f,g,i] z) {
        y = SpaceToDepth <blocksize = 2> (x) z = SpaceToDepth <blocksize = 3> (x) }""",
    "one after another": """g (float[1,1,h,8] x) => (float[a,b,c,d] y) {
        t = SpaceToDepth <blocksize = 4> (x) y = SpaceToDepth <blocksize = 2> (t) }""",
    "the same": "g (float[h,2] x, float[w,2] z) => (float[a,b] y) { y = Concat <axis = 1> (x, z) }",
    "the same or 1": "g (float[h,2] x, float[w,2] z) => (float[a,b] y) { y = Add (x, z) }",
    "tied and of multiples": """g (float[1,1,h,4] x, float[1,1,w,4] z) => (float[a,b,c,d] y) {
        p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) q = SpaceToDepth <blocksize = 2> (z)
        y = Concat <axis = 1> (p, q) }""",
    "three of a kind": """g (float[h,2] x, float[w,2] z, float[n,2] v) => (float[a,b] y) {
        y = Concat <axis = 1> (x, z, v) }""",
    "two tied and one alone": """g (float[h,2] x, float[w,2] z, float[1,1,n,5] v) => (float[a,b] y, float[c,d,e,f] u) {
        y = Concat <axis = 1> (x, z) u = SpaceToDepth <blocksize = 5> (v) }""",
    "sum": """g (float[h,2] x, float[w,2] z, float[n,2] v) => (float[a,b] y) {
        t = Concat <axis = 0> (x, z) y = Concat <axis = 1> (t, v) }""",
    "a product": ROWS.format(12),
    "a product of what has a rule": """g (float[1,1,h,w] x) => (float[a,b,c,d] y, float[e,f] z) <int64[2] s = {-1,24}> {
        y = SpaceToDepth <blocksize = 2> (x) z = Reshape (x, s) }""",
    "nothing fits": "g (float[1,h,9] x) => (float[a,b] y) <int64[2] s = {7,7}> { y = Reshape (x, s) }",
    "computed": 'g (float[1,1,"4*h",w] x) => (float[a,b] y) <int64[2] s = {-1,24}> { y = Reshape (x, s) }',
}
SPANS = [(3, 12), (1, 9), (6, 8), (10, 14)]


def accepted(sizes: Sizes, spans: dict[str, tuple[int, int]]) -> list[Point]:
    points = [
        dict(zip(spans, point, strict=True))
        for point in itertools.product(*(range(low, high + 1) for low, high in spans.values()))
    ]
    faults = first_faults(sizes.run(points).checks, len(points))
    return [point for point, fault in zip(points, faults, strict=True) if fault is None]


def spans_of(sizes: Sizes, ends: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Returns ranges that differ from one another."""
    return {name: (ends[0], ends[1] + at) for at, name in enumerate(sizes.names)}


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond the ranges is looked at as well, and would be most of the work."""
    monkeypatch.setattr(importlib.import_module("trtconv.shapes.lattice.solve"), "_MARGIN", 16)


@pytest.mark.parametrize("ends", SPANS)
@pytest.mark.parametrize("name", NETS)
def test_sizes_are_those_that_some_combination_has(name: str, ends: tuple[int, int]) -> None:
    sizes = Sizes(parse(NETS[name]))
    spans = spans_of(sizes, ends)
    lattice, good = sizes.lattice(spans), accepted(sizes, spans)
    assert lattice.exact
    assert lattice.empty == (not good)
    for dim, (low, high) in spans.items():
        valid = lattice.dims[dim].valid
        found = set(range(low, high + 1)) if valid is None else set(valid)
        assert found == {point[dim] for point in good} or not good
        assert (valid is None) == (len(found) == high - low + 1)
    if name == "computed":
        assert lattice.dims["4*h"].valid in (None, tuple(sorted({4 * point["h"] for point in good})))
        assert (lattice.dims["4*h"].min, lattice.dims["4*h"].max) == (4 * spans["h"][0], 4 * spans["h"][1])
    assert_imposed(sizes, lattice, spans, good)


def assert_imposed(sizes: Sizes, lattice: SizeLattice, spans: dict[str, tuple[int, int]], good: list[Point]) -> None:
    """Nodes are blamed where something is refused, and shown with sizes that are."""
    assert bool(lattice.imposed or lattice.joint) == (len(good) < np.prod([b - a + 1 for a, b in spans.values()]))
    middle = {name: sum(span) // 2 for name, span in spans.items()}
    for each in lattice.imposed:
        shown = {name: int(size) for name, size in re.findall(r"([hwn]) (\d+)", each.evidence.split(" with ")[-1])}
        assert set(shown) >= set(each.dims)
        assert all(spans[name][0] <= size <= spans[name][1] for name, size in shown.items())
        rest = [{**middle, **point, **shown} for point in (good or [middle])]
        assert all(first_faults(sizes.run(rest).checks, len(rest))), each.evidence


@pytest.mark.parametrize("up", [True, False, None])
@pytest.mark.parametrize("name", ["multiples of both", "the same", "the same or 1", "two tied and one alone"])
def test_sizes_are_moved_to_some_that_go_together(name: str, up: bool | None) -> None:
    sizes = Sizes(parse(NETS[name]))
    spans = spans_of(sizes, (4, 10))
    lattice = sizes.lattice(spans)
    good = accepted(sizes, dict.fromkeys(spans, (1, 30)))
    for asked in itertools.product(range(4, 11, 3), repeat=len(spans)):
        point = dict(zip(spans, asked, strict=True))
        moved = lattice.rounded(point, up=up)
        assert moved in good
        for table in lattice.tables:
            # The nearest: what is tied by the sum of distances, larger ones first.
            own = [{dim: each[dim] for dim in table.columns} for each in good]
            near = [each for each in own if fits(each, point, up)] or own
            best = min(sum(abs(each[dim] - point[dim]) for dim in each) for each in near)
            mine = {dim: moved[dim] for dim in table.columns}
            assert mine in near
            assert sum(abs(mine[dim] - point[dim]) for dim in mine) == best


def fits(moved: Point, asked: Point, up: bool | None) -> bool:
    return up is None or all(size >= asked[dim] if up else size <= asked[dim] for dim, size in moved.items())


def test_of_two_as_near_the_larger_is_taken() -> None:
    table = Table({"a": np.array([2, 6, 4]), "b": np.array([2, 6, 9])})
    lattice = SizeLattice({}, tables=(table,))
    assert lattice.rounded({"a": 4, "b": 4}, up=None) == {"a": 6, "b": 6}
    assert lattice.rounded({"a": 4, "b": 4}, up=False) == {"a": 2, "b": 2}
    # Where none is larger, the nearest.
    assert lattice.rounded({"a": 7, "b": 7}, up=True) == {"a": 6, "b": 6}
    assert lattice.rounded({"a": 1, "b": 1, "c": 5}, up=False) == {"a": 2, "b": 2, "c": 5}
    assert SizeLattice({}, tables=(table.take([]),)).rounded({"a": 7, "b": 7}, up=True) == {"a": 7, "b": 7}


def test_neighbours_are_told_of_those_that_are_refused() -> None:
    lattice = Sizes(parse(NETS["multiples of both"])).lattice({"h": (5, 30), "w": (5, 30)})
    assert lattice.nearest({"h": 6, "w": 18}) == {}
    assert lattice.nearest({"h": 7, "w": 18}) == {"h": {"7": [6, 12]}}
    assert lattice.nearest({"h": 11, "w": 31}) == {"h": {"11": [6, 12]}, "w": {"31": [30, 36]}}


@pytest.mark.parametrize("name", ["a product", "sum", "a product of what has a rule"])
def test_of_more_combinations_than_are_tried_some_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said then is true of what was tried, and is said to be no more."""
    monkeypatch.setattr(together, "_GRID", 20)
    monkeypatch.setattr(together, "_SAMPLES", 40)
    sizes = Sizes(parse(NETS[name]))
    spans = spans_of(sizes, (6, 26))
    lattice, good = sizes.lattice(spans), accepted(sizes, spans)
    assert not lattice.exact
    for dim in spans:
        answer, each = lattice.dims[dim], {point[dim] for point in good}
        assert answer.valid is None or set(answer.valid) <= each
        assert {size for size in range(spans[dim][0], spans[dim][1] + 1) if answer.accepts(size)} >= each
    assert not lattice.empty
    assert lattice.imposed
    assert_imposed(sizes, lattice, spans, good)


def test_one_combination_that_fits_is_no_rule() -> None:
    """Of a million combinations of three lengths, one of them the sum of the others, one was met by chance."""
    lattice = Sizes(parse(NETS["sum"])).lattice(dict.fromkeys("hwn", (1, 1_000)))
    assert not lattice.exact
    assert all(lattice.dims[dim].accepts(size) for dim, size in {"h": 3, "w": 77, "n": 80}.items())


def test_where_none_that_fits_was_met_nothing_is_refused(tmp_path: Path) -> None:
    path = save(NETS["sum"], tmp_path / "m.onnx")
    bounds = {"h": Range(1, 400, 1_000), "w": Range(1, 400, 1_000), "n": Range(1_985, 1_990, 1_995)}
    found = sizes(SizesRequest(path, bounds))
    assert (found.exit_code, found.memory, found.nearest) == (0, None, {})
    assert not found.lattice.exact
    assert found.lattice.rounded({"h": 5, "w": 6, "n": 1_990}, up=None) == {"h": 5, "w": 6, "n": 1_990}


def test_a_rule_of_each_is_told_apart_from_one_of_both() -> None:
    text = """g (float[1,2,h,w] x) => (float[a,b] y) <int64[2] u = {-1,32}, int64[2] p = {1,2}, int64[1] f = {4}> {
        s = Shape (x) z, n, h1, w1 = Split <axis = 0> (s) hq = Div (h1, f) wq = Div (w1, f)
        t = Concat <axis = 0> (p, hq, f, wq, f) r = Reshape (x, t) y = Reshape (r, u) }"""
    lattice = Sizes(parse(text)).lattice({"h": (8, 500), "w": (8, 500)})
    assert (lattice.exact, lattice.joint) == (False, ())
    assert [lattice.dims[dim].describe() for dim in "hw"] == ["multiples of 4 from 8 to 500"] * 2


def test_of_as_many_as_are_tried_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(parse(NETS["a product"]))
    for most, exact in ((100, True), (99, False)):
        monkeypatch.setattr(together, "_GRID", most)
        assert sizes.lattice({"h": (5, 14), "w": (5, 14)}).exact == exact


def grids() -> Iterator[tuple[list[int], list[int]]]:
    yield [4, 4], [1, 2]
    yield [3, 7], [0, 6]
    yield [2, 5, 3], [1, 0, 2]


@pytest.mark.parametrize(("counts", "middle"), [*grids()])
def test_what_is_tried_has_every_row_and_the_diagonal(counts: list[int], middle: list[int]) -> None:
    picks = together._sampled(counts, middle)
    found = set(zip(*(pick.tolist() for pick in picks), strict=True))
    for axis, count in enumerate(counts):
        assert {tuple(line if at == axis else row for at, row in enumerate(middle)) for line in range(count)} <= found
    assert {tuple(min(n, count - 1) for count in counts) for n in range(max(counts))} <= found
    assert all(0 <= n < count for point in found for n, count in zip(point, counts, strict=True))
    assert len(found) == np.prod(counts), "small ones are met by chance"


BRANCHED = """g (float[1,1,h,6] x, float[1,1,w,6] z) => (float[a,b,c,d] y)
    <int64 two = {{2}}, int64 lim = {{{limit}}}> {{
    s = Shape (x) n = Gather (s, two) t = Shape (z) m = Gather (t, two) k = Add (n, m) c = Less (k, lim)
    y = If (c) <
        then_branch = p () => (float[p,q,r,s] u) {{ u = SpaceToDepth <blocksize = 2> (x) }},
        else_branch = e () => (float[p,q,r,s] v) {{ v = SpaceToDepth <blocksize = 3> (x) }}> }}"""


@pytest.mark.parametrize(("limit", "step"), [(1_000, 2), (0, 3)])
def test_a_branch_that_all_sizes_take(limit: int, step: int) -> None:
    lattice = Sizes(parse(BRANCHED.format(limit=limit))).lattice({"h": (4, 20), "w": (4, 20)})
    assert lattice.dims["h"].step == step
    assert lattice.dims["w"].valid is None


def test_a_branch_that_all_sizes_in_range_take_and_that_never_works() -> None:
    """Beyond the range the other branch is taken, so that it shows on combinations in range alone."""
    # What is asked of the product of both has them looked at together.
    text = BRANCHED.replace("<int64 two", "<int64[1] one = {{1}}, int64 two").replace(
        "y = If",
        "p = Transpose <perm = [0,1,3,2]> (z) q = MatMul (x, p) f = Flatten (q) best, at = TopK (f, one) y = If",
    )
    text = text.replace("u = SpaceToDepth <blocksize = 2> (x)", "u = Transpose <perm = [0]> (x)")
    lattice = Sizes(parse(text.format(limit=41))).lattice({"h": (4, 20), "w": (4, 20)})
    assert lattice.empty
    assert [lattice.dims[name].valid for name in "hw"] == [(), ()]


def test_a_branch_that_some_sizes_take_is_not_known() -> None:
    lattice = Sizes(parse(BRANCHED.format(limit=24))).lattice({"h": (4, 20), "w": (4, 20)}, {"h": 5, "w": 5})
    assert not lattice.exact
    assert [name.split()[0] for name in lattice.unknown] == ["If"]


@given(st.integers(1, 40), st.integers(0, 30), st.integers(1, 40))
def test_sizes_that_were_asked_for_beside_a_range(low: int, more: int, also: int) -> None:
    """They may lie anywhere; what is said of the range stays what it is."""
    sizes = Sizes(parse(NETS["multiples of both"]))
    spans = {"h": (low, low + more), "w": (low, low + more)}
    lattice = sizes.lattice(spans, {"h": low}, {"w": [also]})
    inside = tuple(n for n in range(low, low + more + 1) if n % 6 == 0)
    assert lattice.dims["h"].valid == (None if len(inside) == more + 1 else inside)
    around = [n for n in range(max(1, low - 16), low + more + 17) if n % 6 == 0]
    assert list(lattice.dims["h"].around) == around


def test_each_dimension_has_its_own_node_where_two_products_are_asked_for() -> None:
    """Of h x w and n x k, halved and doubled, or by three: each side is a multiple, and a node says which."""
    branch = """p{0} = MaxPool <kernel_shape = [{0},{0}], strides = [{0},{0}]> ({1})
        q{0} = Resize <mode = "nearest"> (p{0}, , r{0}) f{0} = Flatten (q{0}) g{0} = Flatten ({1})
        {2} = Concat <axis = 0> (f{0}, g{0})"""
    text = f"""g (float[1,1,h,w] x, float[1,1,n,k] z) => (float[a,b] y, float[c,d] u)
        <float[4] r2 = {{1,1,2,2}}, float[4] r3 = {{1,1,3,3}}> {{
        {branch.format(2, "x", "y")} {branch.format(3, "z", "u")} }}"""
    lattice = Sizes(parse(text)).lattice(dict.fromkeys("hwnk", (3, 12)))
    causes = {cause.dims: (cause.location.index, cause.needs) for cause in lattice.imposed}
    assert causes == {
        ("h",): (4, "a multiple of 2"),
        ("w",): (4, "a multiple of 2"),
        ("n",): (9, "a multiple of 3"),
        ("k",): (9, "a multiple of 3"),
    }
    assert all(f"{dim} " in cause.evidence for cause in lattice.imposed for dim in cause.dims)
