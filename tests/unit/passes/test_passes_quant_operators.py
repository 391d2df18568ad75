"""Operators on integers, written with Q/DQ: held to exact arithmetic rather than to any runtime's kernels.

ONNX Runtime 1.23's QLinearConv of uint8 by uint8 is itself wrong for some shapes, so it is no reference here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX, parse, rewritten
from support.session import Array, run
from trtconv.passes import PASSES

EXPAND = tuple(p for p in PASSES if p.name in ("expand-integer-operators", "normalize-quantizers"))
TIE = 1e-3
"""How near the middle between two steps, in steps, a float32 sum may fall to the other side."""


def model_of(
    op: str,
    inputs: Sequence[str],
    known: dict[str, Array],
    feeds: dict[str, Array],
    domain: str = "",
    opset: int = 17,
    **attrs: Any,
) -> onnx.ModelProto:
    """A model of one operator."""
    made = helper.make_node(op, inputs, ["y"], name="op", domain=domain, **attrs)
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()
    ]
    elem = (
        TensorProto.INT32
        if op.endswith("Integer")
        else helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype)
    )
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in known.items()]
    graph = helper.make_graph([made], "g", values, [helper.make_tensor_value_info("y", elem, None)], tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def sums(op: str, x: Array, w: Array, **attrs: Any) -> Array:
    """Adds up products of integers, exactly: in float32 below 2**24."""
    nodes = [helper.make_node(op, ["x", "w"], ["y"], **attrs)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in (("x", x), ("w", w))]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = run(made, {"x": x.astype(np.float32), "w": w.astype(np.float32)})[0].astype(np.float64)
    assert np.abs(result).max() < 2**24
    return result


def integers(seed: int, dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def shifted(values: Array, point: Array, axis: int) -> Array:
    wide = [1] * values.ndim
    wide[axis] = -1
    return values.astype(np.int64) - np.asarray(point).astype(np.int64).reshape(wide if np.size(point) > 1 else ())


def assert_rounded(real: Array, got: Array, point: int) -> None:
    """Holds integers to the nearest steps of exact values; at a tie either will do."""
    limits = np.iinfo(got.dtype)
    best = np.clip(np.rint(real) + point, limits.min, limits.max)
    off = np.abs(best - got)
    assert off.max(initial=0) <= 1
    assert (np.abs(np.abs(real - np.floor(real)) - 0.5)[off > 0] < TIE).all()


TYPES = st.sampled_from([("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
POINTS = st.integers(0, 100)


@settings(max_examples=60)
@given(
    TYPES,
    st.integers(1, 3),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.booleans(),
    POINTS,
    st.integers(0, 99),
    st.integers(1, 2),
)
def test_convolutions(types, rank, group, channels, bias, point, seed, stride) -> None:
    x_type, w_type = types
    x, w = integers(seed, x_type, 2, 4, *[5] * rank), integers(seed + 1, w_type, 8, 4 // group, *[3] * rank)
    random = np.random.default_rng(seed)
    w_scale = random.uniform(0.01, 0.1, 8 if channels else ()).astype(np.float32)
    w_point = np.zeros(np.shape(w_scale), w_type) + np.array(0 if w_type == "int8" else 128, w_type)
    known = {
        "xs": np.float32(0.03), "xz": np.array(point, x_type), "w": w, "ws": w_scale, "wz": w_point,
        "ys": np.float32(1.7), "yz": np.array(5, x_type), "b": random.integers(-9000, 9000, 8).astype(np.int32),
    }  # fmt: skip
    attrs = {"strides": [stride] * rank, "pads": [1] * 2 * rank, "group": group}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if bias else [])]
    known = {n: v for n, v in known.items() if n in names}
    model, result = rewritten(model_of("QLinearConv", names, known, {"x": x}, **attrs), RTX, EXPAND)
    assert "Conv" in {n.op_type for n in model.proto.graph.node} and not result.skipped
    acc = sums("Conv", x.astype(np.int64) - point, shifted(w, w_point, 0), **attrs)
    wide = [1, -1] + [1] * rank
    if bias:
        acc = acc + known["b"].reshape(wide)
    scale = 0.03 * w_scale.astype(np.float64).reshape(wide if channels else ()) / np.float64(np.float32(1.7))
    scale = scale * (np.float64(np.float32(0.03)) / 0.03)
    assert_rounded(acc * scale, run(model.proto, {"x": x})[0], 5)


@settings(max_examples=40)
@given(
    TYPES,
    st.sampled_from(["QLinearMatMul", "QGemm", "QGemm transB", "QGemm alpha"]),
    st.booleans(),
    POINTS,
    st.integers(0, 99),
)
def test_products(types, op, channels, point, seed) -> None:
    x_type, w_type = types
    op, _, variant = op.partition(" ")
    x, w = integers(seed, x_type, 3, 6), integers(seed + 1, w_type, 6, 5)
    w_scale = np.random.default_rng(seed).uniform(0.01, 0.1, 5 if channels else ()).astype(np.float32)
    w_point = np.zeros(np.shape(w_scale), w_type) + np.array(0 if w_type == "int8" else 128, w_type)
    bias = np.arange(-2, 3).astype(np.int32) * 1000
    known = {"xs": np.float32(0.03), "xz": np.array(point, x_type), "w": w, "ws": w_scale, "wz": w_point}
    known |= {"b": bias, "ys": np.float32(1.7), "yz": np.array(5, x_type)}
    acc = sums("MatMul", x.astype(np.int64) - point, shifted(w, w_point, 1))
    alpha, attrs, domain = 1.0, {}, ""
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    if op == "QGemm":
        names.insert(6, "b")
        acc, domain = acc + bias, "com.microsoft"
        if variant == "transB":
            known["w"], attrs = np.ascontiguousarray(w.T), {"transB": 1}
        if variant == "alpha":
            alpha, attrs = 0.5, {"alpha": 0.5}
    known = {n: v for n, v in known.items() if n in names}
    model, result = rewritten(model_of(op, names, known, {"x": x}, domain, **attrs), RTX, EXPAND)
    assert not result.skipped
    scale = alpha * np.float64(np.float32(0.03)) * w_scale.astype(np.float64) / np.float64(np.float32(1.7))
    assert_rounded(acc * scale, run(model.proto, {"x": x})[0], 5)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("op", "pointed"),
    [
        ("QLinearAdd", True),
        ("QLinearMul", True),
        ("QLinearConcat", True),
        ("QLinearLeakyRelu", True),
        ("QLinearLeakyRelu", False),
        ("QLinearSigmoid", True),
        ("QLinearSigmoid", False),
        ("QLinearAveragePool", True),
    ],
)
def test_operators_of_onnx_runtime(op: str, dtype: str, pointed: bool) -> None:
    a, b = integers(1, dtype, 1, 2, 8, 8), integers(2, dtype, 1, 2, 8, 8)
    points = [np.array(v, dtype) for v in (3, 7, 9)]
    known = {
        "as": np.float32(0.03),
        "bs": np.float32(0.02),
        "ys": np.float32(0.05 if op != "QLinearSigmoid" else 1 / 256),
    }
    if pointed:
        known |= dict(zip(("az", "bz", "yz"), points, strict=True))
    slot = {n: (n if n in known else "") for n in ("az", "bz", "yz")}
    attrs: dict[str, Any] = {}
    if op in ("QLinearAdd", "QLinearMul"):
        names = ["a", "as", slot["az"], "b", "bs", slot["bz"], "ys", slot["yz"]]
    elif op == "QLinearConcat":
        names, attrs = ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], {"axis": 1}
    else:
        names = ["a", "as", slot["az"], "ys", slot["yz"]]
        attrs = {"QLinearLeakyRelu": {"alpha": 0.1}, "QLinearAveragePool": {"kernel_shape": [2, 2]}}.get(op, {})
    feeds = {n: v for n, v in {"a": a, "b": b}.items() if n in names}
    known = {n: v for n, v in known.items() if n in names}
    proto = model_of(op, names, known, feeds, "com.microsoft", **attrs)
    model, result = rewritten(proto, RTX, EXPAND)
    assert not result.skipped
    before, after = run(proto, feeds)[0], run(model.proto, feeds)[0]
    assert before.dtype == after.dtype
    assert np.abs(before.astype(int) - after.astype(int)).max() <= 1
    # An average of four integers is often just in the middle between two steps.
    assert (before != after).mean() < (0.1 if op == "QLinearAveragePool" else 0.02)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_choice_takes_each_side_by_its_own_scale_and_zero_point(dtype: str) -> None:
    a, b, which = integers(1, dtype, 64), integers(2, dtype, 64), integers(3, "uint8", 64) > 99
    names = ["which", "a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    known = {"as": np.float32(0.5), "bs": np.float32(0.25), "ys": np.float32(1)}
    known |= {name: np.array(value, dtype) for name, value in (("az", 30), ("bz", 90), ("yz", 5))}
    feeds = {"a": a, "b": b, "which": which}
    model, result = rewritten(model_of("QLinearWhere", names, known, feeds, "com.microsoft"), RTX, EXPAND)
    assert not result.skipped
    chosen = np.where(which, 0.5 * (a.astype(int) - 30), 0.25 * (b.astype(int) - 90))
    assert_rounded(chosen, run(model.proto, feeds)[0], 5)


@pytest.mark.parametrize(("point", "fits"), [(0, False), (200, True)])
def test_sums_are_as_large_as_the_zero_point_of_the_weight_leaves_them(point: int, fits: bool) -> None:
    """300 times 255 times 255 is beyond what float32 holds exactly, 300 times 255 times 55 is not."""
    w, x = np.full((1, 300, 1, 1), 255, np.uint8), np.zeros((1, 300, 1, 1), np.uint8)
    known = {"w": w, "xz": np.array(7, np.uint8), "wz": np.array([point], np.uint8)}
    _, result = rewritten(model_of("ConvInteger", ["x", "w", "xz", "wz"], known, {"x": x}), RTX, EXPAND)
    assert bool(result.edits) == fits


@settings(max_examples=40)
@given(
    st.sampled_from(["ConvInteger", "MatMulInteger"]), TYPES, st.booleans(), st.booleans(), POINTS, st.integers(0, 99)
)
def test_sums_of_integers_stay_exact(op, types, channels, pointed, point, seed) -> None:
    x_type, w_type = types
    conv = op == "ConvInteger"
    x = integers(seed, x_type, *((1, 2, 5, 5) if conv else (3, 6)))
    w = integers(seed + 1, w_type, *((4, 2, 3, 3) if conv else (6, 5)))
    count = w.shape[0 if conv else 1]
    limits = np.iinfo(w_type)
    w_point = (
        np.random.default_rng(seed)
        .integers(0, min(limits.max, 120), count if channels else (), endpoint=True)
        .astype(w_type)
    )
    if not pointed:
        point, w_point = 0, np.array(0, w_type)
    known = {"w": w} | ({"xz": np.array(point, x_type), "wz": w_point} if pointed else {})
    attrs: dict[str, Any] = {"pads": [1, 1, 1, 1]} if conv else {}
    names = ["x", "w", "xz", "wz"][: 4 if pointed else 2]
    model, result = rewritten(model_of(op, names, known, {"x": x}, **attrs), RTX, EXPAND)
    assert not result.skipped
    expected = sums(
        "Conv" if conv else "MatMul", x.astype(np.int64) - point, shifted(w, w_point, 0 if conv else 1), **attrs
    )
    got = run(model.proto, {"x": x})[0]
    assert got.dtype == np.int32 and np.array_equal(expected, got)


@pytest.mark.parametrize("names", ["x w", "x w _", "x w _ _", "x w xz", "x w xz _", "x w _ wz", "x w xz wz"])
def test_zero_points_of_sums_may_be_left_out_one_by_one(names: str) -> None:
    x, w = integers(1, "uint8", 3, 6), integers(2, "int8", 6, 5)
    inputs = ["" if name == "_" else name for name in names.split()]
    known = {"w": w, "xz": np.array(9, np.uint8), "wz": np.array(4, np.int8)}
    proto = model_of("MatMulInteger", inputs, {name: known[name] for name in known if name in inputs}, {"x": x})
    model, result = rewritten(proto, RTX, EXPAND)
    assert result.edits and not result.skipped
    expected = (x.astype(int) - 9 * ("xz" in inputs)) @ (w.astype(int) - 4 * ("wz" in inputs))
    assert np.array_equal(run(model.proto, {"x": x})[0], expected)


def test_sums_that_float32_cannot_hold_are_refused() -> None:
    w = np.full((1, 300, 1, 1), 255, np.uint8)
    proto = model_of("ConvInteger", ["x", "w"], {"w": w}, {"x": np.zeros((1, 300, 1, 1), np.uint8)})
    model, result = rewritten(proto, RTX, EXPAND)
    assert not result.edits and model.proto == proto
    assert "sums may reach 19507500" in result.skipped[0].reason
    w //= 200
    _, result = rewritten(
        model_of("ConvInteger", ["x", "w"], {"w": w}, {"x": np.zeros((1, 300, 1, 1), np.uint8)}), RTX, EXPAND
    )
    assert result.edits


REFUSED = {
    "it is Softmax as it was before opset 13": """
        g (uint8[2,4] x) => (uint8[2,4] y) <float s = {0.1}, uint8 z = {0}>
        { y = com.microsoft.QLinearSoftmax <opset = 11, axis = 1> (x, s, z, s, z) }""",
    "are not those of output channels": """
        g (uint8[2,4] x) => (uint8[2,3] y)
          <float[2] s = {0.1, 0.2}, uint8[2] z = {0, 0}, uint8[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12},
           float t = {1}, uint8 p = {0}>
        { y = QLinearMatMul (x, s, z, w, t, p, t, p) }""",
    "bias and scales do not fit": """
        g (uint8[1,1,2,2] x) => (uint8[1,3,2,2] y)
          <float s = {0.1}, uint8 z = {0}, uint8[3,1,1,1] w = {1, 2, 3}, float[3] t = {1, 1, 1}, int32[1] b = {3}>
        { y = QLinearConv (x, s, z, w, t, z, s, z, b) }""",
    "one for each row": """
        g (uint8[2,2] x) => (int32[2,2] y) <uint8[2] z = {1,2}, uint8[2,2] w = {1,2,3,4}>
        { y = MatMulInteger (x, w, z) }""",
    "weight is computed": """
        g (uint8[2,2] x, uint8[2,2] w) => (int32[2,2] y)
        { y = MatMulInteger (x, w) }""",
    "channels come last": """
        g (uint8[1,2,2,1] x) => (uint8[1,2,2,1] y) <uint8 z = {0}, uint8[1,1,1,1] w = {1}, float t = {1}>
        { y = com.microsoft.QLinearConv <channels_last = 1> (x, t, z, w, t, z, t, z) }""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_such_form_is_refused(reason: str) -> None:
    proto = parse('<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>' + REFUSED[reason])
    model, result = rewritten(proto, RTX, EXPAND)
    assert model.proto == proto
    assert [s.reason for s in result.skipped if reason in s.reason]


