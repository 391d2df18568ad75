"""Operators that ONNX Runtime fuses, in those of ONNX: the numbers that ONNX Runtime itself computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX, wrap
from support.session import Array, session
from trtconv.graph.types import MICROSOFT
from trtconv.passes import passes_for, run_passes

SIZES = st.integers(1, 4)
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def codes(dtype: type, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def model(
    op: str,
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
    order: Sequence[str] = (),
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    domain: str = MICROSOFT,
    **attrs: Any,
) -> onnx.ModelProto:
    """Returns a node of an operator whose inputs, in order, are feeds of sizes of choice, and weights."""
    weights = weights or {}
    node = helper.make_node(op, order or [*feeds, *weights], outputs, domain=domain, **attrs)
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [*(f"{name}{axis}" for axis in range(array.ndim - 1)), array.shape[-1]],
        )
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name]
    graph = helper.make_graph(
        [node], "g", inputs, results, [numpy_helper.from_array(array, name) for name, array in weights.items()]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def assert_written(proto: onnx.ModelProto, feeds: Mapping[str, Array], rounding: float = 2e-5) -> None:
    """The passes leave nothing of ONNX Runtime's own, and what it computes."""
    rewritten = wrap(proto)
    edits = run_passes(rewritten, passes_for("as-is"), RTX).edits
    assert "expand-fused" in {edit.pass_name for edit in edits}
    assert not {node.op_type for node in rewritten.proto.graph.node if node.domain}
    expected, got = (session(each).run(None, dict(feeds)) for each in (proto, rewritten.proto))
    for one, other in zip(expected, got, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol=rounding, atol=rounding)


@given(st.sampled_from(("Gelu", "BiasGelu", "FastGelu", "QuickGelu")), SIZES, SIZES, st.booleans())
def test_gelus(op: str, rows: int, columns: int, has_bias: bool) -> None:
    biases = {"b": floats(columns)} if op == "BiasGelu" or (op == "FastGelu" and has_bias) else {}
    feeds = {"x": 3 * floats(rows, columns)}
    attrs = {"alpha": 0.7} if op == "QuickGelu" and has_bias else {}
    assert_written(model(op, feeds, biases, **attrs), feeds)


@given(st.integers(2, 4), *[st.booleans()] * 4, st.sampled_from((1.0, 0.25)), st.data())
def test_products_of_transposed_matrices(
    rank: int, a: bool, b: bool, batch_a: bool, batch_b: bool, alpha: float, data: st.DataObject
) -> None:
    *outer, rows, inner, columns = data.draw(st.lists(SIZES, min_size=rank + 1, max_size=rank + 1))
    sides = []
    for size, turned, moved, last in ((rows, a, batch_a, False), (columns, b, batch_b, True)):
        matrix = (inner, size) if turned != last else (size, inner)
        sides.append((matrix[0], *outer, matrix[1]) if moved and rank > 2 else (*outer, *matrix))
    feeds = {"a": floats(*sides[0]), "b": floats(*sides[1])}
    flags = {"transA": a, "transB": b, "transBatchA": batch_a, "transBatchB": batch_b}
    assume(rank > 2 or not (batch_a or batch_b))
    assert_written(model("FusedMatMul", feeds, alpha=alpha, **{key: int(on) for key, on in flags.items()}), feeds)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *[(name, ()) for name in ("", "Relu", "Sigmoid", "Tanh")],
        *[("LeakyRelu", (0.2,)), ("Clip", (-0.5, 0.7)), ("HardSigmoid", (0.3, 0.4))],
    ],
)
@pytest.mark.parametrize("is_added", [False, True])
def test_convolutions(name: str, parameters: tuple[float, ...], is_added: bool) -> None:
    feeds = {"x": floats(2, 3, 5, 4)} | ({"z": floats(2, 4, 5, 4)} if is_added else {})
    attrs = ({"activation": name} if name else {}) | ({"activation_params": parameters} if parameters else {})
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4)}
    order = ["x", "w", "b", *(["z"] if is_added else [])]
    if name == "HardSigmoid" and is_added:
        pytest.skip("ONNX Runtime has none")
    assert_written(model("FusedConv", feeds, weights, order, pads=[1] * 4, kernel_shape=[3, 3], **attrs), feeds)


