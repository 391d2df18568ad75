"""Operators that TensorRT lacks, written in others: ONNX's own numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from support.onnx_models import parse, wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

RTX, EIGHT = Target("rtx", (1, 7)), Target("tensorrt", (8, 6))
Arrays = dict[str, NDArray[Any]]


def model(
    op: str,
    feeds: Arrays,
    opset: int,
    *,
    constant: Arrays | None = None,
    outputs: int = 1,
    shape: Any = None,
    **attrs: Any,
) -> onnx.ModelProto:
    def value(name: str, array: NDArray[Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    constant = constant or {}
    names = sorted({*feeds, *constant})
    dtype = next(iter(feeds.values())).dtype
    made = [f"y{number}" for number in range(outputs)]
    types = [dtype, np.dtype(np.int64)]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
        for name, kind in zip(made, types, strict=False)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attrs)],
        "g",
        [value(name, array) for name, array in feeds.items()],
        values,
        [onnx.numpy_helper.from_array(array, name) for name, array in constant.items()],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])
    return onnx.shape_inference.infer_shapes(proto) if shape is None else proto


def assert_same(
    proto: onnx.ModelProto, feeds: Arrays, pass_name: str, target: Target = RTX, runtime: bool = False
) -> None:
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, target)
    assert pass_name in {edit.pass_name for edit in done.edits}
    runs = [
        session(each, sized=False).run(None, feeds) if runtime else ReferenceEvaluator(each).run(None, feeds)
        for each in (proto, rewritten.proto)
    ]
    for before, after in zip(*runs, strict=True):
        assert before.shape == after.shape
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def of_any_size(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model all of whose sizes are known only at run time."""
    free = onnx.ModelProto()
    free.CopyFrom(proto)
    for place, value in enumerate((*free.graph.input, *free.graph.output)):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"d{place}_{axis}"
    return free


def normal(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@given(
    st.sampled_from(("MaxPool", "AveragePool", "LpPool")),
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(4, 8)), min_size=1, max_size=3
    ),
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_pooling(
    op: str, axes: list[tuple[int, int, int, int]], pad: int, rounded: bool, counted: bool, free: bool
) -> None:
    kernel, dilations, strides, sizes = (list(each) for each in zip(*axes, strict=True))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assume(any(d > 1 for d in dilations) and all(r <= s for r, s in zip(reach, sizes, strict=True)))
    pad = pad if all(k > 1 for k in kernel) else 0
    attrs = {"kernel_shape": kernel, "dilations": dilations, "strides": strides, "pads": [pad] * 2 * len(kernel)}
    attrs |= {"ceil_mode": int(rounded)} if op != "LpPool" else {"p": 3}
    attrs |= {"count_include_pad": int(counted)} if op == "AveragePool" else {}
    # A window that ends beyond the padding is counted otherwise by ONNX Runtime than by ONNX.
    assume(not (op == "AveragePool" and counted and rounded))
    feeds = {"a": normal(2, 2, *sizes)}
    proto = model(op, feeds, 19, **attrs)
    assert_same(of_any_size(proto) if free else proto, feeds, "pool-by-taps", runtime=True)


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """Kernel, padding at both ends, stride, size."""
    kernel = draw(st.integers(1, 3))
    # ONNX Runtime takes no padding as long as the kernel.
    begin, end = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
    return kernel, begin, end, draw(st.integers(1, 4)), draw(st.integers(max(1, kernel - begin - end), 9))


@given(st.sampled_from(("MaxPool", "AveragePool", "LpPool")), st.lists(windows(), min_size=1, max_size=2))
def test_windows_are_counted_at_run_time(op: str, axes: list[tuple[int, int, int, int, int]]) -> None:
    # One whose last window may begin in the end padding.
    axes = [*axes, (2, 1, 1, 2, axes[0][4] + 1)]
    kernel, begins, ends, strides, sizes = (list(values) for values in zip(*axes, strict=True))
    feeds = {"a": normal(1, 2, *sizes)}
    proto = model(op, feeds, 19, kernel_shape=kernel, pads=[*begins, *ends], strides=strides, ceil_mode=1)
    assert_same(of_any_size(proto), feeds, "round-pools-at-run-time", runtime=True)


@given(st.lists(windows(), min_size=1, max_size=3), st.booleans())
def test_a_padding_that_counts_is_written_out(axes: list[tuple[int, int, int, int, int]], free: bool) -> None:
    # No window begins in the end padding, and one reaches beyond it.
    axes = [*((k, b, min(e, max(k - s, 0)), min(s, k), size + k) for k, b, e, s, size in axes), (3, 1, 0, 2, 3)][-3:]
    kernel, begins, ends, strides, sizes = (list(values) for values in zip(*axes, strict=True))
    feeds = {"a": normal(1, 2, *sizes)}
    attrs: dict[str, Any] = {"kernel_shape": kernel, "pads": [*begins, *ends], "strides": strides}
    proto = model("AveragePool", feeds, 19, ceil_mode=1, count_include_pad=1, **attrs)
    rewritten = wrap(of_any_size(proto) if free else proto)
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["pad-before-average"]
    (got,) = session(rewritten.proto, sized=False).run(None, feeds)
    np.testing.assert_allclose(got, means(feeds["a"], axes), rtol=1e-4, atol=1e-5)


