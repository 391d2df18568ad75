"""The passes that change numbers: by how much, and that they say so truly."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from support.onnx_models import RTX, TENSORRT_8, assert_equal, parse, rewritten
from support.quantized_models import EXACT, Net, Quantiser, make_net, run_bitwise, weight_parts
from support.session import run
from trtconv.core.target import Target
from trtconv.graph.quantization import EMULATED, limits
from trtconv.passes import PASSES, PassResult

MOVE = tuple(p for p in PASSES if p.name in ("normalize-quantizers", "move-channel-scales"))
REQUANTIZE = tuple(p for p in PASSES if p.name in ("normalize-quantizers", "requantize-symmetric"))
EVERYTHING = tuple(p for p in PASSES if not p.on_request)

GROUPS = st.sampled_from([(1, (2, 3)), (1, (3, 3)), (2, (2, 1)), (2, (2, 2)), (3, (1, 1)), (3, (1, 2))])


def weight_of(proto: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Returns integers or floats at the root of the layer's weight, its scales and their axis."""
    made = {name: node for node in proto.graph.node for name in node.output}
    known = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    layer = next(n for n in proto.graph.node if n.op_type in ("ConvTranspose", "Conv"))
    node = made[layer.input[1]]
    scale = known[node.input[1]]
    axis = next((a.i for a in node.attribute if a.name == "axis"), None)
    root = node.input[0]
    while root in made:
        root = made[root].input[0]
    return known[root], scale, axis