@pytest.mark.parametrize("opset", [10, 11, 12])
@pytest.mark.parametrize("count", [1, 3])
def test_old_opsets_take_one_scale_and_write_weights_with_several_in_float(opset: int, count: int) -> None:
    x, w = integers(1, "uint8", 1, 2, 4, 4), integers(2, "uint8", 3, 2, 1, 1)
    shape = () if count == 1 else (count,)
    scales = np.linspace(0.1, 0.3, count, dtype=np.float32).reshape(shape)
    known = {"s": np.float32(0.1), "z": np.array(4, np.uint8), "w": w}
    known |= {"ws": scales, "wz": np.full(shape, 9, np.uint8)}
    proto = model_of("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z"], known, {"x": x}, opset=opset)
    model, result = rewritten(proto, RTX, EXPAND)
    assert not result.skipped
    assert [n.op_type for n in model.proto.graph.node].count("DequantizeLinear") == (2 if count == 1 else 1)
    acc = sums("Conv", x.astype(np.int64) - 4, shifted(w, known["wz"], 0))
    assert_rounded(acc * scales.astype(np.float64).reshape((-1, 1, 1)), run(model.proto, {"x": x})[0], 4)


def test_old_opsets_refuse_several_scales_of_a_computed_weight() -> None:
    known = {"s": np.float32(0.1), "z": np.array(4, np.uint8)}
    known |= {"ws": np.full(3, 0.1, np.float32), "wz": np.full(3, 9, np.uint8)}
    feeds = {"x": integers(1, "uint8", 1, 2, 4, 4), "w": integers(2, "uint8", 3, 2, 1, 1)}
    proto = model_of("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z"], known, feeds, opset=11)
    _, result = rewritten(proto, RTX, EXPAND)
    assert [s.reason for s in result.skipped] == ["opset 11 has no Q/DQ per channel (13 has)"]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_an_interpolation_of_integers_moves_into_float(mode: str, dtype: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float s = {{0.1}}, {dtype} z = {{3}}, float[4] f = {{1,1,2,2}}>
        {{ q = QuantizeLinear (x, s, z)
          t = Identity (q)
          r = Resize <mode = "{mode}"> (t, , f)
          y = DequantizeLinear (r, s, z) }}"""
    )
    feeds = {"x": np.random.default_rng(0).uniform(-5, 5, (1, 2, 4, 4)).astype(np.float32)}
    model, _ = rewritten(proto, RTX, EXPAND)
    cut = ["Floor"] if dtype == "uint8" else ["Abs", "Floor", "Sign", "Mul"]
    assert [n.op_type for n in model.proto.graph.node] == [
        "QuantizeLinear", "Identity", "DequantizeLinear", "Add", "Resize", *cut, "Add", "QuantizeLinear",
        "DequantizeLinear",
    ]  # fmt: skip
    assert np.isfinite(run(model.proto, feeds)[0]).all()
    if mode == "linear":  # ONNX Runtime has no cubic one for integers
        assert np.array_equal(run(proto, feeds)[0], run(model.proto, feeds)[0])


@pytest.mark.parametrize("frame", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize(("dtype", "point"), [("int8", -20), ("int8", 0), ("uint8", 128), ("uint8", 100)])
@pytest.mark.parametrize("sizes", ["2,1.5", "0.7,3"])
def test_an_interpolation_of_integers_drops_fractions(frame: str, dtype: str, point: int, sizes: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,9,9] x) => (float[n,c,h,w] y)
          <float s = {{0.031}}, {dtype} z = {{{point}}}, float[4] f = {{1,1,{sizes}}}>
        {{ q = QuantizeLinear (x, s, z)
          r = Resize <mode = "linear", coordinate_transformation_mode = "{frame}"> (q, , f)
          y = DequantizeLinear (r, s, z) }}"""
    )
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 9, 9)).astype(np.float32) * 3}
    model, result = rewritten(proto, RTX, tuple(p for p in PASSES if not p.on_request))
    assert not result.skipped
    assert np.array_equal(run(proto, feeds)[0], run(model.proto, feeds)[0])