@given(st.lists(windows(), min_size=1, max_size=2))
def test_a_padding_that_counts_and_may_hold_a_window(axes: list[tuple[int, int, int, int, int]]) -> None:
    axes = [*axes, (2, 1, 1, 2, axes[0][4] + 1)]
    kernel, begins, ends, strides, sizes = (list(values) for values in zip(*axes, strict=True))
    feeds = {"a": normal(1, 2, *sizes)}
    attrs: dict[str, Any] = {"kernel_shape": kernel, "pads": [*begins, *ends], "strides": strides}
    rewritten = wrap(of_any_size(model("AveragePool", feeds, 19, ceil_mode=1, count_include_pad=1, **attrs)))
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["round-pools-at-run-time"]
    (got,) = session(rewritten.proto, sized=False).run(None, feeds)
    np.testing.assert_allclose(got, means(feeds["a"], axes), rtol=1e-4, atol=1e-5)


def means(values: NDArray[Any], axes: list[tuple[int, int, int, int, int]]) -> NDArray[Any]:
    """Averages over windows as ONNX defines them, padding counted and sizes rounded up; some versions of ONNX Runtime
    count what lies beyond the padding too."""
    padded = np.pad(values, [(0, 0), (0, 0), *((begin, end) for _, begin, end, _, _ in axes)])
    counts = [min(-(-(b + n + e - k) // s) + 1, -(-(n + b) // s)) for k, b, e, s, n in axes]
    result = np.empty((*values.shape[:2], *counts), np.float32)
    for place in np.ndindex(*counts):
        window = tuple(slice(at * s, at * s + k) for at, (k, _, _, s, _) in zip(place, axes, strict=True))
        seen = padded[(slice(None), slice(None), *window)]
        result[(slice(None), slice(None), *place)] = seen.mean(tuple(range(2, seen.ndim)))
    return result


@pytest.mark.parametrize(("mode", "stride"), [("SAME_UPPER", 1), ("SAME_LOWER", 1), ("VALID", 2)])
def test_paddings_of_any_size_by_name(mode: str, stride: int) -> None:
    feeds = {"a": normal(1, 2, 7, 8)}
    # With dilations ONNX Runtime makes less of SAME than ONNX.
    proto = model("MaxPool", feeds, 19, outputs=2, kernel_shape=[2, 3], strides=[stride] * 2, auto_pad=mode)
    assert_same(of_any_size(proto), feeds, "pool-by-taps", runtime=True)


@pytest.mark.parametrize("free", [False, True])
def test_a_padding_by_name_counts_as_one_in_numbers(free: bool) -> None:
    feeds, results = {"a": normal(1, 2, 7)}, []
    for attrs in ({"auto_pad": "SAME_UPPER"}, {"pads": [2, 2]}):
        proto = model("AveragePool", feeds, 19, kernel_shape=[3], dilations=[2], count_include_pad=1, **attrs)
        rewritten = wrap(of_any_size(proto) if free else proto)
        assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["pool-by-taps"]
        results += session(rewritten.proto, sized=False).run(None, feeds)
    # ONNX Runtime, which pads by name as without dilations, is no oracle.
    np.testing.assert_array_equal(*results)


def test_a_padding_that_hangs_on_the_size_is_refused() -> None:
    attrs: dict[str, Any] = {"kernel_shape": [2], "dilations": [2], "strides": [2], "auto_pad": "SAME_UPPER"}
    proto = of_any_size(model("MaxPool", {"a": normal(1, 1, 6)}, 19, **attrs))
    done = run_passes(wrap(proto), PASSES, RTX)
    assert [skip.reason for skip in done.skipped if skip.pass_name == "pool-by-taps"] == [
        "its padding depends on sizes that are known only at run time"
    ]


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.integers(3, 6), st.integers(0, 1), st.booleans())
def test_indices_of_the_largest(kernel: int, stride: int, pad: int, size: int, order: int, free: bool) -> None:
    pad = min(pad, kernel - 1)
    attrs: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    feeds = {"a": np.random.default_rng(0).permutation(2 * size * size).reshape(1, 2, size, size).astype(np.float32)}
    proto = model("MaxPool", feeds, 12, outputs=2, storage_order=order, **attrs)
    assert_same(of_any_size(proto) if free else proto, feeds, "pool-by-taps", runtime=True)


@given(st.integers(1, 3), st.integers(0, 2), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 6))
def test_cumulative_products(rank: int, axis: int, reverse: bool, exclusive: bool, late: bool, size: int) -> None:
    feeds = {"a": normal(*(size, 3, 2)[:rank], dtype=np.float64), "b": np.array(axis % rank - rank, np.int64)}
    given_ = feeds if late else {"a": feeds["a"]}
    constant = {} if late else {"b": feeds["b"]}
    proto = model("CumProd", given_, 26, constant=constant, reverse=int(reverse), exclusive=int(exclusive))
    expected = feeds["a"][tuple(slice(None, None, -1 if reverse and i == axis % rank else 1) for i in range(rank))]
    if exclusive:
        first = np.ones_like(np.take(expected, [0], axis % rank))
        expected = np.concatenate([first, np.delete(expected, -1, axis % rank)], axis % rank)
    expected = np.cumprod(expected, axis % rank)
    expected = expected[tuple(slice(None, None, -1 if reverse and i == axis % rank else 1) for i in range(rank))]
    rewritten = wrap(proto)
    run_passes(rewritten, PASSES, RTX)
    assert not any(True for _ in rewritten.nodes("CumProd"))
    np.testing.assert_allclose(ReferenceEvaluator(rewritten.proto).run(None, given_)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative_products_of_any_batch(reverse: int) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 13, opset_import: ["": 26]> g (float[n,5] a) => (float[n,5] y) <int64 one = {{1}}>
        {{ y = CumProd <reverse = {reverse}> (a, one) }}"""
    )
    a, rewritten = normal(3, 5, dtype=np.float32), wrap(proto)
    run_passes(rewritten, PASSES, RTX)
    assert not any(True for _ in rewritten.nodes("CumProd"))
    expected = np.cumprod(a[:, ::-1], 1)[:, ::-1] if reverse else np.cumprod(a, 1)
    np.testing.assert_allclose(ReferenceEvaluator(rewritten.proto).run(None, {"a": a})[0], expected, rtol=1e-6)


@given(
    st.sampled_from(("add", "mul", "max", "min")),
    st.sampled_from((np.float32, np.int32)),
    st.integers(0, 2),
    st.booleans(),
)
def test_scatters_of_elements(reduction: str, dtype: Any, axis: int, negative: bool) -> None:
    random = np.random.default_rng(0)
    shape = (3, 2, 4)
    indices = random.integers(-shape[axis] if negative else 0, shape[axis], (2, 2, 3))
    feeds = {"a": random.integers(-5, 5, shape).astype(dtype), "b": indices}
    feeds["c"] = random.integers(-5, 5, indices.shape).astype(dtype)
    assert_same(model("ScatterElements", feeds, 18, axis=axis, reduction=reduction), feeds, "scatter-by-position")


@given(
    st.integers(3, 5),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(("linear", "circular")),
    st.data(),
    st.booleans(),
)
def test_updates_of_caches(rank: int, axis: int, placed: bool, mode: str, data: st.DataObject, free: bool) -> None:
    assume(axis < rank and not (rank == 4 and mode == "linear"))
    random = np.random.default_rng(0)
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    sizes[axis] = data.draw(st.integers(1, 6))
    update = [*sizes[:axis], data.draw(st.integers(1, sizes[axis])), *sizes[axis + 1 :]]
    room = sizes[axis] - update[axis]
    first = data.draw(st.lists(st.integers(0, room if mode == "linear" else 9), min_size=sizes[0], max_size=sizes[0]))
    feeds = {"a": random.normal(size=sizes).astype(np.float32), "b": random.normal(size=update).astype(np.float32)}
    if placed:
        feeds["c"] = np.array(first, np.int64)
    proto = model("TensorScatter", feeds, 24, axis=axis - rank, mode=mode)
    if free:
        for value in (*proto.graph.input, *proto.graph.output):
            for number, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}{number}"
    assert_same(proto, feeds, "update-by-scatter")


@pytest.mark.parametrize("free", ["", "slices", "places"])
@pytest.mark.parametrize(("reduction", "depth"), list(itertools.product(("add", "mul", "max", "min"), (1, 2, 3))))
def test_scatters_of_slices(reduction: str, depth: int, free: str) -> None:
    random = np.random.default_rng(0)
    shape = (2, 3, 2)
    indices = np.stack([random.integers(-size, size, (2, 4)) for size in shape[:depth]], -1)
    feeds = {"a": normal(*shape), "b": indices, "c": random.standard_normal((2, 4, *shape[depth:])).astype(np.float32)}
    proto = model("ScatterND", feeds, 18, reduction=reduction)
    for value in proto.graph.input:
        # How large slices are, or how many there are and in how many places: one of the two has to be known.
        first, last = {"slices": ({"a": depth, "b": 3, "c": 2}[value.name], 9), "places": (0, 2)}.get(free, (9, 0))
        if free == "places" and value.name == "a":
            last = depth
        for number, dim in enumerate(value.type.tensor_type.shape.dim):
            if first <= number < last:
                dim.dim_param = f"{value.name}{number}"
    assert_same(proto, feeds, "scatter-by-position")


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_scatters_by_what_constants_make(op: str) -> None:
    last = int(op == "ScatterND")
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 18]> g (float[4,2] d, float[4,2] u) => (float[4,2] y)
        <int64[4,1] i = {{1, 1, -1, 1}}, int64[1] wide = {{{2 - last}}}> {{
          s = Shape (i)  rows = ReduceProd <keepdims = 1> (s)  shape = Concat <axis = 0> (rows, wide)
          t = Expand (i, shape)  y = {op} <reduction = "add"> (d, t, u)
        }}"""
    )
    assert_same(proto, {"d": normal(4, 2), "u": normal(4, 2)}, "scatter-by-position")


@pytest.mark.parametrize("last", ["2", "n"])
def test_a_scatter_of_no_updates_leaves_what_it_was(last: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[4,{last}] d, int64[0,1] i, float[0,{last}] u) => (float[4,m] y)
        {{ y = ScatterND <reduction = "add"> (d, i, u) }}"""
    )
    feeds: Arrays = {"d": normal(4, 2), "i": np.zeros((0, 1), np.int64), "u": normal(0, 2)}
    assert_same(proto, feeds, "scatter-by-position")


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (
            "float[n,m] d, int64[e,1] i, float[e,m] u",
            "how many its updates are, and how large, is known only at run time",
        ),
        ("float[n,2] d, int64[e,k] i, float[e,2] u", "how many axes 'i' counts in is known only at run time"),
    ],
)
def test_scatters_of_any_size_are_refused(sizes: str, reason: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 18]> g ({sizes}) => (float[n,p] y)
        {{ y = ScatterND <reduction = "add"> (d, i, u) }}"""
    )
    (skip,) = run_passes(wrap(proto), PASSES, RTX).skipped
    assert skip.reason == reason