def per_channel(real: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """What a per-channel quantiser gives: (integers, scales shaped to broadcast)."""
    others = tuple(a for a in range(real.ndim) if a != axis) if axis is not None else None
    top = np.abs(real).max(axis=others, keepdims=True)
    scale = np.where(top > 0, top / np.float32(127), np.float32(1)).astype(np.float32)
    return np.clip(np.rint(real / scale), -128, 127).astype(np.int8), scale


@given(
    st.sampled_from(["ConvTranspose", "Conv"]),
    st.integers(1, 3),
    GROUPS,
    st.booleans(),
    st.sampled_from([0, 1, "negative", "absent"]),
    st.sampled_from([RTX, TENSORRT_8]),
)
def test_scales_end_where_a_quantiser_of_output_channels_puts_them(
    op, rank, groups, floats, axis, target: Target
) -> None:
    right, wrong = (1, 0) if op == "ConvTranspose" else (0, 1)
    spelled = {"negative": wrong - rank - 2, "absent": 1}.get(axis, axis)
    group, channels = groups
    weight = Quantiser(axis=spelled, written=axis != "absent")
    net = Net(op=op, kernel=(2,) * rank, group=group, channels=channels, weight=weight, float_weight=floats)
    proto, feeds = make_net(net)
    model, result = rewritten(proto, target, MOVE)
    moved = [e for e in result.edits if e.pass_name == "move-channel-scales"]
    root, scale, now = weight_of(model.proto)
    if spelled % (rank + 2) == right or net.weight_shape[spelled] == 1:
        assert not moved
        return
    assert len(moved) == 1
    real, _ = weight_parts(net)
    computed = dequantised(proto, real, wrong)
    if not floats:
        real = computed
    alone = op == "ConvTranspose" and group > 1 and target.before(10)
    expected, scales = per_channel(real, None if alone else right)
    assert np.array_equal(scale, scales.reshape(scale.shape))
    assert scale.size == (1 if alone else net.weight_shape[right])
    assert now == (None if alone else right)
    assert np.array_equal(root, real if floats else expected)
    error = np.abs(expected * scales - computed).max() / np.abs(computed).max()
    stated = float(re.search(r"within ([\d.e-]+) of", moved[0].what)[1])
    assert error == pytest.approx(stated, rel=0.06)
    assert ("float weights" if floats else "dequantised weights") in moved[0].what
    got = run(model.proto, feeds)[0]
    quantised = make_net(Net(op=op, kernel=net.kernel, group=group, channels=channels, activation=net.activation))[0]
    for tensor in quantised.graph.initializer:
        if tensor.name.startswith("w"):
            tensor.CopyFrom(numpy_helper.from_array(expected, tensor.name))
    by_hand = with_weight(quantised, expected * scales)
    assert_equal(run(by_hand, feeds), [got])


def dequantised(proto: onnx.ModelProto, real: np.ndarray, axis: int) -> np.ndarray:
    """What a symmetric quantiser on an axis makes of a weight that is float or integer in the file."""
    root, scale, _ = weight_of(proto)
    wide = scale.reshape([-1 if a == axis else 1 for a in range(real.ndim)])
    integers = np.clip(np.rint(root / wide), -128, 127) if root.dtype == np.float32 else root
    return integers.astype(np.float32) * wide


@pytest.mark.parametrize("clip", [0.5, 0.8, 1.0])
def test_weights_that_the_model_clips_stay_clipped(clip: float) -> None:
    proto, feeds = make_net(Net(weight=Quantiser(axis=0), float_weight=True))
    clipped = next(t for t in proto.graph.initializer if t.name.startswith("scale") and len(t.dims))
    before = numpy_helper.to_array(clipped) * np.float32(clip)
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("scale") and len(tensor.dims):
            tensor.CopyFrom(numpy_helper.from_array(before, tensor.name))
    real, _ = weight_parts(Net())
    computed = dequantised(proto, real, 0)
    model, result = rewritten(proto, RTX, MOVE)
    edit = next(e for e in result.edits if e.pass_name == "move-channel-scales")
    assert ("from the float weights" in edit.what) == (clip == 1)
    root, scale, _ = weight_of(model.proto)
    after = dequantised(model.proto, real, 1)
    assert (np.abs(after - computed) <= before.max() / 2 + scale.max() / 2 + 1e-6).all()
    stated = float(re.search(r"within ([\d.e-]+) of the model's own", edit.what)[1])
    assert np.abs(after - computed).max() / np.abs(computed).max() == pytest.approx(stated, rel=0.06)
    assert root.dtype == (np.float32 if clip == 1 else np.int8)
    assert np.abs(run(proto, feeds)[0] - run(model.proto, feeds)[0]).max() < 0.02 * np.abs(run(proto, feeds)[0]).max()


def test_weights_that_are_dequantised_on_other_scales_keep_those() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y)
          <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {0.1,0.2}, float[2] t = {0.3,0.1}, int8[2] p = {0,0}>
        { q = QuantizeLinear <axis = 0> (w, s, p)
          d = DequantizeLinear <axis = 0> (q, t, p)
          y = ConvTranspose (x, d) }"""
    )
    feeds = {"x": np.ones((1, 2, 4, 4), np.float32)}
    after, result = rewritten(proto, RTX, MOVE)
    assert "from the dequantised weights" in result.edits[0].what
    assert np.abs(run(proto, feeds)[0] - run(after.proto, feeds)[0]).max() < 0.05


def with_weight(proto: onnx.ModelProto, real: np.ndarray) -> onnx.ModelProto:
    """Puts a plain float weight in place of the quantised one."""
    layer = next(n for n in proto.graph.node if n.op_type in ("ConvTranspose", "Conv"))
    layer.input[1] = "plain"
    proto.graph.initializer.append(numpy_helper.from_array(real.astype(np.float32), "plain"))
    return proto


def test_a_weight_that_two_layers_share_moves_for_each_of_them() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
          <int8[2,2,1,1] w = {1,2,3,4}, float[2] s = {0.1,0.9}, int8[2] p = {0,0}>
        { d = DequantizeLinear <axis = 0> (w, s, p)
          y = ConvTranspose (x, d)
          z = Conv (x, d) }"""
    )
    feeds = {"x": np.ones((1, 2, 4, 4), np.float32)}
    after, result = rewritten(model, RTX, MOVE)
    assert [e.pass_name for e in result.edits] == ["move-channel-scales"]
    before, got = run(model, feeds), run(after.proto, feeds)
    assert np.array_equal(before[1], got[1])
    assert np.abs(before[0] - got[0]).max() <= 0.9 * 4 / 127


