"""Kinds of layers, run from plain records: each against an idea of its own of what TensorRT documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from trtconv.runtimes.tensorrt.readback import grid_sample
from trtconv.runtimes.tensorrt.readback.convolving import convolve, spread
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.read import weights_of
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

Array = Any
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def network(kind: str, inputs: Sequence[Array | None], dtypes: Sequence[str], **values: Any) -> ReadNetwork:
    """Makes a network of one layer."""
    tensors, numbers = [], []
    for each in inputs:
        numbers.append(None if each is None else len(tensors))
        if each is not None:
            tensors.append(ReadTensor(len(tensors), f"x{len(tensors)}", str(each.dtype), each.shape))
    given = tuple(range(len(tensors)))
    outputs = tuple(range(len(tensors), len(tensors) + len(dtypes)))
    tensors += [ReadTensor(number, f"y{i}", dtype, None) for i, (number, dtype) in enumerate(zip(outputs, dtypes))]  # noqa: B905
    return ReadNetwork(tuple(tensors), (ReadLayer(0, "layer", kind, tuple(numbers), outputs, values),), given, outputs)


def run(kind: str, *inputs: Array | None, dtypes: Sequence[str] = ("float32",), **values: Any) -> list[Array]:
    made = network(kind, inputs, dtypes, **values)
    present = [each for each in inputs if each is not None]
    one = Run(made, {f"x{i}": each for i, each in enumerate(present)})
    got = one.outputs()
    assert one.unproven == {}, one.unproven
    return [got[f"y{i}"] for i in range(len(dtypes))]


def why_not(kind: str, *inputs: Array | None, dtypes: Sequence[str] = ("float32",), **values: Any) -> str:
    made = network(kind, inputs, dtypes, **values)
    one = Run(made, {f"x{i}": each for i, each in enumerate(e for e in inputs if e is not None)})
    one.outputs()
    return one.unproven[0]


WINDOW = {"pre_padding": (0, 0), "post_padding": (0, 0), "padding_mode": "EXPLICIT_ROUND_DOWN"}


def convolved(x: Array, w: Array, stride: int, dilation: int) -> Array:
    """Convolves one channel without padding, from the definition."""
    k = (w.shape[0] - 1) * dilation + 1
    n = (x.shape[0] - k) // stride + 1
    return np.array(
        [
            [
                (x[i * stride : i * stride + k : dilation, j * stride : j * stride + k : dilation] * w).sum()
                for j in range(n)
            ]
            for i in range(n)
        ]
    )


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_convolution(stride: int, dilation: int) -> None:
    x, w = normal(1, 1, 9, 9), normal(3, 3)
    (got,) = run(
        "CONVOLUTION",
        x,
        kernel_size_nd=(3, 3),
        dilation_nd=(dilation,) * 2,
        stride_nd=(stride,) * 2,
        num_groups=1,
        num_output_maps=1,
        kernel=w.reshape(-1),
        bias=np.array([0.5], np.float32),
        **WINDOW,
    )
    np.testing.assert_allclose(got[0, 0], convolved(x[0, 0], w, stride, dilation) + 0.5, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("stride", "dilation", "low", "high"), [(2, 1, 0, 1), (1, 2, 1, 0), (2, 2, 2, 1), (3, 1, 0, 0)]
)
def test_deconvolution_is_the_whole_one_cropped(stride: int, dilation: int, low: int, high: int) -> None:
    x, w = normal(1, 1, 4, 4), normal(3, 3)
    reach = (3 - 1) * dilation + 1
    full = np.zeros((stride * 3 + reach,) * 2, np.float32)
    for i in range(4):
        for j in range(4):
            rows, columns = (slice(p * stride, p * stride + reach, dilation) for p in (i, j))
            full[rows, columns] += x[0, 0, i, j] * w
    window = {**WINDOW, "pre_padding": (low, low), "post_padding": (high, high)}
    (got,) = run(
        "DECONVOLUTION",
        x,
        kernel_size_nd=(3, 3),
        dilation_nd=(dilation,) * 2,
        stride_nd=(stride,) * 2,
        num_groups=1,
        num_output_maps=1,
        kernel=w.reshape(-1),
        bias=np.empty(0, np.float32),
        **window,
    )
    end = full.shape[0] - high
    np.testing.assert_allclose(got[0, 0], full[low:end, low:end], rtol=1e-4, atol=1e-5)


def test_pooling_rounds_up_into_the_padding() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    asked = {
        **WINDOW,
        "padding_mode": "EXPLICIT_ROUND_UP",
        "window_size_nd": (1, 1),
        "stride_nd": (2, 2),
        "blend_factor": 0.0,
        "average_count_excludes_padding": True,
    }
    (got,) = run("POOLING", x, type="MAX", **asked)
    assert got.shape == (1, 1, 2, 2)
    assert got[0, 0, 0, 0] == 1
    assert np.isneginf(got[0, 0, 1, 1])


@pytest.mark.parametrize(("excluded", "first"), [(True, 3.0), (False, 12 / 9)])
def test_averages_count_padding_or_not(excluded: bool, first: float) -> None:
    x = np.array([[1, 2], [4, 5]], np.float32).reshape(1, 1, 2, 2)
    asked = {
        "padding_mode": "EXPLICIT_ROUND_DOWN",
        "pre_padding": (1, 1),
        "post_padding": (1, 1),
        "window_size_nd": (3, 3),
        "stride_nd": (1, 1),
        "blend_factor": 0.0,
        "average_count_excludes_padding": excluded,
    }
    (got,) = run("POOLING", x, type="AVERAGE", **asked)
    assert got[0, 0, 0, 0] == pytest.approx(first)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("CLAMP", [0, 0, 0, 1, 2, 2]),
        ("WRAP", [1, 2, 0, 1, 2, 0]),
        ("REFLECT", [2, 1, 0, 1, 2, 1]),
        ("FILL", [9, 9, 0, 1, 2, 9]),
    ],
)
def test_slices_beyond_the_ends(mode: str, expected: list[int]) -> None:
    x = np.arange(3, dtype=np.float32)
    fill = np.array(9, np.float32) if mode == "FILL" else None
    (got,) = run("SLICE", x, None, None, None, fill, start=(-2,), shape=(6,), stride=(1,), mode=mode)
    assert got.tolist() == expected


def test_a_slice_with_stride_zero_broadcasts() -> None:
    (got,) = run(
        "SLICE", np.array([[1.0], [2.0]], np.float32), start=(0, 0), shape=(2, 3), stride=(1, 0), mode="STRICT_BOUNDS"
    )
    assert got.tolist() == [[1, 1, 1], [2, 2, 2]]


def test_integers_are_divided_towards_zero() -> None:
    a, b = np.array([-7, 7, -7], np.int32), np.array([2, -2, -2], np.int32)
    assert run("ELEMENTWISE", a, b, dtypes=["int32"], op="DIV")[0].tolist() == [-3, -3, 3]
    assert run("ELEMENTWISE", a, b, dtypes=["int32"], op="FLOOR_DIV")[0].tolist() == [-4, -4, 3]
    assert "divided by zero" in why_not("ELEMENTWISE", a, b * 0, dtypes=["int32"], op="DIV")


def test_a_clip_with_crossed_limits_returns_the_lower_one() -> None:
    assert run("ACTIVATION", normal(4), type="CLIP", alpha=2.0, beta=1.0)[0].tolist() == [2.0] * 4


@pytest.mark.parametrize(("op", "expected"), [("SUM", 0), ("PROD", 1), ("MAX", -np.inf), ("MIN", np.inf)])
def test_reductions_over_nothing(op: str, expected: float) -> None:
    (got,) = run("REDUCE", np.empty((2, 0), np.float32), op=op, axes=2, keep_dims=True)
    assert got.tolist() == [[expected], [expected]]


def test_top_k_takes_the_lower_index_of_equals() -> None:
    values, indices = run(
        "TOPK", np.array([1, 3, 3, 2], np.float32), dtypes=["float32", "int32"], op="MAX", k=3, axes=1
    )
    assert (values.tolist(), indices.tolist()) == ([3, 3, 2], [1, 2, 3])


def test_gather_gives_zero_beyond_the_end_and_counts_from_the_end_on_static_axes() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    asked = {"axis": 0, "mode": "DEFAULT", "num_elementwise_dims": 0}
    assert run("GATHER", x, np.array([-1, 0, 7], np.int32), **asked)[0].tolist() == [3, 1, 0]


def test_quantisers_saturate_by_channel() -> None:
    x, scale = np.array([[1.0, -300.0], [0.5, 300.0]], np.float32), np.array([1.0, 2.0], np.float32)
    (got,) = run("QUANTIZE", x, scale, dtypes=["int8"], axis=1)
    assert got.tolist() == [[1, -128], [0, 127]]
    assert run("DEQUANTIZE", got, scale, axis=1)[0].tolist() == [[1, -256], [0, 254]]
    zero = np.array(3, np.int8)
    assert "zero point" in why_not("QUANTIZE", x, scale[:1], zero, dtypes=["int8"], axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_quantiser_that_has_no_type_of_its_own_is_int8(dtype: str) -> None:
    """As of TensorRT 8.6, whose networks state the type of what is quantised until they are built."""
    x, scale = np.array([1.3, -300.0, 300.0, 2.5], np.float32), np.array([1.0], np.float32)
    (got,) = run("QUANTIZE", x, scale, dtypes=[dtype], axis=0)
    assert got.tolist() == [1, -128, 127, 2]
    assert run("DEQUANTIZE", got, scale, axis=0)[0].tolist() == [1, -128, 127, 2]
    # Where a layer has a type, it and the network agree, or what is built is not known.
    assert "quantises to" in why_not("QUANTIZE", x, scale, dtypes=[dtype], axis=0, to_type="FLOAT")


def test_a_cast_to_float16_rounds_where_the_network_calls_all_floats_float32() -> None:
    """As of TensorRT 8.6, which chooses between float types as it builds."""
    x = np.array([1 / 3, 2.0], np.float32)
    (got,) = run("CAST", x, dtypes=["float32"], to_type="HALF")
    assert got.dtype == np.float32 and got.tolist() == [float(np.float16(1 / 3)), 2.0]
    assert "told to make int32" in why_not("CAST", x, dtypes=["float32"], to_type="INT32")
    assert "told to make float32" in why_not("CAST", x, dtypes=["float16"], to_type="FLOAT")


def test_random_numbers_are_not_proven() -> None:
    assert "random" in why_not("FILL", operation="RANDOM_UNIFORM", alpha=0.0, beta=1.0, shape=(2,))


def test_linear_resize_takes_the_scale_that_is_given() -> None:
    asked = {
        "resize_mode": "LINEAR",
        "shape": None,
        "scales": (0.6,),
        "coordinate_transformation": "HALF_PIXEL",
        "selector_for_single_pixel": "FORMULA",
        "nearest_rounding": "FLOOR",
        "cubic_coeff": -0.75,
        "exclude_outside": False,
    }
    (got,) = run("RESIZE", np.array([1.0, 2.0, 3.0, 4.0], np.float32), **asked)
    places = (np.arange(2) + 0.5) / 0.6 - 0.5
    np.testing.assert_allclose(got, 1 + places, rtol=1e-6)


@pytest.mark.parametrize(("size", "excludes"), [(8, False), (7, False), (8, True)])
def test_a_padding_that_counts_has_all_of_a_window_counted(size: int, excludes: bool) -> None:
    asked: dict[str, Any] = {
        **{"type": "AVERAGE", "window_size_nd": (3,), "stride_nd": (2,), "blend_factor": 0.0},
        **{"pre_padding": (1,), "post_padding": (1,), "padding_mode": "EXPLICIT_ROUND_UP"},
        "average_count_excludes_padding": excludes,
    }
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    (got,) = run("POOLING", x, **asked)
    padded = np.pad(x[0, 0], 1)
    sums = [padded[at : at + 3].sum() for at in range(0, size + 1, 2)]
    # As TensorRT 8.6 was seen to do, also where a window reaches beyond the padding.
    counts = [2, *[3] * (len(sums) - 2), 1] if excludes else [3] * len(sums)
    np.testing.assert_allclose(got[0, 0], np.divide(sums, counts), rtol=1e-6)


NEAREST = {
    "resize_mode": "NEAREST",
    "coordinate_transformation": "HALF_PIXEL",
    "selector_for_single_pixel": "FORMULA",
    "nearest_rounding": "HALF_UP",
    "cubic_coeff": -0.75,
    "exclude_outside": False,
}


@pytest.mark.parametrize(
    ("sizes", "changes", "clear"),
    [
        ((6, 13), {}, False),
        ((6, 13), {"nearest_rounding": "HALF_DOWN"}, False),
        ((6, 13), {"nearest_rounding": "FLOOR"}, True),
        ((6, 13), {"coordinate_transformation": "ASYMMETRIC"}, True),
        # No place lies halfway, or all of them exactly.
        ((5, 12), {}, True),
        ((8, 4), {}, True),
    ],
)
def test_a_place_halfway_between_two_elements_is_not_proven(
    sizes: tuple[int, int], changes: dict[str, str], clear: bool
) -> None:
    asked = {**NEAREST, "shape": (sizes[1],), "scales": (), **changes}
    values = np.arange(sizes[0], dtype=np.float32)
    if clear:
        (got,) = run("RESIZE", values, **asked)
        assert got.shape == (sizes[1],)
    else:
        assert "place 2.5 lies halfway" in why_not("RESIZE", values, **asked)


CEIL, CORNERS = (
    {"nearest_rounding": "CEIL"},
    {"coordinate_transformation": "ALIGN_CORNERS", "nearest_rounding": "FLOOR"},
)
ASYMMETRIC = {"coordinate_transformation": "ASYMMETRIC"}


@pytest.mark.parametrize(
    ("sizes", "changes", "place"),
    [
        # By 3, by 7, and of floats nearly so: what an engine took was the element beyond.
        ((5, 15), CEIL, "0.0"),
        ((8, 56), {**ASYMMETRIC, **CEIL}, "3.0"),
        ((5, 15), {"nearest_rounding": "FLOOR"}, ""),
        ((5, 15), {**ASYMMETRIC, "nearest_rounding": "FLOOR"}, ""),
        ((5, 10), CEIL, ""),
        ((4, 3), {**ASYMMETRIC, **CEIL}, ""),
        ((5, 1), {**ASYMMETRIC, **CEIL}, ""),
        ((5, 1), {**CEIL, "selector_for_single_pixel": "UPPER"}, ""),
        ((5, 0), CEIL, ""),
        ((3, 48), CORNERS, "2.0"),
        ((3, 42), CORNERS, "2.0"),
        ((4, 7), CORNERS, ""),
    ],
)
def test_a_place_on_a_border_that_float32_misses_is_not_proven(
    sizes: tuple[int, int], changes: dict[str, str], place: str
) -> None:
    asked = {**NEAREST, "shape": (sizes[1],), "scales": (), **changes}
    values = np.arange(sizes[0], dtype=np.float32)
    if place:
        assert f"place {place} lies on a border" in why_not("RESIZE", values, **asked)
    else:
        (got,) = run("RESIZE", values, **asked)
        assert got.shape == (sizes[1],)


@pytest.mark.parametrize(
    ("rounding", "expected"), [("FLOOR", [0, 0, 1, 1, 2, 2, 3, 4]), ("CEIL", [0, 1, 2, 2, 3, 3, 4, 4])]
)
def test_sizes_that_a_scale_is_rounded_to_are_no_scale(rounding: str, expected: list[int]) -> None:
    asked = {**NEAREST, **ASYMMETRIC, "shape": None, "scales": (1.75,), "nearest_rounding": rounding}
    (got,) = run("RESIZE", np.arange(5, dtype=np.float32), **asked)
    assert got.tolist() == expected


def loop_network(trips: int) -> ReadNetwork:
    """Makes a loop that doubles a value and collects it."""
    names = ["x", "n", "state", "doubled", "last", "all"]
    tensors = tuple(ReadTensor(i, name, "int32" if name == "n" else "float32", None) for i, name in enumerate(names))
    layers = (
        ReadLayer(0, "double", "ELEMENTWISE", (2, 2), (3,), {"op": "SUM"}),
        ReadLayer(1, "state", "RECURRENCE", (0, 3), (2,), {"loop": 0}),
        ReadLayer(2, "trips", "TRIP_LIMIT", (1,), (), {"loop": 0, "kind": "COUNT"}),
        ReadLayer(3, "last", "LOOP_OUTPUT", (2,), (4,), {"loop": 0, "kind": "LAST_VALUE", "axis": 0}),
        ReadLayer(4, "all", "LOOP_OUTPUT", (3, 1), (5,), {"loop": 0, "kind": "CONCATENATE", "axis": 0}),
    )
    return ReadNetwork(tensors, layers, (0, 1), (4, 5))


def test_a_loop_returns_its_last_value_and_all_of_them() -> None:
    one = Run(loop_network(3), {"x": np.float32(1), "n": np.int32(3)})
    got = one.outputs()
    assert (got["last"].tolist(), got["all"].tolist()) == (8, [2, 4, 8])
    assert one.unproven == {}


def test_of_a_conditional_only_the_branch_that_is_taken_is_run() -> None:
    names = ["c", "x", "good", "bad", "y"]
    tensors = tuple(ReadTensor(i, name, "bool" if name == "c" else "float32", None) for i, name in enumerate(names))
    layers = (
        ReadLayer(0, "if", "CONDITION", (0,), (), {"conditional": 0}),
        ReadLayer(1, "good", "UNARY", (1,), (2,), {"op": "NEG"}),
        ReadLayer(2, "bad", "RNN_V2", (1,), (3,), {}),
        ReadLayer(3, "y", "CONDITIONAL_OUTPUT", (2, 3), (4,), {"conditional": 0}),
    )
    made = ReadNetwork(tensors, layers, (0, 1), (4,))
    taken = Run(made, {"c": np.array(True), "x": np.float32(2)})
    assert taken.outputs()["y"] == -2
    assert taken.unproven == {}
    other = Run(made, {"c": np.array(False), "x": np.float32(2)})
    assert other.outputs() == {}
    assert set(other.unproven) == {2}


def test_values_are_dropped_when_their_last_reader_has_run() -> None:
    size = 100
    tensors = tuple(ReadTensor(i, f"t{i}", "float32", None) for i in range(size + 1))
    layers = tuple(ReadLayer(i, f"l{i}", "UNARY", (i,), (i + 1,), {"op": "NEG"}) for i in range(size))
    alive: list[int] = []
    import weakref

    seen: list[Any] = []

    def watch(tensor: ReadTensor, value: Array, computed: bool) -> Array:
        seen.append(weakref.ref(value))
        alive.append(sum(each() is not None for each in seen))
        return value

    Run(ReadNetwork(tensors, layers, (0,), (size,)), {"t0": normal(4)}, see=watch).outputs()
    assert max(alive) <= 4


def test_weights_whose_strides_the_bindings_got_wrong() -> None:
    """TensorRT 8.6's bindings under NumPy 2: every element is shown as the first."""
    values = np.arange(1, 7, dtype=np.float32)
    shown = np.lib.stride_tricks.as_strided(values, (6,), (0,))
    assert set(shown) == {1.0}
    assert np.array_equal(weights_of(shown), values)
    assert weights_of(values) is values


