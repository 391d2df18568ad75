"""What each Reshape, Resize and pixel shuffle with constant sizes becomes, at both sides of what decides it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sizes import parse
from trtconv.shapes.traced.interpret import Example, matched
from trtconv.shapes.traced.repairs import Entry
from trtconv.shapes.traced.search import Baked

WITH_OTHERS = '<ir_version: 8, opset_import: ["": 18, "my": 1]>'


def points(baked: Baked) -> list[dict[str, int]]:
    return [dict(example.point) for example in baked.examples()]


def targets(baked: Baked) -> dict[str, tuple[Entry, ...]]:
    return {target.node.outputs[0]: target.new for target in baked.targets()}


def scales(baked: Baked) -> dict[str, tuple[float, ...]]:
    return {scaling.node.outputs[0]: scaling.scales for scaling in baked.scalings()}


@pytest.mark.parametrize(
    ("point", "batch", "factors"),
    [
        ({"n": 2, "h": 3}, ["n"], [(2, 1), (3, 1), (1, 2), (1, 3), (2, 2)]),
        ({"n": 2}, ["n"], [(2,), (3,)]),
        ({"h": 5, "w": 7}, [], [(2, 2), (3, 3)]),
    ],
)
def test_a_repaired_model_is_tried_at_larger_batches_and_sizes(
    point: dict[str, int], batch: list[str], factors: list[tuple[int, ...]]
) -> None:
    example = Example(point, lambda name: None, batch)
    larger = [{n: size * f for (n, size), f in zip(point.items(), row, strict=True)} for row in factors]
    assert example.multiples() == larger


def test_parts_are_halves_and_quarters_of_all_but_the_batch() -> None:
    example = Example({"n": 8, "h": 40, "w": 24}, lambda name: None, ["n"])
    assert example.parts() == [{"n": 8, "h": 20, "w": 12}, {"n": 8, "h": 10, "w": 6}]


UP = """g (float[n,2,h,w] x) => (float[a,b,c,d] y) <int64[4] s = {{1,2,{height},{width}}}> {{
    m = MaxPool <kernel_shape = [{down},{down}], strides = [{down},{down}]> (x)
    r = Resize <mode = "nearest"> ({source}, , , s) y = Concat <axis = 1> (r, {beside}) }}"""


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_an_enlargement_is_by_any_whole_number(factor: int) -> None:
    baked = Baked(parse(UP.format(height=36, width=48, down=factor, source="m", beside="x")))
    assert scales(baked) == {"r": (1, 1, factor, factor)}
    assert points(baked) == [{"n": 1, "h": 36, "w": 48}]


@pytest.mark.parametrize("factor", [2, 4])
def test_a_reduction_is_by_a_power_of_two(factor: int) -> None:
    baked = Baked(parse(UP.format(height=48 // factor, width=96 // factor, down=factor, source="x", beside="m")))
    assert scales(baked) == {"r": (1, 1, 1 / factor, 1 / factor)}


@pytest.mark.parametrize(("below", "above"), [(1, 3), (3, 2), (2, 3)])
def test_other_factors_would_be_rounded_and_stay(below: int, above: int) -> None:
    """1/3, 3/2 and 2/3, of an image of 48 x 96 whose size a Reshape tells."""
    text = f"""g (float[n,2,h,w] x) => (float[a,b,c,d] y, float[e,f,g] z)
        <int64[4] s = {{1,2,{48 // above},{96 // above}}}, int64[3] t = {{1,2,4608}}, int64[4] u = {{1,2,48,96}}> {{
        f = Reshape (x, t) z = Relu (f) k = Reshape (f, u)
        a = MaxPool <kernel_shape = [{below},{below}], strides = [{below},{below}]> (k)
        b = MaxPool <kernel_shape = [{above},{above}], strides = [{above},{above}]> (k)
        r = Resize <mode = "nearest"> (a, , , s)
        y = Concat <axis = 1> (r, b) }}"""
    baked = Baked(parse(text))
    assert {"n": 1, "h": 48, "w": 96} in points(baked)
    assert not scales(baked) and not targets(baked)


@pytest.mark.parametrize(
    ("before", "after", "scale"), [(2, 4, 2.0), (1, 2, 2.0), (4, 2, None), (2, 3, None), (3, 1, None)]
)
def test_of_channels_alone_an_enlargement_is_a_scale(before: int, after: int, scale: float | None) -> None:
    text = f"""g (float[n,{before},h,w] x) => (float[a,b,c,d] y) <int64[4] s = {{1,{after},32,48}}> {{
        r = Resize <mode = "nearest"> (x, , , s) q = ReduceMean <axes = [1]> (x) y = Concat <axis = 1> (r, q) }}"""
    baked = Baked(parse(text))
    assert points(baked) == [{"n": 1, "h": 32, "w": 48}]
    assert scales(baked) == ({} if scale is None else {"r": (1, scale, 1, 1)})


BESIDE = """g (float[n,2,h,w] x{inputs}) => (float[a,b,c,d] y, float[] z) <int64[4] s = {{1,2,32,48}}{constants}> {{
    m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) r = Resize <mode = "nearest"> (m, , , s)
    y = Concat <axis = 1> (r, x) {nodes} }}"""
STAYS = {
    "a Resize of what has no known rank": ("", "", 'q = my.Strange (x) z = Resize <mode = "nearest"> (q, , , s)'),
    "a Resize of an unknown size": (
        ", int64[1] e",
        ", int64[1] o = {0}, int64[1] k = {3}",
        "q = Slice (x, o, e, k) t = Resize (q, , , s) p = ReduceSum (t) z = Add (x, p)",
    ),
    "a Reshape of an unknown size to the rest": ("", ", int64[2] t = {-1, 96}", "q = NonZero (x) z = Reshape (q, t)"),
    "a Reshape to a shape that is given": (", float[n,5] v, int64[k] t", "", "z = Reshape (v, t)"),
    "a Resize to sizes that are given": (", float[n,2,h,w] v, int64[4] t", "", "z = Resize (v, , , t)"),
    "a Resize to as many sizes as are given": (", float[n,2,h,w] v, int64[k] t", "", "z = Resize (v, , , t)"),
    "a Resize of named axes": ("", ", int64[2] t = {32, 48}", "z = Resize <axes = [2,3]> (x, , , t)"),
    "a Resize by scales": ("", ", float[4] k = {1,1,2,2}", "z = Resize (x, , k)"),
    "a Resize of what is static": (", float[1,2,5,5] v", "", "q = Resize (v, , , s) p = ReduceSum (q) z = Add (x, p)"),
    "a Reshape of what is static": (", float[32,96] v", "", "q = Reshape (v, s) p = ReduceSum (q) z = Add (x, p)"),
    "a Reshape of a scalar": (
        "",
        ", int64[1] t = {-1}",
        "p = ReduceSum <keepdims = 0> (x) q = Reshape (p, t) z = Add (x, q)",
    ),
    "a Reshape whose batch is the rest": ("", ", int64[2] t = {-1, 2}", "z = Reshape (x, t)"),
    "a result that is a constant": ("", ", float[1] z = {5}", ""),
    "a result that is an input": (", float[n] z", "", ""),
    "a result of unknown rank": ("", "", "z = my.Strange (x)"),
    "a scalar result": ("", "", "z = ReduceSum <keepdims = 0> (x)"),
    "a Resize to the sizes of another": (", float[n,2,h,w] v", "", "t = Shape (v) z = Resize (x, , , t)"),
    "a Reshape whose zeros are its input's sizes": ("", ", int64[4] t = {0, 0, -1, 1}", "z = Reshape (x, t)"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_beside_a_repair(name: str) -> None:
    inputs, constants, nodes = STAYS[name]
    baked = Baked(parse(BESIDE.format(inputs=inputs, constants=constants, nodes=nodes), WITH_OTHERS))
    assert (scales(baked), targets(baked), baked.refusals()) == ({"r": (1, 1, 2, 2)}, {}, [])
    assert all({"n": 1, "h": 32, "w": 48}.items() <= point.items() for point in points(baked))


KEEPS_ALL = {
    "a Reshape of an unknown size": (", int64[2] t = {1, 96}", "q = NonZero (x) z = Reshape (q, t)", "Reshape"),
    "a Reshape of an unknown rank": (", int64[2] t = {1, 96}", "q = my.Strange (x) z = Reshape (q, t)", "Reshape"),
    "a target in which 0 is a size": (", int64[2] t = {1,3072}", "z = Reshape <allowzero = 1> (x, t)", "Reshape"),
    "a Resize of axes in another order": (
        ", int64[4] t = {32,48,1,2}",
        "z = Resize <axes = [2,3,0,1]> (x, , , t)",
        "Resize",
    ),
}


@pytest.mark.parametrize("name", KEEPS_ALL)
def test_a_batch_that_cannot_be_freed_keeps_all_from_being_repaired(name: str) -> None:
    constants, nodes, op = KEEPS_ALL[name]
    baked = Baked(parse(BESIDE.format(inputs="", constants=constants, nodes=nodes), WITH_OTHERS))
    assert (scales(baked), targets(baked)) == ({}, {})
    (refusal,) = baked.refusals()
    assert (refusal.node.op, refusal.node.outputs) == (op, ("z",))
    assert "an example of n 1, h 32, w 48" in refusal.why


# The sizes of x, what the dimensions of its input are called, the constant target, and what it is to become.
ENTRIES: list[tuple[tuple[int, ...], str, list[int], tuple[Entry, ...] | None]] = [
    # What has its place is 0, what is left is -1.
    ((2, 4, 6), "n,4,6", [2, 24], (0, 24)),
    ((2, 4, 6), "n,4,6", [2, 4, 6], (0, 4, 6)),
    ((2, 4, 6), "n,4,6", [2, 4, 3, 2], (0, 4, 3, 2)),
    ((1, 4, 16, 24), "n,4,h,w", [1, 4, 384], (0, 4, -1)),
    ((1, 4, 16, 24), "n,4,h,w", [1, 2, 2, 16, 24], (0, 2, 2, ("x", 2), -1)),
    ((1, 16, 24, 4), "n,h,w,4", [1, 384, 4], (0, -1, 4)),
    ((1, 16, 24, 4), "n,h,w,4", [1, 16, 24, 2, 2], (0, 0, 0, 2, 2)),
    ((1, 16, 24, 4), "n,h,w,4", [1, 16, 96], (0, 0, -1)),
    ((1, 4, 16), "n,4,h", [1, 2, 2, 16], (0, 2, 2, -1)),
    ((1, 16, 4), "n,h,4", [1, 16, 2, 2], (0, 0, 2, 2)),
    # A size that is usual, without a batch.
    ((1, 4, 64, 64), "1,4,h,w", [1, 4, 4096], (1, 4, -1)),
    ((4, 64, 64), "4,h,w", [4, 4096], (4, -1)),
    ((2, 4, 64, 64), "2,4,h,w", [8, 4096], (8, -1)),
    # Two that are joined in two places have no spelling.
    ((1, 16, 4, 24, 4), "n,h,4,w,4", [1, 64, 96], None),
    ((1, 16, 4, 24), "n,h,4,w", [1, 64, 24], (0, -1, ("x", 3))),
    ((1, 16, 24), "n,h,w", [1, 8, 2, 24], None),
]


@pytest.mark.parametrize(("shape", "dims", "target", "new"), ENTRIES)
def test_what_a_constant_target_becomes(
    shape: tuple[int, ...], dims: str, target: list[int], new: tuple[Entry, ...] | None
) -> None:

    names = dims.split(",")
    said = ",".join(map(str, target))
    text = f"""g (float[{dims}] x) => (float[] y) <int64[{len(target)}] s = {{{said}}}> {{ y = Reshape (x, s) }}"""
    baked = Baked(parse(text))
    traced = {name: size for name, size in zip(names, shape, strict=True) if not name.isdigit()}
    if new is None:
        assert not targets(baked)
    else:
        assert traced in points(baked)
        assert targets(baked) == {"y": new}


def test_where_nothing_would_be_repaired_nothing_is_refused() -> None:
    text = """g (float[n,2,h,w] x) => (float[a,b,c,d] y) <int64[4] s = {1,2,36,48}> {
        a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) b = MaxPool <kernel_shape = [3,3], strides = [3,3]> (x)
        r = Resize <mode = "nearest"> (b, , , s) y = Concat <axis = 1> (r, a) }"""
    baked = Baked(parse(text))
    assert points(baked) == [{"n": 1, "h": 72, "w": 96}]
    assert not scales(baked) and not baked.refusals()


def test_a_reshape_is_refused_though_nothing_would_be_repaired() -> None:
    text = """g (float[n,6,h,4] x) => (float[a,b,8] y, float[c,d,e,f] z)
        <int64[3] s = {1,-1,8}, int64[4] e = {1,6,16,4}> {
        y = Reshape (x, s) k = ConstantOfShape (e) z = Concat <axis = 1> (x, k) }"""
    (refusal,) = Baked(parse(text)).refusals()
    assert refusal.node.op == "Reshape" and "at another batch than 1, -1 would take it up" in refusal.why


def products(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[:n]) for n in range(len(sizes) + 1)]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(2, 6), max_size=6), st.data())
def test_sizes_are_grouped_wherever_their_products_meet(before: list[int], data: Any) -> None:
    """Of sizes above 1 there is one way: the groups end where the products from the first size on are the same."""
    after = data.draw(st.permutations(before)) if data.draw(st.booleans()) else data.draw(joined(before))
    meet = sorted(set(products(before)) & set(products(after)))
    places = [(products(before).index(product), products(after).index(product)) for product in meet]
    expected = [(range(a, b), range(c, d)) for (a, c), (b, d) in itertools.pairwise(places)]
    assert matched(before, after) == (expected, [])


@st.composite
def joined(draw: Any, sizes: list[int]) -> list[int]:
    """Draws neighbouring sizes as their products."""
    cuts = sorted({0, len(sizes), *draw(st.lists(st.integers(0, len(sizes))))})
    return [math.prod(sizes[a:b]) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize(
    ("before", "after", "groups", "left"),
    [
        ([1, 6], [6, 1], [(range(2), range(1))], [1]),
        ([6, 1], [1, 6], [(range(1), range(2))], [1]),
        ([1, 2, 1], [1, 1, 2], [(range(1), range(1)), (range(1, 2), range(1, 3))], [1]),
        ([2, 3], [2, 4], [(range(1), range(1))], [3, 4]),
        ([4], [2], [], [4, 2]),
        ([2], [4], [], [2, 4]),
        ([0], [2], [], [0, 2]),
        ([2, 5], [2], [(range(1), range(1))], [5]),
    ],
)
def test_a_size_of_one_is_in_the_group_that_it_completes(
    before: list[int], after: list[int], groups: list[tuple[range, range]], left: list[int]
) -> None:
    assert matched(before, after) == (groups, left)


SHUFFLES = {
    (0, 1, 4, 2, 5, 3): ("DepthToSpace", "CRD", (1, 5, 2, 2, 6, 4), (1, 5, 12, 8)),
    (0, 3, 4, 1, 5, 2): ("DepthToSpace", "DCR", (1, 2, 2, 5, 6, 4), (1, 5, 12, 8)),
    (0, 3, 5, 1, 2, 4): ("SpaceToDepth", "", (1, 5, 6, 2, 4, 2), (1, 20, 6, 4)),
    (0, 1, 3, 5, 2, 4): ("SpaceToDepth", "torch", (1, 5, 6, 2, 4, 2), (1, 20, 6, 4)),
}


def shuffle(
    perm: Sequence[int], split: Sequence[int], joined: Sequence[int], channels: int, outputs: str = "", nodes: str = ""
) -> Baked:
    text = f"""g (float[n,{channels},h,w] x) => (float[a,b,c,d] y{outputs})
        <int64[{len(split)}] s = {{{",".join(map(str, split))}}},
         int64[{len(joined)}] t = {{{",".join(map(str, joined))}}}> {{
        r = Reshape (x, s) q = Transpose <perm = {list(perm)}> (r) y = Reshape (q, t) {nodes} }}"""
    return Baked(parse(text))


@pytest.mark.parametrize("perm", SHUFFLES)
@pytest.mark.parametrize("batch", [-1, 0, 1, 3])
def test_a_pixel_shuffle_tells_the_sizes_at_which_it_was_traced(perm: tuple[int, ...], batch: int) -> None:
    op, mode, split, joined = SHUFFLES[perm]
    deep = op == "DepthToSpace"
    baked = shuffle(perm, (batch, *split[1:]), (batch, *joined[1:]), 20 if deep else 5)
    (found,) = baked.shuffles()
    assert (found.op, found.mode, found.block, found.channels, found.nodes) == (op, mode, 2, 5, (0, 1, 2))
    assert not baked.refusals()
    height, width = (6, 4) if deep else (12, 8)
    # What is larger goes into a batch of -1, so that the model takes all sizes.
    batches = {-1: [], 0: [1, 2, 4, 8]}.get(batch, [batch])
    assert points(baked) == [{"n": n, "h": height, "w": width} for n in batches]


CRD = (0, 1, 4, 2, 5, 3)
NO_SHUFFLE = {
    "blocks of another width": (CRD, (1, 2, 2, 3, 4, 4), (1, 2, 8, -1), 8, "", ""),
    "blocks of another width first": ((0, 3, 4, 1, 5, 2), (1, 2, 3, 2, 4, 4), (1, 2, 8, -1), 8, "", ""),
    "blocks of another width behind": ((0, 3, 5, 1, 2, 4), (1, 5, 6, 2, 4, 3), (1, 20, 6, -1), 5, "", ""),
    "blocks of another width behind channels": ((0, 1, 3, 5, 2, 4), (1, 5, 6, 2, 4, 3), (1, 20, 6, -1), 5, "", ""),
    "blocks of one": (CRD, (1, 5, 1, 1, 6, 4), (1, 5, 6, 4), 5, "", ""),
    "channels that are others": (CRD, (1, 5, 2, 2, 6, 4), (1, 5, 12, 8), 40, "", ""),
    "five dimensions": ((0, 1, 2, 4, 3), (1, 5, 4, 6, 4), (1, 5, 24, 4), 20, "", ""),
    "a result of three dimensions": (CRD, (1, 5, 2, 2, 6, 4), (1, 5, 96), 20, "", ""),
    "a split that is a result": (CRD, (1, 5, 2, 2, 6, 4), (1, 5, 12, 8), 20, ", float[e] r", ""),
    "a turn that is a result": (CRD, (1, 5, 2, 2, 6, 4), (1, 5, 12, 8), 20, ", float[e] q", ""),
    "a split that is read twice": (CRD, (1, 5, 2, 2, 6, 4), (1, 5, 12, 8), 20, ", float[e] z", "z = Relu (r)"),
    "a turn that is read twice": (CRD, (1, 5, 2, 2, 6, 4), (1, 5, 12, 8), 20, ", float[e] z", "z = Relu (q)"),
}


@pytest.mark.parametrize("name", NO_SHUFFLE)
def test_what_is_no_pixel_shuffle(name: str) -> None:
    perm, split, joined, channels, outputs, nodes = NO_SHUFFLE[name]
    assert shuffle(perm, split, joined, channels, outputs, nodes).shuffles() == []


@pytest.mark.parametrize(
    ("dims", "batch", "count"),
    [
        ("1,20,6,4", 1, 0),
        ("n,20,6,4", 1, 1),
        ("n,20,6,4", 0, 0),
        ("n,20,6,4", -1, 0),
        ("1,20,h,4", 1, 1),
        ("n,20,h,4", 0, 1),
        ("1,20,6,w", 1, 1),
    ],
)
def test_a_pixel_shuffle_is_baked_where_a_size_outside_is_dynamic(dims: str, batch: int, count: int) -> None:
    text = f"""g (float[{dims}] x, float[k] v) => (float[a,b,c,d] y)
        <int64[6] s = {{{batch},5,2,2,6,4}}, int64[4] t = {{{batch},5,12,8}}> {{
        r = Reshape (x, s) q = Transpose <perm = [0,1,4,2,5,3]> (r) y = Reshape (q, t) }}"""
    assert len(Baked(parse(text)).shuffles()) == count


def test_a_chain_that_begins_like_a_shuffle_and_ends_otherwise_is_none() -> None:
    text = """g (float[n,20,h,w] x) => (float[a,b,c,d,e,f] y) <int64[6] s = {1,5,2,2,6,4}> {
        r = Reshape (x, s) q = %s (r) y = Relu (q) }"""
    for turn in ("Transpose <perm = [0,1,4,2,5,3]>", "Relu"):
        assert Baked(parse(text % turn)).shuffles() == []


def test_a_model_with_functions_or_without_dynamic_sizes_is_left_alone() -> None:
    text = "g (float[n,4,6] x) => (float[n,24] y) <int64[2] s = {1,24}> { y = Reshape (x, s) }"
    model = parse(text)
    model.proto.functions.add(name="f", domain="my")
    assert targets(Baked(parse(text))) and not targets(Baked(model))


@pytest.mark.parametrize("declared", ["1,4,4,64", "a,4,4,b", "a,b,4,64", "1,b,c,64"])
def test_sizes_are_those_that_the_file_declares(declared: str) -> None:
    """Of 16 x 16 and 4 x 64, which both make 16 x 64 with the channels."""
    text = f"""g (float[n,h,4,w] x) => (float[a,b,c] y, float[{declared}] z)
        <int64[3] s = {{1,16,64}}> {{ z = Transpose <perm = [0,2,1,3]> (x) y = Reshape (x, s) }}"""
    assert points(Baked(parse(text))) == [{"n": 1, "h": 4, "w": 64}]
    inside = text.replace(f", float[{declared}] z)", ")").replace("{1,16,64}>", f"{{1,16,64}}, float[{declared}] z>")
    assert points(Baked(parse(inside))) == [{"n": 1, "h": 4, "w": 64}]


TIMES = """g (float[n,1,h] x, float[3,{side}] v) => (float[a,b,c] y, float[d] z)
    <int64[1] s = {{{size}}}, int64[1] low = {{{low}}}, int64[1] high = {{{high}}}, int64[1] axis = {{2}},
     float[3] k = {{1,1,2}},
     int64[6] p = {{0,0,0,0,0,1}}> {{ z = Reshape (v, s) {nodes} }}"""


def test_what_accepts_three_times_its_sizes_has_none_baked_in() -> None:
    """Odd sizes, of which none has a double: the half, doubled and one more."""
    odd = """m = MaxPool <kernel_shape = [2], strides = [2]> (x) r = Resize <mode = "nearest"> (m, , k)
        q = Pad (r, p) y = Concat <axis = 1> (q, x)"""
    baked = Baked(parse(TIMES.format(side=5, size=15, low=0, high=9, nodes=odd)))
    assert [point["h"] for point in baked.accepted([{"n": 1, "h": h} for h in range(13, 20)])] == [13, 15, 17, 19]
    assert baked.examples() == []


def test_what_accepts_twice_its_sizes_has_only_the_larger_ones_baked_in() -> None:
    small = "q = Slice (x, low, high, axis) y = Concat <axis = 1> (q, x)"
    baked = Baked(parse(TIMES.format(side=15, size=45, low=-100, high=1000, nodes=small)))
    assert [point["h"] for point in points(baked) if point["n"] == 1] == [90]


@pytest.mark.parametrize(
    ("constant", "size", "told"),
    [
        (7, 7, True),
        (7, 14, True),
        (7, 112, True),
        (7, 224, False),
        (14, 7, True),
        (112, 7, True),
        (224, 7, False),
        (15, 7, False),
    ],
)
def test_sizes_are_constants_times_and_by_powers_of_two(constant: int, size: int, told: bool) -> None:
    """Beside a constant of another node, which accepts one size alone."""
    text = f"""g (float[n,1,h] x, float[{constant}] v) => (float[a,b,c] y, float[d,e] z)
        <int64[2] s = {{1,{constant}}}, int64[3] e = {{1,1,{size}}}> {{ z = Reshape (v, s)
        k = ConstantOfShape (e) y = Concat <axis = 1> (x, k) }}"""
    assert points(Baked(parse(text))) == ([{"n": 1, "h": size}] if told else [])


@pytest.mark.parametrize(("height", "width"), [(1, 7), (5, 5), (3, 35), (35, 3)])
@pytest.mark.parametrize("stride", [4, 32])
def test_tokens_are_any_rows_and_columns_of_patches(height: int, width: int, stride: int) -> None:
    text = f"""g (float[n,3,h,w] x) => (float[n,3,c] y) <int64[3] s = {{1,3,{height * width}}}> {{
        p = MaxPool <kernel_shape = [{stride},{stride}], strides = [{stride},{stride}]> (x) y = Reshape (p, s) }}"""
    assert {"n": 1, "h": height * stride, "w": width * stride} in points(Baked(parse(text)))


def test_a_width_of_one_may_be_any_width() -> None:
    """A column of patches is a row as well: which of the two sizes is meant by the constant cannot be told of it."""
    text = """g (float[n,3,h,w] x) => (float[n,3,c] y) <int64[3] s = {1,3,7}> {
        p = MaxPool <kernel_shape = [4,4], strides = [4,4]> (x) y = Reshape (p, s) }"""
    assert {"n": 1, "h": 28, "w": 4} not in points(Baked(parse(text)))


def test_a_chain_is_written_with_what_its_first_repair_leaves() -> None:
    """Tokens that are made once: what is copied stays, and what goes back is read where the sizes still are."""
    text = """g (float[n,4,h,w] x) => (float[a,b,c,d] y)
        <int64[3] s = {1,4,384}, int64[3] t = {0,0,384}, int64[3] u = {0,0,0}, int64[4] v = {1,4,16,24}> {
        a = Reshape (x, s) b = Reshape (a, t) c = Reshape (b, u) y = Reshape (c, v) }"""
    new = targets(Baked(parse(text)))
    assert new == {"a": (0, 4, -1), "b": (0, 0, -1), "y": (0, 4, ("x", 2), -1)}


BESIDE_REST = """g (float[n,{dims}] x) => (float[] y)
    <int64[2] s = {{-1,4}}, int64[2] t = {{16,-1}}, int64[2] e = {{16,16}}> {{
    {first} r = Reshape ({source}, t) k = ConstantOfShape (e) y = Concat <axis = 0> (r, k) }}"""


@pytest.mark.parametrize(
    ("dims", "first", "source", "op"),
    [
        ("16", "", "x", "Concat"),
        # The batch and rows together are no batch.
        ("h,4", "q = Reshape (x, s)", "q", "Reshape"),
    ],
)
def test_a_batch_alone_may_stand_beside_the_rest(dims: str, first: str, source: str, op: str) -> None:
    text = BESIDE_REST.format(dims=dims, first=first, source=source)
    (refusal,) = Baked(parse(text)).refusals()
    assert refusal.node.op == op


def test_a_result_that_grows_twice_with_the_batch_is_refused() -> None:
    text = """g (float[n,4,6] x) => (float[a,b] y) <int64[2] s = {2,24}> {
        r = Reshape (x, s) t = Transpose <perm = [1,0]> (r) y = MatMul (r, t) }"""
    baked = Baked(parse(text))
    (refusal,) = baked.refusals()
    assert refusal.node.op == "MatMul" and "returns [4, 4] for twice the batch" in refusal.why
    assert not targets(baked)


@pytest.mark.parametrize(("height", "width"), [(7, 1), (1, 7), (6, 5)])
def test_tokens_of_channels_last_may_be_a_column(height: int, width: int) -> None:
    text = f"""g (float[n,3,h,w] x) => (float[n,c,3] y) <int64[3] s = {{1,{height * width},3}}> {{
        p = MaxPool <kernel_shape = [4,4], strides = [4,4]> (x) t = Transpose <perm = [0,2,3,1]> (p)
        y = Reshape (t, s) }}"""
    assert {"n": 1, "h": height * 4, "w": width * 4} in points(Baked(parse(text)))


def test_sizes_are_cheap_beside_tensors_of_which_nothing_is_known() -> None:
    text = "g (float[h,4] x) => (float[a,b] y) { t = my.Strange (x) u = NonZero (t) y = Concat <axis = 0> (x, u) }"
    baked = Baked(parse(text, WITH_OTHERS))
    assert baked.cheap([{"h": 4}, {"h": 0}, {"h": 1 << 25}]) == [{"h": 4}]


def test_a_target_behind_a_branch_whose_rank_is_not_known_is_left() -> None:
    """As a squeeze is exported whose axis may or may not be one, once the batch is free."""
    model = parse(
        """g (float[n,4,h,w] x) => (float[4,16,16] y)
        <int64[3] s1 = {1,4,256}, int64[1] axes = {0}, int64 zero = {0}, int64 one = {1}, int64[3] s2 = {4,16,16}> {
            a = Reshape (x, s1)  sh = Shape (a)  g = Gather <axis = 0> (sh, zero)  c = Equal (g, one)
            b = If (c) <then_branch = t () => (float[] p) { p = Squeeze (a, axes) },
                        else_branch = e () => (float[] q) { q = Identity (a) }>
            y = Reshape (b, s2)
        }"""
    )
    assert "y" not in targets(Baked(model))