@pytest.mark.parametrize("inputs", ["x, s", "x, s, ", "x, s, z"])
def test_an_interpolation_of_integers_whose_zero_point_is_left_out(inputs: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float s = {{0.1}}, uint8 z = {{0}}, float[4] f = {{1,1,2,2}}>
        {{ q = QuantizeLinear ({inputs})
          r = Resize <mode = "linear"> (q, , f)
          y = DequantizeLinear (r, s) }}"""
    )
    model, result = rewritten(proto, RTX, EXPAND)
    assert result.edits and not result.skipped
    feeds = {"x": np.random.default_rng(0).uniform(-5, 25, (1, 2, 4, 4)).astype(np.float32)}
    assert np.array_equal(run(proto, feeds)[0], run(model.proto, feeds)[0])


def test_an_interpolation_of_integers_with_antialias_is_refused() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float s = {0.1}, uint8 z = {3}, float[4] f = {1,1,2,2}>
        { q = QuantizeLinear (x, s, z)
          r = Resize <mode = "linear", antialias = 1> (q, , f)
          y = DequantizeLinear (r, s, z) }"""
    )
    _, result = rewritten(proto, RTX, EXPAND)
    assert not result.edits and "antialias" in result.skipped[0].reason


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
def test_an_average_beyond_the_padding_is_refused(include: int, ceil: int) -> None:
    x = integers(1, "int8", 1, 2, 8, 8)
    known = {"s": np.float32(0.03), "z": np.array(3, np.int8)}
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": include}
    proto = model_of("QLinearAveragePool", ["x", "s", "z", "s", "z"], known, {"x": x}, "com.microsoft",
                     ceil_mode=ceil, **attrs)  # fmt: skip
    model, result = rewritten(proto, RTX, EXPAND)
    if include and ceil:
        assert not result.edits and "ceil_mode and count_include_pad" in result.skipped[0].reason
    else:
        before, after = run(proto, {"x": x})[0], run(model.proto, {"x": x})[0]
        assert np.abs(before.astype(int) - after.astype(int)).max() <= 1