HUGE = np.array([100_000, 100_000], np.int64)
LARGE = {
    "FILL": ([HUGE], {"operation": "LINSPACE", "alpha": 0.0, "beta": 0.0}),
    "ELEMENTWISE": ([np.zeros((1, 30_000), np.float32), np.zeros((30_000, 1), np.float32)], {"op": "SUM"}),
    "MATRIX_MULTIPLY": (
        [np.zeros((30_000, 1), np.float32), np.zeros((1, 30_000), np.float32)],
        {"op0": "NONE", "op1": "NONE"},
    ),
    "GATHER": (
        [np.zeros((1, 30_000), np.float32), np.zeros(30_000, np.int64)],
        {"mode": "DEFAULT", "axis": 0, "num_elementwise_dims": 0},
    ),
    "SLICE": (
        [np.zeros((1, 1), np.float32), np.zeros(2, np.int64), HUGE, np.zeros(2, np.int64)],
        {"start": None, "shape": None, "stride": None, "mode": "STRICT_BOUNDS", "axes": None},
    ),
    "RESIZE": ([np.zeros((1, 1), np.float32), HUGE], {"scales": None, "shape": None}),
    "ONE_HOT": ([np.zeros(30_000, np.int64), np.zeros(2, np.float32), np.array(30_000)], {"axis": -1}),
    "PADDING": ([np.zeros((1, 1), np.float32)], {"pre_padding_nd": (30_000, 30_000), "post_padding_nd": (0, 0)}),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_layer_that_would_take_all_memory_is_not_run(kind: str) -> None:
    inputs, values = LARGE[kind]
    made = network(kind, inputs, ("float32",), **values)
    one = Run(made, {f"x{i}": each for i, each in enumerate(inputs)}, megabytes=1000)
    assert one.outputs() == {}
    assert "MB of memory" in one.unproven[0]


def by_definition(op: str, inputs: Sequence[Array], **attributes: Any) -> Array:
    """Computes one node on ONNX's reference implementation."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, inputs, strict=True)]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (result,) = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    return result


ANY_WINDOW = {
    "ins": st.integers(1, 3),
    "outs": st.integers(1, 3),
    "groups": st.integers(1, 3),
    "axes": st.lists(st.tuples(*(st.integers(1, 3),) * 3, st.integers(0, 4)), min_size=1, max_size=3),
}


@settings(max_examples=60, deadline=None)
@given(**ANY_WINDOW)
def test_convolutions_of_any_kind_are_those_of_the_definition(
    ins: int, outs: int, groups: int, axes: Sequence[tuple[int, int, int, int]]
) -> None:
    window, strides, dilations, _ = zip(*axes, strict=True)
    sizes = [(k - 1) * d + 1 + more for k, _, d, more in axes]
    x, kernel = normal(2, groups * ins, *sizes), normal(groups * outs, ins, *window)
    expected = by_definition("Conv", (x, kernel), strides=strides, dilations=dilations, group=groups)
    np.testing.assert_allclose(convolve(x, kernel, strides, dilations, groups), expected, 1e-4, 1e-4)


@settings(max_examples=60, deadline=None)
@given(**ANY_WINDOW)
def test_deconvolutions_of_any_kind_are_turned_convolutions(
    ins: int, outs: int, groups: int, axes: Sequence[tuple[int, int, int, int]]
) -> None:
    # The product with a deconvolution is that with the convolution of its kernel, from the other side.
    window, strides, dilations, sizes = zip(*axes, strict=True)
    x, kernel = normal(1, groups * ins, *(n + 1 for n in sizes)), normal(groups * ins, outs, *window)
    got = spread(x, kernel, strides, dilations, groups)
    other = normal(*got.shape)
    turned = convolve(other, kernel, strides, dilations, groups)
    assert got.shape[2:] == tuple(s * n + d * (k - 1) + 1 for k, s, d, n in axes)
    assert turned.shape == x.shape
    assert np.vdot(got, other) == pytest.approx(np.vdot(x, turned), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("part", ["kernel", "window", "groups"])
def test_a_convolution_that_does_not_fit_is_malformed(part: str) -> None:
    x, kernel = normal(1, 4, 5), normal(2, 4, 3)
    x = x[..., :2] if part == "window" else x
    kernel = kernel[:, :3] if part == "kernel" else kernel
    values = {"kernel_size_nd": (3,), "stride_nd": (1,), "dilation_nd": (1,), "num_output_maps": 2, "bias": None}
    groups = 3 if part == "groups" else 1
    said = why_not(
        "CONVOLUTION", x, kernel, num_groups=groups, **{**WINDOW, "pre_padding": (0,), "post_padding": (0,)}, **values
    )
    assert "does not compute at these sizes" in said


@pytest.mark.parametrize("size", [7, 100_000])
def test_erf_is_that_of_the_library(size: int) -> None:
    x = np.concatenate([np.linspace(-7, 7, size), np.logspace(-30, 0, 50)]).astype(np.float32)
    (got,) = run("UNARY", x, op="ERF")
    np.testing.assert_allclose(got, [math.erf(float(each)) for each in x], 3e-7)
    ends = np.array([np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(run("UNARY", ends, op="ERF")[0], [np.nan, 1, -1])


def test_where_onnx_runtime_departs_from_the_definition_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    x, grid = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 2, 3, 2), np.float32)
    how = {"sample_mode": "CLAMP", "align_corners": False}
    assert "than ONNX defines" in why_not("GRID_SAMPLE", x, grid, interpolation_mode="CUBIC", **how)
    assert run("GRID_SAMPLE", x, grid, interpolation_mode="LINEAR", **how)[0].shape == (1, 1, 2, 3)

    class Wrong:
        def run(self, names: object, feeds: dict[str, Any]) -> list[Any]:
            return [np.zeros((1, 2, 2, 2), np.float32)]

    grid_sample._departure.cache_clear()
    monkeypatch.setattr(grid_sample, "_session", lambda *key: Wrong())
    assert "than ONNX defines" in why_not("GRID_SAMPLE", x, grid, interpolation_mode="LINEAR", **how)
    grid_sample._departure.cache_clear()


def test_a_cast_to_int8_is_of_whole_numbers() -> None:
    """TensorRT 8.6 rounds fractions, ONNX cuts them off (run: bench/results/gpu-operators-8.6.json)."""
    (got,) = run("CAST", np.array([-3.0, 0.0, 127.0], np.float32), dtypes=["int8"], to_type="INT8")
    assert got.tolist() == [-3, 0, 127]
    for kind in (np.float32, np.float16):
        assert "was seen to round" in why_not("CAST", np.array([1.0, 2.5], kind), dtypes=["int8"], to_type="INT8")
    (got,) = run("CAST", np.array([300, -1], np.int32), dtypes=["int8"], to_type="INT8")
    assert got.tolist() == [44, -1]