@given(st.integers(2, 9), st.integers(1, 2), st.integers(0, 12), st.booleans(), st.booleans(), st.integers(1, 2))
def test_fourier_transforms(size: int, parts: int, length: int, inverse: bool, onesided: bool, axis: int) -> None:
    assume(not (onesided and (inverse or parts == 2)))
    shape = [2, 3, 3, parts]
    shape[axis] = size
    feeds = {"a": normal(*shape)}
    constant = {"b": np.array(length, np.int64)} if length else {}
    proto = model(
        "DFT", feeds, 19, constant=constant, axis=axis, inverse=int(inverse), onesided=int(onesided), shape=[None] * 4
    )
    assert_same(proto, feeds, "fourier-by-matrix")


@pytest.mark.parametrize(("sizes", "axes"), [((4, 4), (1, 2, -2, -3)), ((4, 6), (1, 2)), ((6, 6, 6), (1, 3, -4))])
@pytest.mark.parametrize("onesided", [0, 1])
def test_fourier_transforms_along_an_axis_of_run_time(
    sizes: tuple[int, ...], axes: tuple[int, ...], onesided: int
) -> None:
    """Every axis is written that makes the stated shape; half a spectrum shows along which one it is."""
    for axis in axes:
        rank = len(sizes) + 2
        shape = [2, *sizes, 2]
        shape[axis % rank] = sizes[axis % rank - 1] // 2 + 1 if onesided else sizes[axis % rank - 1]
        x, a = helper.make_tensor_value_info("x", 1, [2, *sizes, 1]), helper.make_tensor_value_info("a", 7, [])
        y = helper.make_tensor_value_info("y", 1, shape)
        node = helper.make_node("DFT", ["x", "", "a"], ["y"], onesided=onesided)
        graph = helper.make_graph([node], "g", [x, a], [y])
        proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
        feeds = {"x": normal(2, *sizes, 1), "a": np.array(axis, np.int64)}
        assert_same(proto, feeds, "fourier-by-matrix", runtime=True)


