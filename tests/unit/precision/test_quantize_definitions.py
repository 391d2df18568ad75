"""The rules of quantize by their definitions: which layers, how many products, which scales, which share of values."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from trtconv.core.errors import InputError
from trtconv.core.preprocessing import Preprocessing
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.calibrate import Statistics, candidates, least_squares
from trtconv.precision.quantize.equalize import find_links
from trtconv.precision.quantize.histogram import Histogram
from trtconv.precision.quantize.images import of_planes
from trtconv.precision.quantize.kinds import FLOAT8, INT4_WEIGHTS, INT8, INT8_WEIGHTS, KINDS, QuantizationKind
from trtconv.precision.quantize.layers import behind, find_layers, slows_down, wants_quantizer_behind
from trtconv.precision.quantize.operators import Shape, multiply_adds
from trtconv.precision.quantize.placement import Placement, measured, place, place_of
from trtconv.precision.quantize.stored import store_weights
from trtconv.precision.quantize.weights import QuantizedWeights
from trtconv.precision.quantize.work import work_of
from trtconv.precision.quantize.write import scales


def model_of(body: str, ends: str = "(float[n,64] x) => (float[n,m] y)", **weights: Shape) -> OnnxModel:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 19, "my": 1]> g {ends} {{ {body} }}')
    draw = np.random.default_rng(0)
    proto.graph.initializer.extend(
        numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name) for name, shape in weights.items()
    )
    return OnnxModel(onnx.shape_inference.infer_shapes(proto), Path("m.onnx"))


# What a layer computes: for each element of the result one product with each weight that goes into it.
PRODUCTS = [
    ("Conv", {}, [(2, 6, 8, 8), (4, 6, 3, 3), (2, 4, 6, 6)], 2 * 4 * 6 * 6 * 6 * 9),
    ("Conv", {"group": 2}, [(2, 6, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)], 2 * 4 * 6 * 6 * 3 * 9),
    ("ConvTranspose", {}, [(2, 6, 8, 8), (6, 4, 2, 2), (2, 4, 9, 9)], 2 * 6 * 8 * 8 * 4 * 4),
    ("Gemm", {}, [(5, 7), (7, 3), (5, 3)], 5 * 7 * 3),
    ("Gemm", {"transB": 1}, [(5, 7), (3, 7), (5, 3)], 5 * 7 * 3),
    ("Gemm", {"transA": 1}, [(7, 5), (7, 3), (5, 3)], 5 * 7 * 3),
    ("MatMul", {}, [(2, 4, 5, 7), (2, 4, 7, 3), (2, 4, 5, 3)], 8 * 5 * 7 * 3),
    ("MatMul", {}, [(7,), (7,), ()], 7),
    ("GRU", {}, [(9, 2, 5), (1, 12, 5), (1, 12, 4)], 9 * 2 * (12 * 5 + 12 * 4)),
]


@pytest.mark.parametrize(("op", "attributes", "shapes", "count"), PRODUCTS)
def test_multiply_adds_are_those_of_the_definition(
    op: str, attributes: dict[str, int], shapes: list[Shape], count: int
) -> None:
    inputs, result = (["x", "w", "r"], "h") if op == "GRU" else (["x", "w"], "y")
    node = helper.make_node(op, inputs, [result], **attributes)
    given_ = dict(zip(["x", "w", "r" if op == "GRU" else "y"], shapes, strict=True))
    assert multiply_adds(node, given_) == count
    for name in ("x", "w", *(["y"] if op not in ("ConvTranspose", "GRU") else [])):
        assert multiply_adds(node, {n: shape for n, shape in given_.items() if n != name}) == 0
    if op not in ("ConvTranspose", "GRU"):
        assert multiply_adds(helper.make_node(op, inputs, [], **attributes), given_) == 0


@given(st.lists(st.floats(0, 2.0**20, width=32), min_size=1, max_size=60), st.floats(0.5, 100))
def test_a_percentile_is_the_smallest_bin_that_holds_so_many(values: list[float], percent: float) -> None:
    histogram = Histogram()
    histogram.add(np.array(values, np.float32))
    ordered = sorted(values)
    least = ordered[max(0, math.ceil(len(values) * percent / 100 - 1e-9) - 1)]
    # A bin is a thousandth wide; what is far below the largest counts as next to nothing.
    found = histogram.percentile(percent)
    assert least <= found <= max(least * 1.001, max(values) * 2.0**-30, 1e-37)


def test_bins_are_1024_from_each_power_of_two_to_the_next() -> None:
    histogram = Histogram()
    histogram.add(np.array([1.0, np.nextafter(np.float32(2), np.float32(0))], np.float32))
    assert len(histogram.counts) == 1024 and (histogram.edges[0], histogram.edges[-1]) == (1, 2)
    # 32 powers below the largest value are told apart; below them, all is counted as one.
    histogram.add(np.array([2.0**-40, 2.0**-50], np.float32))
    assert len(histogram.counts) == 32 * 1024 and histogram.counts[0] == 2


@given(st.lists(st.floats(2.0**-10, 1, width=32), min_size=1, max_size=40), st.integers(1, 50))
def test_even_bins_hold_what_lies_in_them(values: list[float], bins: int) -> None:
    histogram = Histogram()
    histogram.add(np.array(values, np.float32))
    counts = histogram.even(bins, 1.0)
    assert counts.sum() == len(values) and len(counts) == bins
    below = np.cumsum(counts)
    for number in range(bins - 1):
        edge = (number + 1) / bins
        near = [sum(value < edge * factor for value in values) for factor in (0.999, 1.001)]
        assert near[0] <= below[number] <= near[1]


@pytest.mark.parametrize(
    ("method", "among", "compared"),
    [
        ("min-max", INT8.methods, ["min-max"]),
        ("percentile", INT8.methods, ["percentile 99.5"]),
        ("mse", INT8.methods, ["mse"]),
        ("auto", INT8.methods, ["min-max", "percentile 99.99", "percentile 99.999", "mse", "entropy"]),
        ("auto", FLOAT8.methods, ["min-max", "percentile 99.99", "percentile 99.999"]),
    ],
)
def test_methods_that_are_compared(method: str, among: tuple[str, ...], compared: list[str]) -> None:
    assert list(candidates(method, 99.5, among)) == compared


def test_each_method_takes_its_own_range_and_none_more_than_all_values() -> None:
    random = np.random.default_rng(0)
    values = {"x": random.standard_normal(50_000).astype(np.float32), "zero": np.zeros(4, np.float32)}
    values["x"][0] = -40
    methods = candidates("auto", 99.99)
    statistics = Statistics(methods)
    for part in np.split(values["x"], 5):
        statistics.add({"x": part, "zero": values["zero"]})
    found = {method: statistics.ranges(method) for method in methods}
    assert {ranges["zero"] for ranges in found.values()} == {0.0}
    assert found["min-max"]["x"] == 40 and found["percentile 99.999"]["x"] == 40
    assert found["percentile 99.99"]["x"] < 6
    histogram = Histogram()
    histogram.add(values["x"])
    assert found["mse"]["x"] == least_squares(histogram.counts, histogram.edges) < 40
    assert found["entropy"]["x"] < 30 and len({ranges["x"] for ranges in found.values()}) == 4


KIND_METHODS = {
    "int8": "min-max percentile mse entropy",
    "fp8": "min-max percentile",
    "int4-weights": "",
    "int8-weights": "",
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_a_kind_takes(kind: QuantizationKind) -> None:
    def takes(target: str, method: str = "auto", attention: bool = False) -> bool:
        parsed = Target.parse(target)
        assert parsed is not None
        try:
            kind.require(parsed, method, attention)
        except InputError:
            return False
        return True

    targets = {target: takes(target) for target in ("tensorrt-8.6", "tensorrt-10.0", "rtx")}
    assert targets == {"tensorrt-8.6": kind is INT8, "tensorrt-10.0": True, "rtx": True}
    methods = [method for method in ("min-max", "percentile", "mse", "entropy") if takes("rtx", method)]
    assert methods == KIND_METHODS[kind.name].split()
    # Products of two computed matrices have no weights.
    assert takes("rtx", attention=True) == kind.inputs == (kind in (INT8, FLOAT8))


REASONS = [
    # A layer's body and weights; whether it is quantised to each kind.
    ("y = MatMul (x, w)", {"w": (64, 8)}, "int8 fp8 int4-weights int8-weights"),
    ("y = Gemm <transB = 1> (x, w)", {"w": (8, 64)}, "int8 fp8 int4-weights int8-weights"),
    ("y = Gemm (x, w)", {"w": (64, 8)}, "int8 fp8 int4-weights int8-weights"),
    ("s = Slice (x, a, b, o)  y = MatMul (s, w)", {"w": (40, 8)}, "int8 fp8 int8-weights"),
    ("y = MatMul (x, w)", {"w": (3, 64, 8)}, "int8 fp8 int8-weights"),
    ("y = MatMul (x, w)", {"w": (64,)}, ""),
    ("y = MatMul (w, t)", {"w": (5, 64)}, ""),
    ("h = Cast <to = 10> (w)  c = Cast <to = 10> (x)  y = MatMul (c, h)", {"w": (64, 8)}, ""),
    ("y = Conv (i, w)", {"w": (8, 32, 3, 3)}, "int8 fp8"),
    ("y = ConvTranspose (i, w)", {"w": (32, 32, 2, 2)}, "int8"),
    ("y = ConvTranspose (i, w)", {"w": (32, 6, 2, 2)}, ""),
    ("y = ConvTranspose <group = 2> (i, w)", {"w": (32, 16, 2, 2)}, ""),
    ("k = Neg (x)  y = MatMul (k, t)", {}, ""),
]
ENDS = """(float[5,64] x, float[64,64] t, float[1,32,8,8] i) => (float[n,m] y)
    <int64[1] a = {0}, int64[1] b = {40}, int64[1] o = {1}>"""


@pytest.mark.parametrize(("body", "weights", "kinds"), REASONS)
def test_which_layers_are_quantised(body: str, weights: dict[str, Shape], kinds: str) -> None:
    scope = model_of(body, ENDS, **weights).main
    able = [name for name, kind in KINDS.items() if not find_layers(scope, kind=kind)[0].reason]
    assert sorted(able) == sorted(kinds.split())
    for kind in KINDS.values():
        (layer,) = find_layers(scope, kind=kind)
        # Of a deconvolution int8 alone is said to lack a kernel, of others it is the kind that has none.
        lacks = kind is INT8 and "ConvTranspose" in body and kinds == ""
        assert (layer.lacks_kernel, bool(slows_down([layer]))) == (lacks, lacks)
    assert find_layers(scope, in_float=[scope.columns.names[-1]])[0].reason == "asked for"


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ("y = MatMul (x, t)", True),
        ("y = Gemm <transA = 1> (x, x)", False),  # It sums 3 products.
        ("y = MatMul (x, f)", True),
        ("y = Gemm (x, t, n)", True),
        ("v = Squeeze (one, o)  y = MatMul (x, v)", False),
        ("y = MatMul (k, t)", False),  # By channel only the second is.
        ("c = Cast <to = 10> (x)  d = Cast <to = 10> (t)  y = MatMul (c, d)", False),
    ],
)
def test_products_of_two_computed_matrices_are_quantised_where_that_is_asked_for(body: str, taken: bool) -> None:
    ends = "(float[3,64] x, float[64,64] t, float[64,k] f, float[64,1] one, float[64] n) => (float y)"
    ends += " <int64[1] o = {1}>"
    scope = model_of(body, ends, k=(5, 64)).main
    for kind, attention in itertools.product(KINDS.values(), (False, True)):
        (layer,) = find_layers(scope, kind=kind, attention=attention)
        is_taken = taken and attention and kind.inputs
        assert (not layer.reason) == is_taken
        assert layer.slots == ((0, 1) if is_taken else (0,))
        if attention and kind.inputs and "Cast" in body:
            assert "float16" in layer.reason


@pytest.mark.parametrize(
    ("ranges", "apart", "expected"),
    [
        ({"a": 127.0, "b": 254.0, "c": 12.7}, (), {"a": 2.0, "b": 2.0, "c": 0.1}),
        ({"a": 254.0, "b": 127.0, "c": 0.0}, (), {"a": 2.0, "b": 2.0, "c": 1.0}),
        # Far enough apart already, on either side.
        ({"a": 127.0, "b": 127.0, "c": 254.0}, (("a", "c"),), {"a": 1.0, "b": 1.0, "c": 2.0}),
        ({"a": 254.0, "b": 127.0, "c": 127.0}, (("a", "c"),), {"a": 2.0, "b": 2.0, "c": 1.0}),
        # As good as equal: the wider one becomes wider by a step.
        ({"a": 127.0, "b": 1.0, "c": 127.5}, (("a", "c"),), {"a": 1.0, "b": 1.0, "c": 128 / 127}),
        ({"a": 127.5, "b": 1.0, "c": 127.0}, (("a", "c"),), {"a": 128 / 127, "b": 128 / 127, "c": 1.0}),
        ({"a": 127.0, "b": 1.0, "c": 127.0}, (("c", "a"),), {"a": 128 / 127, "b": 128 / 127, "c": 1.0}),
        ({"a": 127.0, "b": 127.0, "c": 127.0}, (("a", "b"),), {"a": 1.0, "b": 1.0, "c": 1.0}),
    ],
)
def test_scales_are_of_the_widest_range_that_shares_them(
    ranges: dict[str, float], apart: tuple[tuple[str, str], ...], expected: dict[str, float]
) -> None:
    placement = Placement((0,), {}, {"a": "a", "b": "a", "c": "c"}, apart)
    found = scales(placement, ranges)
    assert {name: float(scale) for name, scale in found.items()} == pytest.approx(expected, rel=1e-6)
    assert scales(placement, ranges, 254.0)["b"] == pytest.approx(expected["b"] / 2, rel=1e-6)


MOVED = {
    "m = MaxPool <kernel_shape = [1, 1]> (a)": True,
    "m = Resize (a, , s)": True,
    'm = Resize <mode = "linear"> (a, , s)': False,
    'm = Resize <mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize"> (a, r, s)': False,
    "m, i = MaxPool <kernel_shape = [1, 1]> (a)": False,
    "m = Concat <axis = 1> (a)": True,
    "m = Concat <axis = 2> (a, k)": False,
    "m = Neg (a)": False,
}


@pytest.mark.parametrize(("move", "moves"), MOVED.items())
@pytest.mark.parametrize("shown", [False, True])
def test_what_was_only_moved_is_quantised_where_it_came_from(move: str, moves: bool, shown: bool) -> None:
    ends = f"(float[1,32,8,8] x) => (float[1,32,h,w] y{', float[1,32,h,w] m' * shown})"
    ends += " <float[4] s = {1,1,2,2}, float[8] r = {0,0,0,0,1,1,1,1}>"
    scope = model_of(
        f"a = Conv (x, v)  {move}  y = Conv (m, w)", ends, v=(32, 32, 1, 1), w=(32, 32, 1, 1), k=(1, 32, 1, 8)
    ).main
    placed = place(scope, find_layers(scope))
    # An output keeps its bits: nothing in front of it is quantised.
    assert set(placed.tensors) == {"x", "m", *(["a"] if moves and not shown else [])}
    assert len({placed.shared[name] for name in placed.tensors}) == 2


def test_float8_and_weights_alone_have_quantisers_in_front_of_layers_or_none() -> None:
    scope = model_of("a = MatMul (x, v)  m = Concat <axis = 1> (a)  y = MatMul (m, w)", v=(64, 64), w=(64, 8)).main
    for kind, tensors in ((FLOAT8, {"x", "m"}), (INT8_WEIGHTS, set()), (INT4_WEIGHTS, set()), (INT8, {"x", "m", "a"})):
        placed = place_of(kind, scope, find_layers(scope, kind=kind))
        assert (set(placed.tensors), placed.layers) == (tensors, (0, 2))


def test_of_a_sum_both_branches_are_measured() -> None:
    ends = "(float[1,32,8,8] x) => (float[1,32,8,8] y)"
    body = "a = Conv (x, v)  s = Add (a, x)  r = Relu (s)  y = Conv (r, w)"
    scope = model_of(body, ends, v=(32, 32, 1, 1), w=(32, 32, 1, 1)).main
    placed = place(scope, find_layers(scope))
    assert placed.edges["x"] == ((0, 0), (1, 1))
    assert set(measured(scope, placed)) == {"x", "r", "a"}


@pytest.mark.parametrize(
    ("added", "tensors"), [("Add (a, k)", "x r"), ("Add (k, a)", "x r"), ("Add (a, a)", "x r"), ("Add (a, m)", "x r m")]
)
def test_a_constant_that_is_added_is_not_quantised_nor_a_result_to_itself(added: str, tensors: str) -> None:
    ends = "(float[1,32,8,8] x, float[1,32,8,8] m) => (float[1,32,8,8] y)"
    body = f"a = Conv (x, v)  s = {added}  r = Relu (s)  y = Conv (r, w)"
    scope = model_of(body, ends, v=(32, 32, 1, 1), w=(32, 32, 1, 1), k=(1, 32, 1, 1)).main
    assert set(place(scope, find_layers(scope)).tensors) == set(tensors.split())


@pytest.mark.parametrize(
    ("rest", "tensor"),
    [
        ("b = Relu (a)  y = Tanh (b)", "y"),
        ("b = Relu (a)  y = Softmax (b)", "b"),
        ("b = Relu (a)  y = Add (a, b)", "a"),
        ("b = Relu (a)  y = Mul (b, b)", "b"),
    ],
)
def test_what_a_result_becomes_behind_its_activations(rest: str, tensor: str) -> None:
    scope = model_of(f"a = MatMul (x, w)  {rest}", w=(64, 8)).main
    assert behind(scope, "a") == tensor
    assert not wants_quantizer_behind(scope, scope.columns.nodes[0])


@pytest.mark.parametrize(("weight", "wants"), [((32, 32, 1, 1, 1), True), ((32, 32, 1, 1), False)])
def test_deconvolutions_of_volumes_want_a_quantiser_behind_whatever_is_known_of_their_input(
    weight: Shape, wants: bool
) -> None:
    scope = model_of("a = my.Strange (x)  y = ConvTranspose (a, w)", w=weight).main
    assert wants_quantizer_behind(scope, scope.columns.nodes[1]) is wants


def test_a_weight_that_two_layers_read_is_quantised_for_each_as_it_reads_it() -> None:
    model = model_of("a = MatMul (x, w)  y = Gemm <transB = 1> (a, w)", w=(64, 64))
    weights = QuantizedWeights()
    made = [weights.of(model, node) for node in model.main.columns.nodes]
    values = model.main.values("w")
    assert values is not None
    for quantized, axis in zip(made, (1, 0), strict=True):
        assert quantized.attributes == {"axis": axis} and quantized.tensor.name == "w"
        np.testing.assert_allclose(quantized.scale, np.abs(values).max(1 - axis) / 127, rtol=1e-6)
    codes: Any = numpy_helper.to_array(made[1].tensor)
    np.testing.assert_allclose(codes * made[1].scale[:, None], values, atol=float(made[1].scale.max()) * 0.501)


def test_products_are_counted_at_the_sizes_that_are_stated_or_those_of_a_sample() -> None:
    counts = {}
    for ends in ("(float[5,64] x) => (float[5,8] y)", "(float[n,64] x) => (float[n,8] y)"):
        model = model_of("y = MatMul (x, w)", ends, w=(64, 8))
        layers = find_layers(model.main)
        feeds = [{"x": np.zeros((rows, 64), np.float32)} for rows in (3, 7)]
        counts[ends] = (work_of(model, layers, []), work_of(model, layers, feeds))
    assert list(counts.values()) == [({0: 5 * 64 * 8}, {0: 5 * 64 * 8}), ({}, {0: 3 * 64 * 8})]


def test_colours_end_at_black_and_white() -> None:
    ends = np.array([0, 255], np.uint8)
    luma, blue, red = (each.reshape(1, -1, 1).repeat(2, 0).repeat(2, 1) for each in np.meshgrid(ends, ends, ends))
    chroma = np.concatenate([blue, red], 2)[:1, ::2]
    (found,) = of_planes(luma[:2], chroma, Preprocessing(pixels="nv12"), None)
    assert (found.min(), found.max()) == (0, 255)


def test_operators_of_other_domains_are_no_layers_whatever_they_are_called() -> None:
    model = model_of("a = MatMul (x, w)  b = my.MatMul (a)  c = my.Add (b)  y = my.Mul (c)", w=(64, 64))
    assert [layer.index for layer in find_layers(model.main)] == [0]
    assert find_links(model.main) == [] and place(model.main, find_layers(model.main)).tensors == ("x",)
    before = model.serialize()
    store_weights(model)
    assert model.serialize() == before
