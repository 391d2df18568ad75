"""What sizes tensors inside a model have, at all sizes of its inputs that matter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range, Shape, ShapeProfile
from trtconv.graph.cut_shapes import BY_VALUES, CutShapes, Seen
from trtconv.graph.divisible import Divisible
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import sizes_of
from trtconv.shapes.spread import Spread

SIZES: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "remainder": ("a{i} = Mod (h, k7)  s{i} = Add (a{i}, k1)", lambda h, w: h % 7 + 1),
    "difference": ("a{i} = Sub (h, w)  b{i} = Abs (a{i})  s{i} = Add (b{i}, k1)", lambda h, w: abs(h - w) + 1),
    "excess": ("a{i} = Sub (h, w)  b{i} = Max (a{i}, k0)  s{i} = Add (b{i}, k1)", lambda h, w: max(h - w, 0) + 1),
    "blocks": ("a{i} = Div (w, k7)  s{i} = Add (a{i}, k1)", lambda h, w: w // 7 + 1),
    "at most": ("s{i} = Min (h, k7)", lambda h, w: min(h, 7)),
    # 1 but at 23.
    "seldom": ("a{i} = Mod (h, k24)  b{i} = Div (a{i}, k23)  s{i} = Add (b{i}, k1)", lambda h, w: h % 24 // 23 + 1),
    "height": ("s{i} = Identity (h)", lambda h, w: h),
    "nearly height": ("b{i} = Mod (h, k24)  c{i} = Div (b{i}, k23)  s{i} = Add (h, c{i})", lambda h, w: h + (h == 23)),
    "fixed": ("a{i} = Sub (h, h)  s{i} = Add (a{i}, k7)", lambda h, w: 7),
    "some of none": ("a{i} = Sub (h, w)  s{i} = Abs (a{i})", lambda h, w: abs(h - w)),
}
"""What makes a size of a height and a width; what that is."""
RANGES = {"height": Range(3, 11, 40), "width": Range(2, 9, 30)}
GRID = list(itertools.product(range(3, 41), range(2, 31)))


def model_of(*kinds: str) -> OnnxModel:
    """Returns a model with a tensor of each size: t0, t1 and so on."""
    made = "  ".join(
        (SIZES[kind][0] + "  t{i} = Slice (v, k0, s{i}, k0)").format(i=number) for number, kind in enumerate(kinds)
    )
    text = f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,height,width] x) => (float[n] t0)
        <float[50] v = {{{", ".join("1" * 50)}}}, int64[1] k0 = {{0}}, int64[1] k1 = {{1}}, int64[1] k7 = {{7}},
         int64[1] k23 = {{23}}, int64[1] k24 = {{24}}, int64[1] two = {{2}}, int64[1] three = {{3}}>
        {{ d = Shape (x)  h = Gather (d, two)  w = Gather (d, three)  {made} }}"""
    return OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))


def shapes_of(model: OnnxModel, kinds: Sequence[str], *profiles: ShapeProfile) -> CutShapes:
    """Returns what is known after a run of the model, which is played."""

    def run(names: Sequence[str], points: Sequence[Mapping[str, Shape]]) -> list[Seen]:
        return [
            {
                f"t{number}": (onnx.TensorProto.FLOAT, (SIZES[kind][1](*point["x"][2:]),))
                for number, kind in enumerate(kinds)
            }
            for point in points
        ]

    spread = Spread(sizes_of(model), 10, profiles, 0)
    shapes = CutShapes(Divisible(model, ()), profiles, {}, run, (), spread)
    shapes.observe([f"t{number}" for number in range(len(kinds))])
    return shapes


def profile_of(model: OnnxModel, ranges: dict[str, Range] = RANGES) -> ShapeProfile:
    return make_profile(model.inputs, ranges)


@given(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=4))
def test_a_size_ranges_as_far_as_it_does_and_has_the_name_of_those_that_are_the_same(kinds: list[str]) -> None:
    model = model_of(*kinds)
    shapes = shapes_of(model, kinds, profile_of(model))
    names = [(shapes.axes(f"t{number}") or ("",))[0] for number in range(len(kinds))]
    ways = {"x": [h for h, _ in GRID]}
    for kind, name in zip(kinds, names, strict=True):
        all_ = [SIZES[kind][1](h, w) for h, w in GRID]
        if min(all_) == max(all_) or 0 in all_:
            assert name == (BY_VALUES if 0 in all_ else all_[0])
            continue
        assert name == "height" if all_ == ways["x"] else name not in ("height", "width")
        assert shapes.ranges[0][str(name)] == Range(min(all_), SIZES[kind][1](11, 9), max(all_))
        assert ways.setdefault(str(name), all_) == all_


def test_profiles_have_ranges_of_their_own() -> None:
    model = model_of("difference", "at most")
    profiles = [profile_of(model), profile_of(model, {"height": Range(20, 20, 20), "width": Range(2, 9, 18)})]
    shapes = shapes_of(model, ["difference", "at most"], *profiles)
    names = [str((shapes.axes(f"t{number}") or ("",))[0]) for number in range(2)]
    assert [[ranges[name] for name in names] for ranges in shapes.ranges] == [
        [Range(1, 3, 39), Range(3, 7, 7)],
        [Range(3, 12, 19), Range(7, 7, 7)],
    ]


def test_of_many_sizes_the_ends_are_looked_at_and_some_between() -> None:
    model = model_of("remainder", "difference")
    ranges = {"height": Range(100, 2000, 9000), "width": Range(50, 800, 7000)}
    spread = Spread(sizes_of(model), 10, [profile_of(model, ranges)], 0)
    assert 2000 < len(spread.homes) <= 4096
    remainders, differences = spread.column("t0", 0), spread.column("t1", 0)
    assert remainders is not None and differences is not None
    assert sorted(set(remainders.tolist())) == [1, 2, 3, 4, 5, 6, 7]
    assert (max(differences), min(differences) < 50) == (50, True)
    assert spread.column("x", 1) is not None and spread.column("x", 2) is not None
    # Fewer where there are many tensors.
    assert len(Spread(sizes_of(model), 1 << 20, [profile_of(model, ranges)], 0).homes) <= 80


def test_what_shapes_do_not_tell_has_no_column() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17, "my": 1]>
        g (float[n,4] x) => (float[n] y)
        { t = my.U (x)  u = NonZero (x)  y = ReduceMax <axes = [1], keepdims = 0> (x) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))
    spread = Spread(sizes_of(model), 10, [profile_of(model, {"n": Range(1, 2, 5)})], 0)
    assert [spread.column(name, 0) is None for name in ("t", "nothing", "y", "x")] == [True, True, False, False]
    assert spread.column("u", 1) is None and spread.column("x", 2) is None
    np.testing.assert_array_equal(spread.column("y", 0), [1, 2, 3, 4, 5])


def test_sizes_that_the_network_refuses_do_not_count() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4] x) => (float[p,q] y) <int64[2] s = {-1, 8}> { y = Reshape (x, s) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))
    spread = Spread(sizes_of(model), 10, [profile_of(model, {"n": Range(1, 2, 6)})], 0)
    np.testing.assert_array_equal(spread.column("y", 0), [1, 2, 3])


@pytest.mark.parametrize("dims", [{}, {"n": Range(3, 3, 3)}])
def test_one_size_is_enough(dims: dict[str, Range]) -> None:
    size = "n" if dims else "3"
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[{size},4] x) => (float[{size},4] y) {{ y = Relu (x) }}'
    model = OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))
    assert shapes_of(model, [], profile_of(model, dims)).axes("y") == (3, 4)
