"""Whichever ONNX Runtime is installed, a model computes what ONNX defines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from support.onnx_models import Layer, assert_equal, conv_transpose, make
from support.sizes import parse
from support.strategies import layers
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import session

VALUES = np.array([[1, -2, 3], [0.5, 2, 4]], np.float32)
ELEMENTWISE = {
    "ReduceL1": np.abs,
    "ReduceL2": np.abs,
    "ReduceLogSum": np.log,
    "ReduceLogSumExp": np.copy,
    "ReduceMax": np.copy,
    "ReduceMean": np.copy,
    "ReduceMin": np.copy,
    "ReduceProd": np.copy,
    "ReduceSum": np.copy,
    "ReduceSumSquare": np.square,
}
ALONG_ROWS = {
    "ReduceL1": lambda x: np.abs(x).sum(1),
    "ReduceL2": lambda x: np.sqrt(np.square(x).sum(1)),
    "ReduceLogSum": lambda x: np.log(x.sum(1)),
    "ReduceLogSumExp": lambda x: np.log(np.exp(x).sum(1)),
    "ReduceMax": lambda x: x.max(1),
    "ReduceMean": lambda x: x.mean(1),
    "ReduceMin": lambda x: x.min(1),
    "ReduceProd": lambda x: x.prod(1),
    "ReduceSum": lambda x: x.sum(1),
    "ReduceSumSquare": lambda x: np.square(x).sum(1),
}


def run(proto: onnx.ModelProto, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    loaded = session(OnnxModel(proto, Path("model.onnx")))
    assert not isinstance(loaded, str), loaded
    return list(loaded.run(None, feeds))


@given(
    st.one_of(layers(), layers(dynamic=True), layers(negative=True, output_shape=None, auto_pad="NOTSET")),
    st.sampled_from(["main", "if"]),
)
def test_deconvolutions(layer: Layer, place: str) -> None:
    layer = dataclasses.replace(layer, place=place)
    proto, feeds = make(layer)
    assert_equal([conv_transpose(layer)], run(proto, feeds))


@pytest.mark.parametrize("opset", [9, 17])
def test_an_output_shape_beyond_what_may_be_added_is_refused(opset: int) -> None:
    header = f'<ir_version: 8, opset_import: ["": {opset}]>'
    text = """g (float[1,1,n] x, float[1,1,3] w) => (float[1,1,m] y)
        {{ y = ConvTranspose <strides=[2], kernel_shape=[3], output_shape=[{}]> (x, w) }}"""
    feeds = {"x": np.ones((1, 1, 4), np.float32), "w": np.ones((1, 1, 3), np.float32)}
    (most,) = run(parse(text.format(10), header).proto, feeds)
    assert most.reshape(-1).tolist() == [1, 1, 2, 1, 2, 1, 2, 1, 1, 0]
    if opset > 9:
        with pytest.raises(Exception, match="Reshape"):
            run(parse(text.format(11), header).proto, feeds)


@pytest.mark.parametrize(("axes", "shape"), [([-1], (2, 6)), ([-1, -2], (4, 6)), ([-2, 1], (4, 6)), ([1, 0], (4, 6))])
def test_axes_of_a_resize_may_be_counted_from_the_end(axes: list[int], shape: tuple[int, ...]) -> None:
    sizes = [shape[axis] for axis in axes]
    text = f"""g (float[2,3] x) => (float[a,b] y) <int64[{len(axes)}] s = {{{", ".join(map(str, sizes))}}}>
        {{ y = Resize <axes = {axes}> (x, , , s) }}"""
    (resized,) = run(parse(text, '<ir_version: 8, opset_import: ["": 18]>').proto, {"x": VALUES})
    assert np.array_equal(resized, VALUES.repeat(shape[0] // 2, 0).repeat(2, 1))


def test_inside_a_function() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[1,1,4] x) => (float[1,1,m] y) <float[1,1,3] w = {1, 2, 4}> { y = local.up (x, w) }
        <domain: "local", opset_import: ["": 17]> up (x, w) => (y)
        { y = ConvTranspose <strides=[1], dilations=[2], output_padding=[1]> (x, w) }"""
    (y,) = run(onnx.parser.parse_model(text), {"x": np.array([[[1, 0, 0, 3]]], np.float32)})
    assert y.reshape(-1).tolist() == [1, 0, 2, 3, 4, 6, 0, 12, 0]