@given(
    st.sampled_from((("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))),
    st.sampled_from((0, 2, 3)),
    *[st.booleans()] * 4,
)
def test_parts_of_run_time(
    dtypes: tuple[str, str], outer: int, conv: bool, many: bool, bias: bool, fixed: bool
) -> None:
    """Weights, scales, zero points and biases may all be inputs; scales of channels stand along their axis."""
    random = np.random.default_rng(outer)
    channels = 3
    shapes = ((1, 4, 5, 5), (channels, 4, 2, 2)) if conv else ((outer, 2, 4), (outer, 4, channels))
    shapes = shapes if conv or outer else ((2, 4), (4, channels))
    many_shape = (channels,) if conv or not outer else (outer, 1, channels)
    units = many_shape if many else ()
    parts: dict[str, Array] = {
        "x": integers(1, dtypes[0], *shapes[0]),
        "xs": np.array(0.02, np.float32),
        "xz": np.asarray(integers(2, dtypes[0])),
        "w": integers(3, dtypes[1], *shapes[1]),
        "ws": np.asarray(random.random(units) / 50 + 0.01, np.float32),
        "wz": np.full(units, 3, dtypes[1]),
        "ys": np.array(1.3, np.float32),
        "yz": np.asarray(integers(4, dtypes[0])),
    }
    if bias and conv:
        parts["b"] = integers(5, "int16", channels).astype(np.int32)
    names = list(parts)
    constants = {name: parts.pop(name) for name in ("w", "wz")} if fixed else {}
    proto = model_of("QLinearConv" if conv else "QLinearMatMul", names, constants, parts)
    model, result = rewritten(proto, RTX, PASSES)
    assert "expand-integer-operators" in {edit.pass_name for edit in result.edits}
    assert not {"uint8", "int8"} & {
        model.scopes[0].dtype(node.input[0]) for node in model.proto.graph.node if "quantizeLinear" in node.op_type
    }
    (expected,), (got,) = (run(each, parts) for each in (proto, model.proto))
    # A sum that float32 rounds may fall to the other side of the middle between two steps.
    assert np.abs(expected.astype(int) - got.astype(int)).max() <= 1
    assert (expected == got).mean() > 0.9