@pytest.mark.parametrize(("onesided", "axes"), [(0, ()), (1, (1,))])
def test_an_axis_whose_size_is_free_may_be_the_one_of_run_time(onesided: int, axes: tuple[int, ...]) -> None:
    """A whole spectrum has the shape of its signal, whichever axis it is along; half of one shows another."""
    y = f"float[b,{3 if onesided else 4},4,2] y"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]> g (float[b,4,4,1] x, int64 a) => ({y})
        {{ y = DFT <onesided = {onesided}> (x, , a) }}"""
    )
    if not axes:
        (skip,) = run_passes(wrap(proto), PASSES, RTX).skipped
        assert (skip.pass_name, skip.reason) == ("fourier-by-matrix", "the size of axis 0 is known only at run time")
    for axis in axes:
        feeds = {"x": normal(3, 4, 4, 1), "a": np.array(axis, np.int64)}
        assert_same(proto, feeds, "fourier-by-matrix", runtime=True)


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_fourier_transforms(window: bool, onesided: int) -> None:
    feeds: Arrays = {"a": normal(2, 20, 1)}
    constant: Arrays = {"b": np.array(3, np.int64), "d": np.array(8, np.int64)}
    constant |= {"c": np.abs(normal(8))} if window else {"c": np.ones(8, np.float32)}
    proto = model("STFT", feeds, 17, constant=constant, onesided=onesided, shape=[None] * 4)
    assert_same(proto, feeds, "fourier-by-matrix", target=EIGHT)


@pytest.mark.parametrize("target", [RTX, EIGHT])
@pytest.mark.parametrize(("window", "parts"), [("", 1), ("w", 1), ("w", 2), ("", 2), ("v", 1), ("v", 2)])
def test_spectra_of_a_signal(target: Target, window: str, parts: int) -> None:
    """Of one whose length is free, where the window is constant; a computed one takes a signal of known length."""
    length = 20 if window == "v" else "n"
    onesided = int(parts == 1)
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[b,{length},{parts}] x, float[6] u) => (float[b,t,f,2] y)
        <float[6] w = {{1, 2, 3, -1, 0.5, 4}}, int64 step = {{3}}, int64 many = {{6}}> {{
          v = Abs (u)  y = STFT <onesided = {onesided}> (x, step, {window}, many)
        }}"""
    )
    feeds: Arrays = {"x": normal(2, 20, parts), "u": normal(6)}
    if parts == 1:
        assert_same(proto, feeds, "fourier-by-matrix", target=target)
        return
    # ONNX's reference implementation takes no complex signals, and ONNX Runtime before 1.28 has other spectra of them.
    rewritten = wrap(proto)
    assert "fourier-by-matrix" in {edit.pass_name for edit in run_passes(rewritten, PASSES, target).edits}
    (found,) = session(rewritten.proto).run(None, feeds)
    signal = feeds["x"][..., 0] + 1j * feeds["x"][..., 1]
    taps = {"": np.ones(6), "w": np.array([1, 2, 3, -1, 0.5, 4]), "v": np.abs(feeds["u"])}[window]
    spectra = np.fft.fft(np.stack([signal[:, at : at + 6] * taps for at in range(0, 15, 3)], 1))
    np.testing.assert_allclose(found, np.stack([spectra.real, spectra.imag], -1), atol=1e-4)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.tuples(st.integers(0, 1), st.integers(0, 2)),
    st.integers(5, 8),
    st.booleans(),
)
def test_columns_are_put_together(
    block: int, stride: int, dilation: int, pads: tuple[int, int], size: int, late: bool
) -> None:
    sizes, blocks, strides = [size, size + 1], [block, block + 1], [stride, 1]
    counts = [
        (length + sum(pads) - (extent - 1) * dilation - 1) // step + 1
        for length, extent, step in zip(sizes, blocks, strides, strict=True)
    ]
    feeds: Arrays = {"a": normal(2, 3 * block * (block + 1), counts[0] * counts[1])}
    image, constant = {"b": np.array(sizes)}, {"c": np.array(blocks)}
    attrs = {"strides": strides, "dilations": [dilation] * 2, "pads": [pads[0]] * 2 + [pads[1]] * 2}
    feeds |= image if late else {}
    proto = model("Col2Im", feeds, 18, constant={**constant, **({} if late else image)}, **attrs)
    assert_same(proto, feeds, "unfold-columns", runtime=True)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("asked", [None, [1, 2, 4, 4], [1, 2, 5, 6]])