@pytest.mark.parametrize("name", ["Relu", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign"])
def test_gemms(name: str) -> None:
    feeds = {"x": floats(3, 4)}
    alpha = {"activation_alpha": 0.2}
    attrs = {"LeakyRelu": alpha, "Elu": alpha, "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4}}
    weights = {"w": floats(5, 4), "b": floats(5)}
    assert_written(model("FusedGemm", feeds, weights, activation=name, transB=1, **attrs.get(name, {})), feeds)


@given(st.booleans(), st.sampled_from((12, 13, 17)), SIZES, st.booleans(), st.booleans())
def test_norms_of_sums(is_root: bool, opset: int, rows: int, has_bias: bool, asks_sum: bool) -> None:
    op = "SkipSimplifiedLayerNormalization" if is_root else "SkipLayerNormalization"
    feeds = {"x": floats(rows, 3, 4), "s": floats(rows, 3, 4)}
    weights = {"g": floats(4)} | ({} if is_root else {"n": floats(4)}) | ({"b": floats(4)} if has_bias else {})
    outputs = ("y", "", "", "t") if asks_sum else ("y",)
    assert_written(model(op, feeds, weights, outputs=outputs, opset=opset, epsilon=1e-3), feeds)


@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize("epsilon", [{}, {"epsilon": 1e-3}])
@given(SIZES, st.booleans(), st.booleans())
def test_moments_of_sums(is_root: bool, epsilon: dict[str, float], rows: int, has_bias: bool, is_flat: bool) -> None:
    """Of small numbers, so that what is added to the variance counts."""
    op = "SkipSimplifiedLayerNormalization" if is_root else "SkipLayerNormalization"
    feeds = {"x": floats(rows, 3, 4) / 100, "s": floats(*([] if is_flat else [rows]), 3, 4) / 100}
    weights = {"g": floats(4)} | ({} if is_root else {"n": floats(4)}) | ({"b": floats(4)} if has_bias else {})
    outputs = ("y", "" if is_root else "m", "d", "t")
    proto = model(op, feeds, weights, outputs=outputs, **epsilon)
    rewritten = wrap(proto)
    run_passes(rewritten, passes_for("as-is"), RTX)
    assert not {node.op_type for node in rewritten.proto.graph.node if node.domain}
    got = dict(zip(filter(None, outputs), session(rewritten.proto).run(None, feeds), strict=True))
    total = (feeds["x"] + feeds["s"] + weights.get("b", 0)).astype(np.float64)
    mean = 0 if is_root else total.mean(-1, keepdims=True)
    deviation = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + epsilon.get("epsilon", 1e-12))
    expected = {"y": (total - mean) * deviation * weights["g"] + weights.get("n", 0), "d": deviation, "t": total}
    expected |= {} if is_root else {"m": mean}
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=2e-4, atol=2e-4)


def test_a_norm_by_the_root_has_no_mean() -> None:
    feeds = {"x": floats(1, 3, 4), "s": floats(1, 3, 4)}
    proto = model("SkipSimplifiedLayerNormalization", feeds, {"g": floats(4)}, outputs=("y", "m"))
    (skip,) = run_passes(wrap(proto), passes_for("as-is"), RTX).skipped
    assert "leave that output out" in skip.reason


# ONNX Runtime before 1.28 normalizes no single elements.
@given(st.sampled_from((np.float32, np.float16)), SIZES, st.integers(2, 5))
def test_norms_by_roots(dtype: type, rows: int, columns: int) -> None:
    feeds = {"x": floats(rows, columns).astype(dtype)}
    proto = model("SimplifiedLayerNormalization", feeds, {"g": floats(columns).astype(dtype)}, domain="", axis=-1)
    if dtype is np.float16:
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    assert_written(proto, feeds, 2e-5 if dtype is np.float32 else 2e-3)


@pytest.mark.parametrize(("opset", "edits"), [(13, 1), (17, 0)])
def test_layer_norms_before_onnx_had_them(opset: int, edits: int) -> None:
    feeds, weights = {"x": floats(3, 4)}, {"g": floats(4), "n": floats(4)}
    proto = model("LayerNormalization", feeds, weights, opset=opset, domain="", axis=-1)
    if edits:
        assert_written(proto, feeds)
    else:
        assert not run_passes(wrap(proto), passes_for("as-is"), RTX).edits


@given(SIZES, st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())
def test_embeddings(batch: int, length: int, has_segments: bool, has_mask: bool, asks_sum: bool) -> None:
    feeds = {"ids": RANDOM.integers(0, 7, (batch, length)).astype(np.int32)}
    feeds |= {"kind": RANDOM.integers(0, 2, (batch, length)).astype(np.int32)} if has_segments else {}
    feeds |= {"mask": RANDOM.integers(0, 2, (batch, length)).astype(np.int32)} if has_mask else {}
    weights = {"w": floats(7, 4), "p": floats(5, 4), "g": floats(4), "b": floats(4)}
    weights |= {"k": floats(2, 4)} if has_segments else {}
    order = ["ids", "kind" if has_segments else "", "w", "p", "k" if has_segments else "", "g", "b"]
    outputs = ["y", "m" if has_mask else "", *(["t"] if asks_sum else [])]
    proto = model("EmbedLayerNormalization", feeds, weights, [*order, *(["mask"] if has_mask else [])], outputs)
    for value in proto.graph.output:
        if value.name == "m":
            value.type.tensor_type.elem_type = TensorProto.INT32
    assert_written(proto, feeds)


@given(SIZES, SIZES, st.integers(1, 3), SIZES, st.integers(0, 3), st.booleans(), st.booleans(), st.booleans())
def test_attention(
    batch: int, length: int, heads: int, size: int, mask: int, is_causal: bool, is_added: bool, is_scaled: bool
) -> None:
    width = heads * size
    feeds = {"x": floats(batch, length, width)}
    masks = {
        2: RANDOM.integers(0, 2, (batch, length)) | (np.arange(length) == 0),
        3: RANDOM.integers(0, 2, (batch, length, length)) | (np.arange(length) == 0),
    }
    # Of keys that are all hidden, few digits are left.
    feeds |= {"m": masks[mask].astype(np.int32)} if mask in masks else {}
    feeds |= {"a": floats(batch, heads, length, length)} if is_added else {}
    weights = {"w": floats(width, 3 * width), "b": floats(3 * width)}
    order = ["x", "w", "b", "m" if mask in masks else "", "", "a" if is_added else ""]
    attrs: dict[str, Any] = {"num_heads": heads, "unidirectional": int(is_causal)}
    attrs |= {"scale": 0.3, "mask_filter_value": -500.0} if is_scaled else {}
    assert_written(model("Attention", feeds, weights, order, **attrs), feeds, 1e-4)


@given(SIZES, SIZES, st.integers(1, 3), st.booleans(), st.booleans())
def test_attention_to_keys_of_before(batch: int, length: int, before: int, is_causal: bool, has_mask: bool) -> None:
    feeds = {"x": floats(batch, length, 4), "p": floats(2, batch, 2, before, 2)}
    feeds |= {"m": np.ones((batch, length + before), np.int32)} if has_mask else {}
    weights = {"w": floats(4, 12), "b": floats(12)}
    order = ["x", "w", "b", "m" if has_mask else "", "p"]
    proto = model("Attention", feeds, weights, order, ("y", "n"), num_heads=2, unidirectional=int(is_causal))
    assert_written(proto, feeds, 1e-4)


@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_attention_of_several_inputs(
    batch: int, length: int, keys: int, has_bias: bool, has_mask: bool, is_added: bool, is_causal: bool
) -> None:
    feeds = {"q": floats(batch, length, 4), "k": floats(batch, keys, 4), "v": floats(batch, keys, 6)}
    # Of keys that are all hidden, few digits are left.
    feeds |= {"m": (RANDOM.integers(0, 2, (batch, keys)) | (np.arange(keys) == 0)).astype(np.int32)} if has_mask else {}
    feeds |= {"a": floats(batch, 2, length, keys)} if is_added else {}
    weights = {"b": floats(14)} if has_bias else {}
    order = ["q", "k", "v", *("b" * has_bias or [""]), *("m" * has_mask or [""]), *("a" * is_added or [""])]
    attrs = {"num_heads": 2, "unidirectional": int(is_causal and length == keys)}
    assert_written(model("MultiHeadAttention", feeds, weights, order, **attrs), feeds, 1e-4)


@given(SIZES, SIZES, st.integers(0, 3), st.booleans(), st.booleans())
def test_attention_with_a_bias_and_keys_of_run_time(
    batch: int, length: int, before: int, has_bias: bool, is_causal: bool
) -> None:
    feeds = {name: floats(batch, length, 4) for name in "qkv"}
    feeds |= {"b": floats(12)} if has_bias else {}
    feeds |= {name: floats(batch, 2, before, 2) for name in ("pk", "pv")} if before else {}
    order = ["q", "k", "v", "b" if has_bias else "", "", "", *(["pk", "pv"] if before else [])]
    attrs = {"num_heads": 2, "unidirectional": int(is_causal)}
    assert_written(model("MultiHeadAttention", feeds, {}, order, ("y", "nk", "nv"), **attrs), feeds, 1e-4)


@pytest.mark.parametrize(
    ("order", "reason"), [(["q"], "packed"), (["q", "k", "v", "", "", "", "pk", "pv", "n"], "length of the past")]
)
def test_attention_that_only_other_providers_have(order: list[str], reason: str) -> None:
    feeds = {"q": floats(1, 2, 2, 3, 2)} if len(order) == 1 else {name: floats(1, 1, 4) for name in "qkv"}
    feeds |= {} if len(order) == 1 else {"pk": floats(1, 2, 3, 2), "pv": floats(1, 2, 3, 2), "n": codes(np.int32, 1)}
    (skip,) = run_passes(
        wrap(model("MultiHeadAttention", feeds, {}, order, num_heads=2)), passes_for("as-is"), RTX
    ).skipped
    assert reason in skip.reason


def test_ends_and_beginnings_of_keys() -> None:
    feeds = {"x": floats(2, 5, 4), "m": np.array([5, 3, 1, 2], np.int32)}
    proto = model("Attention", feeds, {"w": floats(4, 12), "b": floats(12)}, ["x", "w", "b", "m"], num_heads=2)
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 5, 4)))
    assert_written(proto, feeds, 1e-4)