def test_tiny_and_empty_channels_get_a_positive_scale() -> None:
    for value in (0.0, 1e-44):
        proto, feeds = make_net(Net(weight=Quantiser(axis=0), float_weight=True))
        for tensor in proto.graph.initializer:
            if tensor.name.startswith("w"):
                real = numpy_helper.to_array(tensor).copy()
                real[:, 1] = value
                tensor.CopyFrom(numpy_helper.from_array(real, tensor.name))
        model, _ = rewritten(proto, RTX, MOVE)
        assert (weight_of(model.proto)[1] > 0).all()
        assert np.isfinite(run(model.proto, feeds)[0]).all()


ASYMMETRIC = [
    ("int8", 3),
    ("int8", -128),
    ("uint8", 0),
    ("uint8", 3),
    ("uint8", 200),
    ("uint8", 255),
    ("int16", 7),
    ("uint16", 0),
]


@settings(max_examples=150)
@given(
    st.sampled_from(ASYMMETRIC),
    st.floats(1e-4, 10),
    st.lists(st.sampled_from(["identity", "reshape", "transpose", "maxpool", "slice", "gather"]), max_size=2),
    st.integers(0, 2**31),
)
def test_a_requantised_tensor_moves_by_no_more_than_stated(kind, scale, moves, seed) -> None:
    dtype, point = kind
    if dtype.endswith("16"):
        moves = []
    proto, feeds = make_net(Net(activation=Quantiser(dtype, point), moves=tuple(moves), opset=21))
    step = np.float32(scale / (256 if dtype.endswith("16") else 1))
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("scale") and numpy_helper.to_array(tensor) == np.float32(
            5 / (32768 if dtype.endswith("16") else 128)
        ):
            tensor.CopyFrom(numpy_helper.from_array(np.array(step), tensor.name))
    layer = proto.graph.node[-1]
    proto.graph.output.append(onnx.helper.make_tensor_value_info(layer.input[0], 1, None))
    low, high = ((limit - point) * float(step) for limit in limits(dtype))
    random = np.random.default_rng(seed)
    span = high - low
    x = random.uniform(low - span, high + span, feeds["x"].shape).astype(np.float32)
    x.flat[:3] = low, high, 0
    model, result = rewritten(proto, RTX, REQUANTIZE)
    edit = next(e for e in result.edits if e.pass_name == "requantize-symmetric")
    stated = float(re.search(r"at most ([\d.e+-]+)", edit.what)[1])
    before, after = run(proto, {"x": x})[1], run(model.proto, {"x": x})[1]
    difference = np.abs(before.astype(np.float64) - after).max()
    assert difference <= stated * (1 + 1e-5)
    cover = max(-low / 128, high / 127)
    assert stated <= (float(step) + cover) / 2 * 1.02
    assert not [n for n in model.proto.graph.node if n.op_type == "QuantizeLinear" and n.domain]


def test_a_quantiser_that_stands_for_a_relu_gets_one() -> None:
    proto, feeds = make_net(Net(activation=Quantiser("uint8", 0)))
    model, _ = rewritten(proto, RTX, REQUANTIZE)
    assert [n.op_type for n in model.proto.graph.node[:2]] == ["Relu", "QuantizeLinear"]
    before, after = run(proto, feeds)[0], run(model.proto, feeds)[0]
    assert np.abs(before - after).max() < 0.1 * np.abs(before).max()


@given(st.sampled_from(ASYMMETRIC[:6]), st.sampled_from([None, 1]), st.booleans())
def test_requantised_weights_move_by_no_more_than_stated(kind, axis, floats) -> None:
    dtype, point = kind
    proto, feeds = make_net(Net(weight=Quantiser(dtype, point, axis=axis), float_weight=floats))
    layer = proto.graph.node[-1]
    proto.graph.output.append(onnx.helper.make_tensor_value_info(layer.input[1], 1, None))
    model, result = rewritten(proto, RTX, REQUANTIZE)
    after_layer = model.proto.graph.node[-1]
    before, after = run(proto, feeds)[1], run(model.proto, feeds)[1]
    edit = next(e for e in result.edits if e.pass_name == "requantize-symmetric")
    stated = float(re.search(r"at most ([\d.e+-]+)", edit.what)[1])
    assert np.abs(before - after).max() <= stated * (1 + 1e-5)
    assert after_layer.input[1] == layer.input[1]
    _, scale, _ = weight_of(model.proto)
    assert scale.size == (1 if axis is None else 3)