def test_unpooling(asked: list[int] | None, late: bool, free: bool) -> None:
    feeds: Arrays = {"a": normal(1, 2, 2, 2), "b": np.array([[[[0, 3], [9, 15]], [[16, 22], [24, 30]]]], np.int64)}
    constant = {} if asked is None else {"c": np.array(asked, np.int64)}
    if late:
        feeds |= constant
        constant = {}
    shape = [None] * 4 if free or not late else asked
    proto = model("MaxUnpool", feeds, 11, constant=constant, kernel_shape=[2, 2], strides=[2, 2], shape=shape)
    rewritten = wrap(of_any_size(proto) if free else proto)
    done = run_passes(rewritten, PASSES, RTX)
    if free and asked:
        # ONNX counts in the image that was pooled, and ONNX Runtime in the one that is asked for.
        assert "unpool-by-scatter" in {skip.pass_name for skip in done.skipped}
        return
    assert "unpool-by-scatter" in {edit.pass_name for edit in done.edits}
    (got,) = ReferenceEvaluator(rewritten.proto).run(None, feeds)
    expected = np.zeros((1, 2, 4, 4), np.float32)
    np.put(expected, feeds["b"], feeds["a"])
    whole = np.zeros(asked or (1, 2, 4, 4), np.float32)
    whole[:, :, :4, :4] = expected
    np.testing.assert_array_equal(got, whole)


@given(st.lists(st.integers(-5, 4), min_size=1, max_size=4), st.integers(-2, 1), st.booleans())
def test_one_hot(indices: list[int], axis: int, late: bool) -> None:
    feeds: Arrays = {"c": np.array([2.0, 5.0], np.float32), "a": np.array(indices, np.int64)}
    depth = {"b": np.array(5, np.int64)}
    shape = [len(indices), len(indices)]
    shape[axis] = 5
    proto = model(
        "OneHot", {**feeds, **(depth if late else {})}, 13, constant={} if late else depth, axis=axis, shape=shape
    )
    given_ = {**feeds, **(depth if late else {})}
    assert_same(proto, given_, "compare-positions", target=EIGHT)


@given(st.lists(st.integers(-5, 4), min_size=1, max_size=4), st.integers(0, 5), st.integers(-2, 1), st.booleans())
def test_one_hot_as_deep_as_an_input_is_long(indices: list[int], depth: int, axis: int, is_float: bool) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (int64[n] a, float[d] k, float[2] c) => (float[p,q] y) <int64 zero = {{0}}>
        {{ s = Shape (k)  l = Gather (s, zero)  f = Cast <to = {1 if is_float else 7}> (l)
           y = OneHot <axis = {axis}> (a, f, c) }}"""
    )
    rewritten = wrap(proto)
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["compare-positions"]
    feeds: Arrays = {"a": np.array(indices), "k": normal(depth), "c": np.array([2.0, 5.0], np.float32)}
    (expected,), (got,) = (ReferenceEvaluator(each).run(None, feeds) for each in (proto, rewritten.proto))
    np.testing.assert_array_equal(got, expected)


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_compress(chosen: list[bool], late: bool, whole: bool) -> None:
    assume(any(chosen))
    feeds: Arrays = {"a": normal(len(chosen), 2)}
    if whole:
        feeds = {"a": normal(1, len(chosen))}
    condition = {"b": np.array(chosen)}
    attrs = {} if whole else {"axis": 0}
    shape = [sum(chosen)] if whole else [sum(chosen), 2]
    given_ = {**feeds, **(condition if late else {})}
    proto = model("Compress", given_, 11, constant={} if late else condition, shape=shape, **attrs)
    assert_same(proto, given_, "compress-by-size")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.sampled_from((np.float32, np.int64, np.bool_)))
def test_nonzero_of_constants(shape: list[int], dtype: Any) -> None:
    values = np.random.default_rng(len(shape)).integers(0, 2, shape).astype(dtype)
    feeds: Arrays = {"a": normal(2)}
    proto = model("NonZero", {"a": values}, 13, constant={"b": values}, shape=[len(shape), None])
    del proto.graph.input[:], proto.graph.node[0].input[:]
    proto.graph.node[0].input.append("b")
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    proto.graph.input.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2]))
    assert_same(proto, feeds, "write-selections")


@pytest.mark.parametrize("mask", ["a = Greater (x, zero)", "a = Cast <to = 9> (one)"])
def test_nonzero_of_inputs_and_of_scalars_stays(mask: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (int64[p,q] y)
        <float zero = {{0}}, float one = {{1}}> {{ {mask}  y = NonZero (a) }}"""
    assert not run_passes(wrap(onnx.parser.parse_model(text)), PASSES, RTX).edits


