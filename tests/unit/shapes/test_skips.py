"""Deconvolutions beside their skips, and shapes at some sizes: held to what the sizes of each are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from support.sizes import Brute, parse
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.model_shapes import known_sizes, model_shapes
from trtconv.shapes.skip_connections import Unmatched, unmatched

NET = """g (float[1,2,t] x) => (float[a,b,c] y) {{
    p = AveragePool <kernel_shape = [{stride}], strides = [{stride}]> (x)
    [up] u = ConvTranspose <strides = [{stride}], pads = [{low},{high}], output_padding = [{extra}]{more}> (p, w)
    {between} [join] y = {join} }}"""
PLAIN = {"stride": 2, "low": 0, "high": 0, "extra": 0, "more": "", "between": "", "join": "Concat <axis = 1> (u, x)"}


def found(taps: int = 2, **changes: Any) -> list[Unmatched]:
    model = parse(NET.format(**{**PLAIN, **changes}))
    weights = numpy_helper.from_array(np.ones((2, 2, taps), np.float32), "w")
    model.proto.graph.initializer.append(weights)
    return unmatched(OnnxModel(model.proto, model.path))


@pytest.mark.parametrize(("stride", "taps"), [*itertools.product((2, 3), (2, 3, 4))])
@pytest.mark.parametrize(("low", "high", "extra"), [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)])
def test_the_padding_that_every_size_needs(stride: int, taps: int, low: int, high: int, extra: int) -> None:
    made = found(taps, stride=stride, low=low, high=high, extra=extra)
    least = [size - ((size // stride - 1) * stride + taps - low - high) for size in range(256, 512)]
    if set(least) == {extra}:
        assert not made
        return
    (each,) = made
    assert (each.node.location.node, each.index, each.skip, each.join.location.node) == ("up", 1, "x", "join")
    assert each.output_padding == (max(least),)
    assert bool(each.refusal) == (min(least) < 0 or max(least) >= stride)


@pytest.mark.parametrize(
    ("changes", "meets"),
    [
        ({"join": "Add (u, x)"}, True),
        ({"join": "Sub (x, u)"}, True),
        ({"join": "Max (u, x)"}, True),
        ({"join": "Add (v, x)", "between": "v = Relu (u)"}, True),
        ({"join": "Add (v, x)", "between": "r = Relu (u) v = Neg (r)"}, True),
        # Another size than the deconvolution's own.
        ({"join": "Add (v, x)", "between": "v = AveragePool <kernel_shape = [2]> (u)"}, False),
        ({"join": "Relu (u)"}, False),
        ({"join": "Div (u, x)"}, False),
        ({"more": ', auto_pad = "SAME_UPPER"'}, False),
        ({"more": ", output_shape = [20]"}, False),
    ],
)
def test_what_a_deconvolution_meets(changes: dict[str, Any], meets: bool) -> None:
    assert bool(found(**changes)) == meets


def test_axes_are_told_apart() -> None:
    model = parse(
        """g (float[1,2,h,w] x) => (float[a,b,c,d] y) {
        p = AveragePool <kernel_shape = [2,3], strides = [2,3]> (x)
        u = ConvTranspose <strides = [2,3]> (p, k) y = Concat <axis = 1> (u, x) }"""
    )
    model.proto.graph.initializer.append(numpy_helper.from_array(np.ones((2, 2, 2, 3), np.float32), "k"))
    (each,) = unmatched(OnnxModel(model.proto, model.path))
    assert (each.output_padding, each.refusal) == ((1, 2), "")


def test_models_without_any() -> None:
    assert unmatched(parse("g (float[1,2,8] x) => (float[1,2,8] y) { y = Relu (x) }")) == []
    assert unmatched(parse("g (float[1,2,t] x) => (float[1,2,t] y) { y = Relu (x) }")) == []


SHAPES = """g (float[b,2,h] x) => (float[p,q,r] y) <int64[3] s = {0,-1,4}> {
    half = AveragePool <kernel_shape = [2], strides = [2]> (x) rows = Reshape (x, s) odd = my.Op (x)
    y = Relu (half) }"""


def test_shapes_of_tensors_at_some_sizes() -> None:
    model = parse(SHAPES, '<ir_version: 8, opset_import: ["": 17, "my": 1]>')
    points = [{"b": b, "h": h} for b, h in ((1, 8), (3, 5), (2, 1))]
    made = model_shapes(Sizes(model), points)
    assert [shapes["x"] for shapes in made] == [(1, 2, 8), (3, 2, 5), (2, 2, 1)]
    assert [shapes.get("half") for shapes in made] == [(1, 2, 4), (3, 2, 2), (2, 2, 0)]
    assert all("odd" not in shapes for shapes in made)
    assert made[0]["rows"] == (1, 4, 4)
    plain = parse(SHAPES.replace("odd = my.Op (x)", ""))
    assert made[0]["y"] == Brute(plain).shape(points[0])


def test_sizes_that_no_tensor_has_are_not_told() -> None:
    model = parse("g (float[1,1,h] x) => (float[a,b,c] y) <int64[6] p = {0,0,-3,0,0,-2}> { y = Pad (x, p) }")
    made = model_shapes(Sizes(model), [{"h": 9}, {"h": 5}, {"h": 4}])
    assert [shapes.get("y") for shapes in made] == [(1, 1, 4), (1, 1, 0), None]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_points_at_which_shapes_are_told(count: int) -> None:
    model = parse(
        "g (float[b,2,h] x) => (float[b,2,h] y) { y = Relu (x) }"
        if count
        else "g (float[1] x) => (float[1] y) { y = Relu (x) }"
    )
    bounds = [{"b": Range(1, 1, 4), "h": Range(8, 16, 32)}, {"b": Range(2, 3, 3), "h": Range(5, 5, 5)}][:count]
    known = known_sizes(Sizes(model), [make_profile(model.inputs, each) for each in bounds])
    opts = [{"b": 1, "h": 16}, {"b": 3, "h": 5}][:count] or [{}]
    changed = [{"b": 4, "h": 16}, {"b": 1, "h": 8}, {"b": 1, "h": 32}] if count else []
    assert known.points == [*opts, *changed]
    assert known.profiles == max(1, count)
    for point, shapes in zip(known.points, known.shapes, strict=True):
        assert shapes["y"] == ((point["b"], 2, point["h"]) if count else (1,))