def test_requantising_is_on_request_only() -> None:
    assert [p.name for p in PASSES if p.flag == "requantize"] == ["requantize-symmetric"]
    assert all(p.on_request for p in PASSES if p.flag)
    assert "uint8" in EMULATED


BAD_SCALES = {"zero": 0.0, "negative": -0.1, "nan": np.nan, "infinite": np.inf}


@pytest.mark.parametrize("bad", BAD_SCALES)
@pytest.mark.parametrize(
    "net", [Net(weight=Quantiser(axis=0)), Net(weight=Quantiser("uint8", 3, axis=1)), Net(bias="int32_channels")]
)
@pytest.mark.parametrize("floats", [False, True])
def test_a_senseless_scale_is_never_mended(bad: str, net: Net, floats: bool) -> None:
    proto, _ = make_net(dataclasses.replace(net, float_weight=floats))
    stem = "s" if net.bias != "none" else "scale"
    tensor = next(t for t in proto.graph.initializer if re.fullmatch(stem + r"\d+_\d+", t.name) and len(t.dims))
    scale = numpy_helper.to_array(tensor).copy()
    scale[1] = BAD_SCALES[bad]
    tensor.CopyFrom(numpy_helper.from_array(scale, tensor.name))
    model, result = rewritten(proto, RTX, EVERYTHING + REQUANTIZE)
    if bad == "zero" and not floats and net.bias == "none":
        # Codes times 0 are zeros, whatever the scale: the one that has a meaning.
        assert "settle-quantized-constants" in {edit.pass_name for edit in result.edits}
        return
    left = [numpy_helper.to_array(t) for t in model.proto.graph.initializer if t.name == tensor.name]
    assert len(left) == 1 and np.array_equal(left[0], scale, equal_nan=True)
    assert any("not a positive finite number" in s.reason for s in result.skipped)


@pytest.mark.parametrize("axis", [-5, 0, 1, 2, 4, 9])
@pytest.mark.parametrize("count", [2, 3, 64])
@pytest.mark.parametrize("point", [0, 3])
@pytest.mark.parametrize("floats", [False, True])
def test_scales_that_fit_no_channels_break_nothing(axis: int, count: int, point: int, floats: bool) -> None:
    """Such models are refused by every runtime; the passes must leave them alone, not fall over them."""
    attrs = (("strides", [2, 2]), ("output_padding", [1, 1]))
    net = Net(weight=Quantiser("int8", point, axis=1), float_weight=floats, attrs=attrs, bias="int32_channels")
    proto, _ = make_net(net)
    for tensor in proto.graph.initializer:
        if tensor.dims == [3] and re.match("scale|point", tensor.name):
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.full(count, values[0]), tensor.name))
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "axis" and node.op_type.endswith("Linear") and len(node.input) == 3:
                attribute.i = axis
    _, result = rewritten(proto, RTX, EVERYTHING + REQUANTIZE)
    assert isinstance(result, PassResult)