def test_hardmax_on_8_6() -> None:
    feeds = {"a": normal(2, 3, 4)}
    assert_same(model("Hardmax", feeds, 13, axis=1), feeds, "compare-positions", target=EIGHT)


@pytest.mark.parametrize("target", [RTX, EIGHT])
@pytest.mark.parametrize("norm", [1, 2])
def test_lp_pool_of_one_axis(target: Target, norm: int) -> None:
    feeds = {"a": normal(2, 3, 7)}
    proto = model("LpPool", feeds, 18, kernel_shape=[3], strides=[2], pads=[1, 0], p=norm)
    assert_same(proto, feeds, "pool-by-taps", target=target)


@pytest.mark.parametrize("target", [RTX, EIGHT])
def test_lp_pool_of_two_axes_stays(target: Target) -> None:
    done = run_passes(wrap(model("LpPool", {"a": normal(2, 3, 7, 7)}, 13, kernel_shape=[3, 3])), PASSES, target)
    assert not done.edits


@pytest.mark.parametrize("target", [RTX, EIGHT])
@pytest.mark.parametrize(("opset", "axis"), [(11, 0), (11, None), (12, 2), (12, -2), (11, 3)])
def test_hardmax_of_several_axes(target: Target, opset: int, axis: int | None) -> None:
    """Neither runtime nor reference has these: the first of the largest of all axes from its own on."""
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 2, 4)).astype(np.float32)
    rewritten = wrap(model("Hardmax", {"a": x}, opset, **({} if axis is None else {"axis": axis})))
    run_passes(rewritten, PASSES, target)
    first = 1 if axis is None else axis % 4
    flat = x.reshape(math.prod(x.shape[:first]), -1)
    expected = (np.arange(flat.shape[1]) == flat.argmax(1)[:, None]).reshape(x.shape)
    if first < 3 or target == EIGHT:
        assert not any(node.op_type == "Hardmax" and node.input[0] == "a" for node in rewritten.proto.graph.node)
        rewritten.proto.opset_import[0].version = 13
        np.testing.assert_array_equal(ReferenceEvaluator(rewritten.proto).run(None, {"a": x})[0], expected)


def test_hardmax_of_one_axis_stays() -> None:
    assert not run_passes(wrap(model("Hardmax", {"a": normal(2, 3, 4)}, 13, axis=1)), PASSES, RTX).edits


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
@pytest.mark.parametrize("scales", [(), (1,)])
def test_quantisers_of_any_rank_whose_single_scale_comes_at_run_time(
    shape: tuple[int, ...], scales: tuple[int, ...]
) -> None:
    values = (np.arange(np.prod(shape, dtype=int)) + 20).astype(np.uint8).reshape(shape)
    feeds: Arrays = {"a": values, "b": np.full(scales, 0.1, np.float32), "c": np.full(scales, 7, np.uint8)}
    proto = model("DequantizeLinear", feeds, 13, shape=list(shape))
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    assert_same(proto, feeds, "quantize-in-arithmetic", runtime=True)


@given(st.sampled_from((np.uint8, np.int8)), st.booleans(), st.booleans())
def test_quantisers_whose_scales_come_at_run_time(dtype: Any, along: bool, back: bool) -> None:
    random = np.random.default_rng(0)
    scales = np.array([0.1, 0.2, 0.5], np.float32) if along else np.array(0.1, np.float32)
    points = np.full(scales.shape, 7, dtype)
    limits = np.iinfo(dtype)
    values = random.integers(limits.min, limits.max, (2, 3, 4)).astype(dtype)
    feeds: Arrays = {"a": values if back else normal(2, 3, 4) * 20, "b": scales, "c": points}
    op = "DequantizeLinear" if back else "QuantizeLinear"
    proto = model(op, feeds, 13, axis=1, shape=[2, 3, 4])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32 if back else dtype))
    proto.graph.output[0].type.tensor_type.elem_type = kind
    assert_same(proto, feeds, "quantize-in-arithmetic", runtime=True)


@pytest.mark.parametrize("opset", [1, 5, 7, 8, 9, 10])
@pytest.mark.parametrize("op", ["DequantizeLinear", "MaxPool", "AveragePool", "Mod", "BitShift", "OneHot", "Compress"])
def test_old_opsets_get_no_operators_that_they_lack(op: str, opset: int) -> None:
    try:
        onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        pytest.skip("the operator itself is newer")
    pools = {"kernel_shape": [2, 2], **({"dilations": [2, 2]} if op == "MaxPool" and opset >= 10 else {})}
    feeds: Arrays = {"a": normal(1, 1, 5, 5)}
    if op in ("DequantizeLinear", "BitShift"):
        feeds = {name: np.ones((), np.uint8) for name in "ac"} | {"b": np.ones((), np.float32)}
    elif op in ("OneHot", "Compress", "Mod"):
        feeds = {"a": np.ones(3, np.int64), "b": np.ones((), np.int64), "c": np.ones(2, np.float32)}
    attrs = pools if "Pool" in op else {}
    names = sorted(feeds)[: onnx.defs.get_schema(op, opset).max_input]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feeds[name].dtype), feeds[name].shape)
        for name in names
    ]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "g", values, [y])
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    # The runner holds the result to what ONNX's checker says of that opset.
    run_passes(wrap(proto), PASSES, RTX)