def _reduction(op: str, noop: int, axes: str) -> onnx.ModelProto:
    inputs = {"none": "x", "left out": "x, ", "constant": "x, c", "input": "x, axes"}[axes]
    given_axes = ", int64[k] axes" if axes == "input" else ""
    text = f"""g (float[2,3] x{given_axes}) => (float[a,b] y) <int64[0] c = {{}}>
        {{ y = {op} <noop_with_empty_axes = {noop}> ({inputs}) }}"""
    return parse(text, '<ir_version: 8, opset_import: ["": 18]>').proto


@pytest.mark.parametrize("axes", ["none", "left out", "constant", "input"])
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_reductions_over_no_axes(op: str, axes: str) -> None:
    values = np.abs(VALUES) if op == "ReduceLogSum" else VALUES
    feeds = {"x": values} | ({"axes": np.zeros(0, np.int64)} if axes == "input" else {})
    (y,) = run(_reduction(op, 1, axes), feeds)
    np.testing.assert_allclose(y, ELEMENTWISE[op](values), rtol=1e-6)


@pytest.mark.parametrize(("op", "end"), [("ReduceMax", "min"), ("ReduceMin", "max")])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", ["0", "n"])
def test_the_largest_of_no_integers_is_the_smallest_of_the_type(
    op: str, end: str, dtype: type[np.integer], rows: str
) -> None:
    name = np.dtype(dtype).name
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]>
        g ({name}[2,{rows},3] x, int64[1] axes) => ({name}[2,1,3] y) {{ y = {op} (x, axes) }}"""
    )
    (got,) = run(proto, {"x": np.zeros((2, 0, 3), dtype), "axes": np.array([1], np.int64)})
    np.testing.assert_array_equal(got, np.full((2, 1, 3), getattr(np.iinfo(dtype), end), dtype))


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("op", ALONG_ROWS)
def test_reductions_over_axes_that_only_the_run_time_knows(op: str, noop: int) -> None:
    (y,) = run(_reduction(op, noop, "input"), {"x": np.abs(VALUES), "axes": np.array([1], np.int64)})
    np.testing.assert_allclose(y, ALONG_ROWS[op](np.abs(VALUES))[:, None], rtol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("opset", [9, 17, 18])
def test_instances_far_from_zero_are_normalised(offset: float, opset: int) -> None:
    model = parse(
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) <float[3] s = {2, 1, 0.5}, float[3] b = {0, 1, -1}>"
        "{ y = InstanceNormalization <epsilon = 0.001> (x, s, b) }"
    )
    model.proto.opset_import[0].version = opset
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 5)) * 4 + offset).astype(np.float32)
    (got,) = session(model).run(None, {"x": x})
    wide = x.astype(np.float64)
    left = wide - wide.mean((2, 3), keepdims=True)
    normal = left / np.sqrt(np.square(left).mean((2, 3), keepdims=True) + 0.001)
    scale, bias = np.array([2, 1, 0.5]), np.array([0, 1, -1])
    np.testing.assert_allclose(got, normal * scale.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1), rtol=1e-6, atol=1e-6)


def test_sums_of_integers_go_round() -> None:
    model = parse("g (int32[1,3] x) => (int32[1,1] y) { y = ReduceSum (x) }")
    (got,) = session(model).run(None, {"x": np.array([[2**31 - 1, 5, 7]], np.int32)})
    assert got.tolist() == [[2**31 - 1 + 5 + 7 - 2**32]]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("axis", [-1, 2])
def test_layers_far_from_zero_are_normalised(offset: float, axis: int) -> None:
    model = parse(
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) <float[5] s = {2, 1, 0.5, 3, -1}, float[5] b = {0, 1, -1, 2, 0}>"
        f"{{ y = LayerNormalization <epsilon = 0.001, axis = {axis}> (x, s, b) }}"
    )
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 5)) * 4 + offset).astype(np.float32)
    (got,) = session(model).run(None, {"x": x})
    wide, axes = x.astype(np.float64), tuple(range(axis % 4, 4))
    left = wide - wide.mean(axes, keepdims=True)
    normal = left / np.sqrt(np.square(left).mean(axes, keepdims=True) + 0.001)
    expected = normal * np.array([2, 1, 0.5, 3, -1]) + np.array([0, 1, -1, 2, 0])
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_masked_scores_are_infinite() -> None:
    text = """<ir_version: 11, opset_import: ["": 23]>
    g (float[1,1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v) => (float[1,1,2,4] y, float[1,1,2,3] s)
    { y, , , s = Attention <is_causal = 1, qk_matmul_output_mode = 2> (q, k, v) }"""
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(1, 1, rows, 4)).astype(np.float32) for rows in (2, 3, 3))
    y, scores = run(onnx.parser.parse_model(text), {"q": q, "k": k, "v": v})
    assert (scores[0, 0] == -np.inf).tolist() == [[False, True, True], [False, False, True]]
    np.testing.assert_allclose(y[0, 0, 0], v[0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("opset", [11, 18, 22])
@pytest.mark.parametrize("p", [1, 2])
@given(st.integers(-3, 2))
def test_lp_normalization(opset: int, p: int, axis: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    x[0, :, 0] = x[1, 2] = 0
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[2,3,4] x) => (float[2,3,4] y) {{ y = LpNormalization <p = {p}, axis = {axis}> (x) }}"""
    )
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    np.testing.assert_allclose(run(proto, {"x": x})[0], x / np.where(norm == 0, 1, norm), rtol=1e-6)