@given(SIZES, SIZES, st.booleans(), st.booleans(), st.booleans())
def test_rotations(batch: int, length: int, is_flat: bool, is_interleaved: bool, is_partial: bool) -> None:
    x = floats(batch, length, 16) if is_flat else floats(batch, 2, length, 8)
    half = 2 if is_partial else 4
    feeds = {"x": x, "p": RANDOM.integers(0, 9, (batch, length))}
    weights = {"c": floats(9, half), "s": floats(9, half)}
    attrs = {"interleaved": int(is_interleaved), "num_heads": 2}
    attrs |= {"rotary_embedding_dim": 4} if is_partial else {}
    assert_written(model("RotaryEmbedding", feeds, weights, **attrs), feeds)


@given(SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from((np.int8, np.uint8)))
def test_products_of_integers(rows: int, columns: int, has_zero: bool, has_bias: bool, dtype: type) -> None:
    scale = np.abs(floats(columns)) / 100
    zero, bias = codes(dtype, columns) // 2, floats(columns)
    # Sums of two products of 8 bits do not fit the registers that ONNX Runtime uses on some processors.
    weights = {"w": codes(dtype, 5, columns) // 2, "s": scale}
    weights |= ({"z": zero} if has_zero else {}) | ({"b": bias} if has_bias else {})
    ends = ["z" if has_zero else "", *(["b"] if has_bias else [])]
    feeds = {"x": floats(rows, 5)}
    # Of what lies between two codes the last bit of a float decides.
    step = float(np.ptp([0, *feeds["x"].flat]) * scale.max())
    assert_written(model("DynamicQuantizeMatMul", feeds, weights, ["x", "w", "s", *ends]), feeds, step)
    feeds = {"x": codes(np.uint8, rows, 5)}
    weights |= {"t": np.array(0.1, np.float32), "o": np.array(117, np.uint8)}
    assert_written(model("MatMulIntegerToFloat", feeds, weights, ["x", "w", "t", "s", "o", *ends]), feeds, 1e-4)


def test_attention_of_integers() -> None:
    feeds = {"x": codes(np.uint8, 2, 3, 4), "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32)}
    weights = {
        **{"w": codes(np.int8, 4, 12), "b": floats(12), "s": np.array(0.01, np.float32)},
        **{"t": np.array(0.02, np.float32), "o": np.array(120, np.uint8), "z": np.array(0, np.int8)},
    }
    assert_written(
        model("QAttention", feeds, weights, ["x", "w", "b", "s", "t", "m", "o", "z"], num_heads=2), feeds, 1e-4
    )


def test_lengths_of_an_embedding_mask_keys() -> None:
    """A mask of one axis has the lengths of sequences where it is known to: of an embedding, or of as many rows."""
    feeds = {"x": floats(2, 4, 4), "m": np.array([2, 4], np.int32)}
    weights = {"w": floats(4, 12), "b": floats(12)}
    proto = model("Attention", feeds, weights, ["x", "w", "b", "m"], num_heads=2)
    rewritten = wrap(proto)
    (skip,) = run_passes(rewritten, passes_for("as-is"), RTX).skipped
    assert "one axis" in skip.reason
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 2
    assert_written(proto, feeds)


@given(st.sampled_from((4, 8)), st.sampled_from((16, 32)), st.sampled_from((32, 80, 96)), *[st.booleans()] * 2, SIZES)
def test_products_with_weights_of_few_bits(
    bits: int, block: int, rows: int, has_points: bool, has_bias: bool, columns: int
) -> None:
    blocks = -(-rows // block)
    feeds = {"x": floats(3, rows)}
    weights = {"w": codes(np.uint8, columns, blocks, block * bits // 8), "s": np.abs(floats(columns * blocks))}
    weights |= {"z": codes(np.uint8, columns * -(-blocks * bits // 8))} if has_points else {}
    weights |= {"b": floats(columns)} if has_bias else {}
    order = ["x", "w", "s", "z" if has_points else "", "", *(["b"] if has_bias else [])]
    proto = model("MatMulNBits", feeds, weights, order, K=rows, N=columns, bits=bits, block_size=block)
    # ONNX Runtime may sum in other blocks.
    assert_written(proto, feeds, 1e-3 * 2**bits)


@given(st.sampled_from((16, 32)), st.sampled_from((32, 40, 80)), st.sampled_from(("", "z", "f")), SIZES, st.booleans())
def test_weights_of_few_bits_of_run_time(block: int, rows: int, points: str, columns: int, is_fixed: bool) -> None:
    blocks = -(-rows // block)
    feeds = {"x": floats(3, rows), "w": codes(np.uint8, columns, blocks, block // 2), "s": floats(columns, blocks)}
    feeds |= {"z": codes(np.uint8, columns, -(-blocks // 2))} if points == "z" else {}
    feeds |= {"f": floats(columns, blocks) + 8} if points == "f" else {}
    weights = {"w": feeds.pop("w")} if is_fixed else {}
    order = ["x", "w", "s", *points]
    proto = model("MatMulNBits", feeds, weights, order, K=rows, N=columns, bits=4, block_size=block)
    for value in proto.graph.input[1:]:
        value.CopyFrom(
            helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, feeds[value.name].shape)
        )
    assert_written(proto, feeds, 1e-2)


def test_a_large_weight_of_few_bits_is_not_written_in_floats() -> None:
    feeds = {"x": floats(1, 2**14)}
    weights = {"w": np.zeros((2**13, 2**9, 16), np.uint8), "s": np.ones(2**22, np.float32)}
    proto = model("MatMulNBits", feeds, weights, K=2**14, N=2**13, bits=4, block_size=32)
    (skip,) = run_passes(wrap(proto), passes_for("as-is"), RTX).skipped
    assert "MatMulNBitsQuantizer" in skip.reason


@pytest.mark.parametrize("sizes", ["5", "5,6"])
@pytest.mark.parametrize("group", [1, 2])
def test_quantised_values_with_channels_last(sizes: str, group: int) -> None:
    """What ONNX Runtime saves at its highest level, for one processor: QLinearConv and NhwcMaxPool."""
    rank = sizes.count(",") + 1
    taps = ",".join("2" * rank)
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (uint8[n,{sizes},2] x) => (float y) <float s = {{0.02}}, uint8 z = {{7}}, float t = {{0.3}}, int8 o = {{0}}>
        {{
          c = com.microsoft.QLinearConv <channels_last = 1, group = {group}> (x, s, z, w, s, o, t, z)
          p = com.microsoft.NhwcMaxPool <kernel_shape = [{taps}], strides = [{taps}]> (c)
          y = DequantizeLinear (p, t, z)
        }}"""
    )
    kernel = codes(np.int8, 4, 2 // group, *[2] * rank)
    proto.graph.initializer.append(numpy_helper.from_array(kernel, "w"))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    # One step of what is quantised: the sum stands between two of them.
    assert_written(proto, {"x": codes(np.uint8, 2, *map(int, sizes.split(",")), 2)}, 0.3 + 1e-6)


def test_a_pool_of_bytes_that_an_opset_has_not_is_left() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 11, "com.microsoft": 1]> g (uint8[1,4,4,2] x) => (uint8[1,2,2,2] y)
        { y = com.microsoft.NhwcMaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }"""
    )
    skips = run_passes(wrap(proto), passes_for("as-is"), RTX).skipped
    assert "opset 11 has no MaxPool of bytes" in {skip.reason for skip in skips}