@given(st.integers(1, 4), st.booleans())
def test_determinants(size: int, batch: bool) -> None:
    feeds = {"a": normal(*([2] if batch else []), size, size, dtype=np.float64)}
    assert_same(model("Det", feeds, 11, shape=[2] if batch else []), feeds, "determinant-by-minors")


@given(st.integers(1, 6), st.sampled_from((0.5, -1.25)))
def test_ranges(count: int, delta: float) -> None:
    feeds: Arrays = {"a": np.array(2.0, np.float32), "c": np.array(delta, np.float32)}
    feeds["b"] = np.array(2.0 + delta * (count - 0.5), np.float32)
    assert_same(model("Range", feeds, 11, shape=[count]), feeds, "range-by-size")


@given(st.booleans(), st.sampled_from((np.uint8, np.int8)), st.booleans())
def test_products_of_integers(conv: bool, dtype: Any, points: bool) -> None:
    random, limits = np.random.default_rng(0), np.iinfo(dtype)
    shapes = [(1, 2, 4, 4), (3, 2, 2, 2)] if conv else [(2, 3, 5), (5, 4)]
    feeds = {
        name: random.integers(limits.min, limits.max, s).astype(dtype) for name, s in zip("ab", shapes, strict=True)
    }
    if points:
        feeds |= {name: np.array(7, dtype) for name in "cd"}
    op = "ConvInteger" if conv else "MatMulInteger"
    proto = model(op, feeds, 13, shape=[None] * (4 if conv else 3), **({"pads": [1] * 4} if conv else {}))
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    assert_same(proto, feeds, "multiply-in-float")


@pytest.mark.parametrize("conv", [False, True])
@pytest.mark.parametrize("length", [5, 1200])
def test_products_with_constant_weights_and_a_zero_point_of_run_time(conv: bool, length: int) -> None:
    """As `quantize_dynamic` writes them; sums beyond what float32 holds are of several products."""
    feeds: Arrays = {
        "a": np.full((1, length, 3, 3) if conv else (2, length), 255, np.uint8),
        "c": np.array(0, np.uint8),
    }
    constant: Arrays = {"b": np.full((3, length, 2, 2) if conv else (length, 4), 127, np.int8)}
    constant["d"] = np.full(3 if conv else 4, -3, np.int8)
    constant["b"][0] = 126
    proto = model(
        "ConvInteger" if conv else "MatMulInteger", feeds, 13, constant=constant, shape=[None] * (4 if conv else 2)
    )
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    rewritten = wrap(proto)
    assert "multiply-in-float" in {edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits}
    (found,) = ReferenceEvaluator(rewritten.proto).run(None, feeds)
    steps, taps = feeds["a"].astype(np.int64), constant["b"].astype(np.int64) + 3
    expected = np.full((1, 3, 2, 2), 255) * taps.sum((1, 2, 3))[:, None, None] if conv else steps @ taps
    assert np.array_equal(found, expected)


def test_zero_points_of_rows_columns_and_kernels() -> None:
    """Held to ONNX's words: its reference subtracts those of rows from columns, and ONNX Runtime has none of them."""
    random = np.random.default_rng(0)
    feeds: Arrays = {"a": random.integers(0, 255, (4, 4), np.uint8), "b": random.integers(-99, 99, (4, 4), np.int8)}
    feeds |= {"c": np.array([1, 20, 3, 40], np.uint8), "d": np.array([5, -6, 7, -8], np.int8)}
    (found,) = ReferenceEvaluator(_in_float("MatMulInteger", feeds)).run(None, feeds)
    a, b, rows, columns = (each.astype(np.int32) for each in feeds.values())
    assert np.array_equal(found, (a - rows[:, None]) @ (b - columns))
    feeds |= {
        "a": random.integers(0, 255, (1, 2, 4, 4), np.uint8),
        "b": random.integers(-99, 99, (4, 2, 1, 1), np.int8),
    }
    feeds["c"] = np.array(9, np.uint8)
    (found,) = ReferenceEvaluator(_in_float("ConvInteger", feeds)).run(None, feeds)
    a, b, point, kernels = (each.astype(np.int32) for each in feeds.values())
    taps = b[:, :, 0, 0] - kernels[:, None]
    assert np.array_equal(found, np.einsum("ncij,kc->nkij", a - point, taps))


@pytest.mark.parametrize("point", [(4,), (3, 1), (1, 1, 4), (2, 5, 4), (0,)])
def test_zero_points_that_do_not_fit_a_constant_weight_are_left(point: tuple[int, ...]) -> None:
    feeds: Arrays = {"a": np.ones((2, 4), np.uint8)}
    constant: Arrays = {"b": np.ones((4, 3), np.int8), "c": np.array(0, np.uint8), "d": np.ones(point, np.int8)}
    run = run_passes(wrap(model("MatMulInteger", feeds, 13, constant=constant, shape=[2, 3])), PASSES, RTX)
    assert "multiply-in-float" not in {edit.pass_name for edit in run.edits}


@pytest.mark.parametrize("sizes", [(0, 3), (4, 0), (0, 0)])
def test_products_of_empty_weights(sizes: tuple[int, int]) -> None:
    feeds: Arrays = {"a": np.ones((2, sizes[0]), np.uint8)}
    constant: Arrays = {"b": np.ones(sizes, np.int8)}
    proto = model("MatMulInteger", feeds, 13, constant=constant, shape=[None, None])
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    run_passes(wrap(proto), PASSES, RTX)