@pytest.mark.parametrize("point", [128, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_zero_points_of_another_type_keep_every_pass_away(point: int, turned: bool) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y)
          <int8[2,2,1,1] w = {{-1,2,-3,127}}, float s = {{0.1}}, uint8 z = {{{point}}}>
        {{ t = Transpose <perm = [1,0,2,3]> (w)
          d = DequantizeLinear ({"t" if turned else "w"}, s, z)
          y = ConvTranspose (x, d) }}"""
    )
    _, result = rewritten(proto, TENSORRT_8, EVERYTHING + REQUANTIZE)
    assert not [e for e in result.edits if e.pass_name != "write-kernel-shape"]
    assert any("int8" in s.reason and "uint8" in s.reason for s in result.skipped)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("kind", ["int8 0", "uint8 128", "uint8 3"])
@pytest.mark.parametrize("target", [RTX, TENSORRT_8])
def test_scales_without_a_value_break_nothing(floats: bool, kind: str, target: Target) -> None:
    dtype, point = kind.split()
    proto, _ = make_net(Net(weight=Quantiser(dtype, int(point), axis=1), float_weight=floats, activation=None))
    for tensor in proto.graph.initializer:
        if re.match("scale|point", tensor.name):
            kept = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.zeros(0, kept.dtype), tensor.name))
    _, result = rewritten(proto, target, EVERYTHING + REQUANTIZE)
    assert any("holds no value" in s.reason for s in result.skipped)


def test_zero_points_of_another_length_break_nothing() -> None:
    for point in (0, 3):
        proto, _ = make_net(Net(weight=Quantiser("int8", point, axis=0)))
        for tensor in proto.graph.initializer:
            if tensor.name.startswith("point") and len(tensor.dims):
                tensor.CopyFrom(numpy_helper.from_array(np.full(5, point, np.int8), tensor.name))
        _, result = rewritten(proto, RTX, EVERYTHING + REQUANTIZE)
        assert any("5 zero points" in s.reason for s in result.skipped)


def test_the_passes_together_leave_a_clean_model_alone() -> None:
    proto, feeds = make_net(Net(weight=Quantiser(axis=1), float_weight=True, requantized=True))
    model, result = rewritten(proto, RTX, EXACT)
    assert not result.edits and not result.skipped
    assert run_bitwise(model.proto, feeds)[0].shape == (2, 3, 6, 6)


@pytest.mark.parametrize("point", [0, 3])
@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
def test_asymmetric_values_come_out_in_the_type_of_their_scale(kind: str, point: int) -> None:
    proto = parse(
        f"""<ir_version: 9, opset_import: ["": 21]>
        g (float[2,3] x) => ({kind}[2,3] y) <float s = {{0.25}}, uint8 z = {{3}}, uint8 p = {{{point}}}>
        {{ q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, t, p) }}"""
    )
    proto.graph.initializer.append(
        onnx.helper.make_tensor("t", onnx.TensorProto.DataType.Value(kind.upper()), [], [0.5])
    )
    in_float = [each for each in PASSES if each.name in ("normalize-quantizers", "compute-asymmetric-in-float")]
    done = rewritten(proto, passes=in_float)[0].proto
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in done.graph.node}
    onnx.shape_inference.infer_shapes(done, check_type=True, strict_mode=True)
    feeds = {"x": np.array([[-1.0, 0.1, 0.2], [3.0, 60.0, 70.0]], np.float32)}
    before, after = (ReferenceEvaluator(each).run(None, feeds)[0] for each in (proto, done))
    assert before.dtype == after.dtype
    np.testing.assert_array_equal(after.astype(np.float32), before.astype(np.float32))


@pytest.mark.parametrize("fill", [0, 5])
def test_a_pad_of_some_axes_pads_those(fill: int) -> None:
    proto = parse(f"""<ir_version: 8, opset_import: ["": 18]>
    g (float[2,4] x) => (float[a,b] y)
    <float s = {{0.1}}, int8 z = {{0}}, int64[2] pads = {{1, 2}}, int8 fill = {{{fill}}}, int64[1] axes = {{1}}>
    {{ q = QuantizeLinear (x, s, z)  p = Pad (q, pads, fill, axes)  y = DequantizeLinear (p, s, z) }}""")
    alone = [each for each in PASSES if each.name == "dequantize-constants"]
    model, result = rewritten(proto, RTX, alone)
    assert result.edits and not result.skipped
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    before, after = (run(each, {"x": x})[0] for each in (proto, model.proto))
    assert after.shape == (2, 7)
    np.testing.assert_allclose(after, before, atol=1e-6)