@pytest.mark.parametrize("opset", [9, 11, 18])
@pytest.mark.parametrize("size", [1, 3, 4, 11])
@pytest.mark.parametrize("shape", ["2,6,3,2", "2,6"])
def test_local_responses_beside_large_values(opset: int, size: int, shape: str) -> None:
    """ONNX Runtime itself subtracts what leaves the window: of 0.001 beside 1000 nothing is left."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[{shape}] x) => (float[{shape}] y)
        {{ y = LRN <size = {size}, alpha = {2.0 * size}, beta = 0.5, bias = 0.25> (x) }}"""
    )
    x = np.random.default_rng(0).normal(size=[int(length) for length in shape.split(",")]).astype(np.float32)
    x[:, 0] *= 1000
    x[:, 5] /= 1000
    squares = x.astype(np.float64) ** 2
    total = np.stack([squares[:, max(i - (size - 1) // 2, 0) : i + size // 2 + 1].sum(1) for i in range(6)], 1)
    np.testing.assert_allclose(run(proto, {"x": x})[0], x / (0.25 + 2 * total) ** 0.5, rtol=1e-6)


NEAREST = {
    "floor": lambda over, under: over // under,
    "ceil": lambda over, under: -(-over // under),
    "round_prefer_floor": lambda over, under: -((under - 2 * over) // (2 * under)),
    "round_prefer_ceil": lambda over, under: (2 * over + under) // (2 * under),
}
BY_SIZES = {
    "half_pixel": lambda i, old, new: ((2 * i + 1) * old - new, 2 * new),
    "tf_half_pixel_for_nn": lambda i, old, new: ((2 * i + 1) * old, 2 * new),
    "asymmetric": lambda i, old, new: (i * old, new),
    "align_corners": lambda i, old, new: (i * (old - 1), max(new - 1, 1)),
}
PAIRS = [
    (28, 62),
    (30, 63),
    (36, 50),
    (112, 124),
    (30, 9),
    (40, 6),
    (5, 2),
    (62, 36),
    (21, 51),
    (41, 46),
    (38, 53),
    (14, 18),
]


@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("mode", BY_SIZES)
@pytest.mark.parametrize("computed", [False, True])
def test_nearest_elements_are_those_of_the_sizes(rounding: str, mode: str, computed: bool) -> None:
    """ONNX Runtime itself takes the other one of some that are equally near."""
    sizes = "i = Identity (s)  t = Cast <to = 7> (i)" if computed else "t = Identity (s)"
    attributes = f'mode = "nearest", nearest_mode = "{rounding}", coordinate_transformation_mode = "{mode}"'
    for before, after in PAIRS:
        proto = onnx.parser.parse_model(
            f"""<ir_version: 7, opset_import: ["": 12]>
            g (float[1,1,1,{before}] x) => (float[1,1,1,{after}] y)
            <int64[4] s = {{1, 1, 1, {after}}}, float[0] r = {{}}>
            {{ {sizes}  y = Resize <{attributes}> (x, r, r, t) }}"""
        )
        (y,) = run(proto, {"x": np.arange(before, dtype=np.float32).reshape(1, 1, 1, before)})
        places = [NEAREST[rounding](*BY_SIZES[mode](i, before, after)) for i in range(after)]
        assert y.reshape(-1).tolist() == [min(max(place, 0), before - 1) for place in places], (before, after)


def test_the_neighbour_below_lies_where_it_does() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 7, opset_import: ["": 12]>
        g (float[1,1,1,20] x) => (float[1,1,1,6] y) <float[0] r = {}, int64[4] s = {1, 1, 1, 6}> {
          y = Resize <mode = "nearest", coordinate_transformation_mode = "tf_half_pixel_for_nn",
                      nearest_mode = "floor"> (x, r, r, s)
        }"""
    )
    (y,) = run(proto, {"x": np.arange(20, dtype=np.float32).reshape(1, 1, 1, 20)})
    assert y.reshape(-1).tolist() == [(2 * i + 1) * 20 // 12 for i in range(6)]


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("axes", ["[1]", "[0, -1]"])
def test_mean_variance_normalization_far_from_zero(opset: int, axes: str) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[3,4,5] x) => (float[3,4,5] y) {{ y = MeanVarianceNormalization <axes = {axes}> (x) }}"""
    )
    x = (1000 + np.random.default_rng(0).random((3, 4, 5)) / 4).astype(np.float32)
    over = tuple(proto.graph.node[0].attribute[0].ints)
    offset = x.astype(np.float64) - x.mean(over, np.float64, keepdims=True)
    expected = offset / (np.sqrt((offset**2).mean(over, keepdims=True)) + 1e-9)
    np.testing.assert_allclose(run(proto, {"x": x})[0], expected, rtol=1e-6, atol=1e-6)


def test_places_of_a_sample_may_be_of_float64() -> None:
    body = """g (float[1,1,4,4] x, float[1,2,3,2] p) => (float[1,1,2,3] y)
        { d = Cast <to = 11> (p)  e = Mul (d, d)  y = GridSample <padding_mode = "border"> (x, e) }"""
    random = np.random.default_rng(3)
    x, p = (random.uniform(-1.2, 1.2, shape).astype(np.float32) for shape in ((1, 1, 4, 4), (1, 2, 3, 2)))
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {body}')
    (defined,) = ReferenceEvaluator(proto).run(None, {"x": x, "p": p})
    np.testing.assert_allclose(run(proto, {"x": x, "p": p})[0], defined, rtol=1e-5)


@pytest.mark.parametrize("constant", [True, False])
def test_places_of_an_unpooling_are_those_of_the_inferred_output(constant: bool) -> None:
    given, stored = ("", "<int64[4] s = {1, 1, 5, 6}>") if constant else (", int64[4] s", "")
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 11]>
        g (float[1,1,2,2] x, int64[1,1,2,2] i{given}) => (float[1,1,5,6] y) {stored}
        {{ y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, s) }}"""
    )
    feeds = {"x": np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2), "i": np.array([[[[5, 7], [13, 15]]]])}
    expected = np.zeros((1, 1, 5, 6), np.float32)
    expected[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]] = 1, 2, 3, 4
    if not constant:
        feeds["s"] = np.array([1, 1, 5, 6])
    np.testing.assert_array_equal(run(proto, feeds)[0], expected)


def test_what_attention_masks_counts_for_nothing_where_scores_are_capped() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 11, opset_import: ["": 23]>
        g (float[1,1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v, float[2,3] m) => (float[1,1,2,4] y)
        { y = Attention <softcap = 0.5> (q, k, v, m) }"""
    )
    random = np.random.default_rng(0)
    feeds = {
        name: random.normal(size=(1, 1, rows, 4)).astype(np.float32) for name, rows in (("q", 2), ("k", 3), ("v", 3))
    }
    feeds["m"] = np.array([[0, -np.inf, 0], [0, -np.inf, 0]], np.float32)
    first = run(proto, feeds)[0]
    feeds["v"][0, 0, 1] = 1000
    np.testing.assert_array_equal(run(proto, feeds)[0], first)


@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("capped", ["", ", softcap = 0.5"])
def test_a_causal_query_sees_the_keys_up_to_its_own_place_alone(capped: str, queries: int) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 11, opset_import: ["": 23]>
        g (float[1,1,{queries},4] q, float[1,1,3,4] k, float[1,1,3,4] v) => (float[1,1,{queries},4] y)
        {{ y = Attention <is_causal = 1{capped}> (q, k, v) }}"""
    )
    random = np.random.default_rng(0)
    feeds = {
        name: random.normal(size=(1, 1, rows, 4)).astype(np.float32)
        for name, rows in (("q", queries), ("k", 3), ("v", 3))
    }
    first = run(proto, feeds)[0]
    np.testing.assert_allclose(first[0, 0, 0], feeds["v"][0, 0, 0], rtol=1e-6)
    feeds["v"][0, 0, queries:] = 1000
    np.testing.assert_array_equal(run(proto, feeds)[0], first)


@pytest.mark.parametrize("opset", [10, 17, 19])
@pytest.mark.parametrize(
    ("kernel", "stride", "low", "high"), [(5, 5, 0, 0), (2, 2, 0, 0), (3, 2, 1, 1), (3, 2, 0, 1), (3, 3, 1, 0)]
)
def test_what_lies_beyond_the_padding_counts_in_no_mean(
    kernel: int, stride: int, low: int, high: int, opset: int
) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[1,1,3,4] x) => (float[1,1,h,w] y) {{
        y = AveragePool <kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], ceil_mode = 1,
            pads = [{low}, {low}, {high}, {high}], count_include_pad = 1> (x) }}"""
    )
    x = np.random.default_rng(3).normal(size=(1, 1, 3, 4)).astype(np.float32)
    padded = np.pad(x[0, 0], ((low, high), (low, high)))
    starts = [[at for at in range(0, size + low + high, stride) if at < size + low] for size in (3, 4)]
    counts = [-(-(size + low + high - kernel) // stride) + 1 for size in (3, 4)]
    rows, columns = (places[:count] for places, count in zip(starts, counts, strict=True))
    expected = [[padded[r : r + kernel, c : c + kernel].mean() for c in columns] for r in rows]
    np.testing.assert_allclose(run(proto, {"x": x})[0][0, 0], expected, rtol=1e-5, atol=1e-6)


def test_what_is_no_number_of_a_type_is_not_true_as_one() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[6] x) => (float[6] y) {
        i = Cast <to = 6> (x)  b = Cast <to = 9> (i)  y = Cast <to = 1> (b) }"""
    )
    x = np.array([0.5, -0.3, 1.5, 0, 300, -1], np.float32)
    np.testing.assert_array_equal(run(proto, {"x": x})[0], [0, 0, 1, 0, 1, 1])


@pytest.mark.parametrize("text", ["STFT <onesided = 1> (x, step, window)", "DFT <axis = 1, onesided = 1> (x)"])
def test_fourier_transforms_are_as_exact_as_their_type(text: str) -> None:
    proto = parse(
        f"""g (float[1,400,1] x, float[400] window) => (y)
        <int64 step = {{200}}> {{ y = {text} }}"""
    )
    x = np.random.default_rng(0).standard_normal((1, 400, 1)).astype(np.float32)
    (y,) = run(proto.proto, {"x": x, "window": np.ones(400, np.float32)})
    wanted = np.fft.rfft(x[0, :, 0].astype(np.float64))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.reshape(-1, 2), np.stack([wanted.real, wanted.imag], 1), atol=1e-5)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [-2, 0])
def test_the_largest_in_any_order_are_sorted(largest: int, axis: int) -> None:
    model = parse(
        f"""g (float[20,3] x) => (float[9,3] y, int64[9,3] i) <int64[1] k = {{9}}>
        {{ y, i = TopK <axis = {axis}, sorted = 0, largest = {largest}> (x, k) }}"""
    )
    x = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    values, places = run(model.proto, {"x": x})
    order = np.argsort(-x if largest else x, axis=0)[:9]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 0))