def _in_float(op: str, feeds: Arrays) -> onnx.ModelProto:
    proto = model(op, feeds, 13, shape=[None] * feeds["a"].ndim)
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    rewritten = wrap(proto)
    assert {edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits} == {"multiply-in-float"}
    return rewritten.proto


@given(st.integers(2, 4), st.sampled_from((0.5, 0.9)))
def test_normalization_in_training(rank: int, momentum: float) -> None:
    feeds: Arrays = {"a": normal(4, 3, 2, 2)[(..., *[0] * (4 - rank))]}
    feeds |= {name: np.abs(normal(3)) + number for number, name in enumerate("bcde")}
    made = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xyz"]
    node = helper.make_node("BatchNormalization", list("abcde"), list("xyz"), training_mode=1, momentum=momentum)
    given_ = [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v.shape) for k, v in feeds.items()]
    graph = helper.make_graph([node], "g", given_, made)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15)])
    assert_same(proto, feeds, "normalize-by-batch")


@pytest.mark.parametrize(("ratio", "written"), [(0.0, True), (0.5, False)])
def test_only_a_dropout_that_drops_nothing_is_written(ratio: float, written: bool) -> None:
    constant: Arrays = {"b": np.array(ratio, np.float32), "c": np.array(True)}
    rewritten = wrap(model("Dropout", {"a": normal(2, 3)}, 13, constant=constant, shape=[2, 3]))
    assert bool(run_passes(rewritten, PASSES, RTX).edits) == written


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("scale", [1.0, 300.0])
@given(st.integers(1, 4), st.integers(-4, 3))
def test_logarithms_of_softmax(opset: int, scale: float, rank: int, axis: int) -> None:
    assume(-rank <= axis < rank)
    feeds = {"a": (np.random.default_rng(0).normal(size=(2, 3, 1, 4)[:rank]) * scale).astype(np.float32)}
    # ONNX's reference takes the logarithm of a softmax too.
    assert_same(model("LogSoftmax", feeds, opset, axis=axis), feeds, "shift-exponentials", runtime=True)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("least", [-np.inf, -300.0])
@settings(max_examples=25)
@given(st.sets(st.integers(-3, 2), max_size=3), st.booleans(), st.sampled_from((1.0, 300.0)))
def test_logarithms_of_sums_of_exponentials(opset: int, least: float, axes: set[int], keep: bool, scale: float) -> None:
    assume(len({axis % 3 for axis in axes}) == len(axes))
    random = np.random.default_rng(0)
    feeds = {"a": (random.normal(size=(2, 3, 4)) * scale).astype(np.float32)}
    feeds["a"][0, :, 1:] = least
    given = {"axes": sorted(axes)} if opset == 13 and axes else {}
    constant = {"b": np.array(sorted(axes), np.int64)} if opset == 18 and axes else None
    proto = wrap(model("ReduceLogSumExp", feeds, opset, constant=constant, keepdims=int(keep), **given))
    assert {edit.pass_name for edit in run_passes(proto, PASSES, EIGHT).edits} >= {"shift-exponentials"}
    (got,) = session(proto.proto, sized=False).run(None, feeds)
    # ONNX Runtime itself loses what is small beside -inf.
    over = tuple(axes) or None
    expected = np.logaddexp.reduce(feeds["a"].astype(np.float64), axis=over, keepdims=keep)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cast", ["", "c = Cast <to = 1> (s)"])
@given(st.integers(0, 2), st.booleans())
def test_one_row_of_shares_times_values(cast: str, batch: int, free: bool) -> None:
    sizes = ",".join(["2"] * batch)
    lead = f"{sizes}," if sizes else ""
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{lead}1,5] x, bool[{lead}1,1] none, float[{lead}5,{"n" if free else "3"}] v) => (y)
        <float zero = {{0.0}}> {{
          s = Softmax <axis = -1> (x) {cast} w = Where (none, zero, {"c" if cast else "s"}) y = MatMul (w, v)
        }}""")
    random = np.random.default_rng(batch)
    lead_sizes = (2,) * batch
    feeds: Arrays = {
        "x": random.normal(size=(*lead_sizes, 1, 5)).astype(np.float32),
        "none": random.random((*lead_sizes, 1, 1)) > 0.5,
        "v": random.normal(size=(*lead_sizes, 5, 3)).astype(np.float32),
    }
    assert_same(proto, feeds, "double-one-row", EIGHT)


@pytest.mark.parametrize(("target", "rows", "doubled"), [(EIGHT, 1, 2), (EIGHT, 2, 0), (RTX, 1, 0)])
def test_both_products_of_an_attention_over_one_query(target: Target, rows: int, doubled: int) -> None:
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[2,4,{rows},8] q, float[2,4,8,5] k, float[2,1,1,5] mask, bool[2,1,1,1] none, float[2,4,5,8] v) => (y)
        <float zero = {{0.0}}> {{
          p = MatMul (q, k) m = Add (p, mask) s = Softmax <axis = -1> (m) w = Where (none, zero, s) y = MatMul (w, v)
          other = MatMul (q, k)
        }}""")
    edits = run_passes(wrap(proto), PASSES, target).edits
    assert [edit.pass_name for edit in edits].count("double-one-row") == doubled
