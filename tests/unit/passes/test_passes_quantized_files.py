"""What quantisers write around convolutions that TensorRT's builder does not take, mended bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX, parse, rewritten, wrap
from support.session import run
from trtconv.passes import PASSES, passes_for, run_passes
from trtconv.rules import run_rules

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def edits_of(proto: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, list[str]]:
    model, result = rewritten(proto, RTX, [each for each in PASSES if each.name == name])
    return model.proto, [edit.what for edit in result.edits]


def feeds(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"x": (3 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)}


def test_a_clip_behind_a_quantised_weight_is_folded() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,3,3] x) => (float[1,1,3,3] y)
        <int8[1,2,1,1] w = {{-128, 90}}, float s = {{0.01}}, int8 z = {{0}}, int8 low = {{-127}}, int8 high = {{50}}>
        {{ [cut] c = Clip (w, low, high) d = DequantizeLinear (c, s, z) y = Conv (x, d) }}"""
    )
    after, edits = edits_of(proto, "fold-quantized-clip")
    assert edits == ["int8 [1, 2, 1, 1] clipped beforehand"]
    (weight,) = [numpy_helper.to_array(t) for t in after.graph.initializer if t.name == "c"]
    assert weight.reshape(-1).tolist() == [-127, 50]
    assert np.array_equal(run(proto, feeds((1, 2, 3, 3)))[0], run(after, feeds((1, 2, 3, 3)))[0])


@pytest.mark.parametrize("low", [-8, 0, 3])
def test_a_clip_between_quantisers_of_an_activation_goes_in_front_of_them(low: int) -> None:
    proto = parse(
        f"""{HEAD} g (float[2,50] x) => (float[2,50] y)
        <float s = {{0.037}}, int8 z = {{0}}, int8 low = {{{low}}}, int8 high = {{7}}>
        {{ q = QuantizeLinear (x, s, z) [cut] c = Clip (q, low, high) y = DequantizeLinear (c, s, z) }}"""
    )
    after, edits = edits_of(proto, "fold-quantized-clip")
    assert len(edits) == 1
    assert [node.op_type for node in after.graph.node] == ["Clip", "QuantizeLinear", "DequantizeLinear"]
    assert np.array_equal(run(proto, feeds((2, 50)))[0], run(after, feeds((2, 50)))[0])


@pytest.mark.parametrize(("dtype", "point"), [("int8", 0), ("int8", -7), ("uint8", 128), ("uint8", 0)])
@pytest.mark.parametrize("low", ["low", ""])
@pytest.mark.parametrize("high", ["high", ""])
@pytest.mark.parametrize("constant", [False, True])
def test_clips_of_every_code_with_one_limit_or_none(
    dtype: str, point: int, low: str, high: str, constant: bool
) -> None:
    codes = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    source = f"q = QuantizeLinear (x, s, z) [cut] c = Clip (q, {low}, {high})"
    if constant:
        source = f"[cut] c = Clip (all, {low}, {high})"
    proto = parse(
        f"""{HEAD} g (float[256] x) => (float[256] y)
        <{dtype}[256] all = {{{",".join(map(str, codes))}}}, float s = {{0.25}}, {dtype} z = {{{point}}},
         {dtype} low = {{{codes[100]}}}, {dtype} high = {{{codes[200]}}}>
        {{ {source} d = DequantizeLinear (c, s, z) y = Add (d, x) }}"""
    )
    after, edits = edits_of(proto, "fold-quantized-clip")
    assert len(edits) == 1
    x = ((codes - point) * 0.25).astype(np.float32)
    assert np.array_equal(run(proto, {"x": x})[0], run(after, {"x": x})[0])


def test_a_clip_of_what_is_used_elsewhere_too_is_left() -> None:
    proto = parse(
        f"""{HEAD} g (float[2,50] x) => (float[2,50] y, int8[2,50] q)
        <float s = {{0.037}}, int8 z = {{0}}, int8 low = {{-8}}, int8 high = {{7}}>
        {{ q = QuantizeLinear (x, s, z) [cut] c = Clip (q, low, high) y = DequantizeLinear (c, s, z) }}"""
    )
    _, result = rewritten(proto, RTX, [each for each in PASSES if each.name == "fold-quantized-clip"])
    assert not result.edits
    assert [skip.reason for skip in result.skipped] == ["what it clips is used without it too"]


@pytest.mark.parametrize(("kind", "point"), [("INT4", 0), ("INT4", 2), ("UINT4", 8)])
def test_int4_weights_of_convolutions_become_int8(kind: str, point: int) -> None:
    code = getattr(TensorProto, kind)
    values = np.arange(12) % 16 if kind == "UINT4" else np.arange(12) % 16 - 8
    proto = parse(
        """<ir_version: 10, opset_import: ["": 21]> g (float[1,2,5,5] x) => (float[1,3,p,q] y)
        <float[3] s = {0.1, 0.2, 0.4}>
        { [dq] d = DequantizeLinear <axis = 1> (w, s, z) [up] y = ConvTranspose <strides = [2,2]> (x, d) }"""
    )
    proto.graph.initializer.append(helper.make_tensor("w", code, [2, 3, 2, 1], values))
    proto.graph.initializer.append(helper.make_tensor("z", code, [3], [point] * 3))
    after, edits = edits_of(proto, "widen-int4-weights")
    assert edits == [f"{kind.lower()} [2, 3, 2, 1] written as int8, with the same scales"]
    kinds = {t.data_type for t in after.graph.initializer}
    assert kinds == {TensorProto.INT8, TensorProto.FLOAT}
    assert np.array_equal(run(proto, feeds((1, 2, 5, 5)))[0], run(after, feeds((1, 2, 5, 5)))[0])


def test_int4_weights_of_matrix_products_are_left() -> None:
    proto = parse(
        """<ir_version: 10, opset_import: ["": 21]> g (float[1,2] x) => (float[1,2] y) <float s = {0.1}>
        { [dq] d = DequantizeLinear (w, s, z) y = MatMul (x, d) }"""
    )
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [2, 2], [1, 2, 3, 4]))
    proto.graph.initializer.append(helper.make_tensor("z", TensorProto.INT4, [], [0]))
    assert not edits_of(proto, "widen-int4-weights")[1]


@pytest.mark.parametrize(("axes", "moved"), [(3, True), (2, False)])
def test_pooling_of_int8_goes_between_quantisers_in_3d_alone(axes: int, moved: bool) -> None:
    sizes, two = ",".join(["4"] * axes), ",".join(["2"] * axes)
    proto = parse(
        f"""{HEAD} g (float[1,2,{sizes}] x) => (float[1,2,{two}] y) <float s = {{0.05}}, int8 z = {{0}}>
        {{ q = QuantizeLinear (x, s, z) [pool] p = MaxPool <kernel_shape = [{two}], strides = [{two}]> (q)
           y = DequantizeLinear (p, s, z) }}"""
    )
    after, edits = edits_of(proto, "pool-between-quantizers")
    assert bool(edits) == moved
    pool = next(node for node in after.graph.node if node.op_type == "MaxPool")
    makers = {name: node.op_type for node in after.graph.node for name in node.output}
    assert makers[pool.input[0]] == ("DequantizeLinear" if moved else "QuantizeLinear")
    shape = (1, 2, *[4] * axes)
    assert np.array_equal(run(proto, feeds(shape))[0], run(after, feeds(shape))[0])


@pytest.mark.parametrize(
    ("quantize", "dequantize", "reason"),
    [
        ("(x, s, z)", "(p, s, z)", None),
        ("(x, s, z)", "(p, t, z)", None),
        ("(x, s, one)", "(p, s, one)", None),
        ("(x, s, z)", "(p, s, one)", "its values have several zero points"),
        ("<axis = 1> (x, two, zs)", "<axis = 1> (p, two, zs)", "its values have several scales"),
    ],
)
def test_pooling_of_values_that_have_one_scale(quantize: str, dequantize: str, reason: str | None) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,4,4,4] x) => (float[1,2,2,2,2] y)
        <float s = {{0.05}}, float t = {{0.1}}, float[2] two = {{0.1, 0.2}}, int8 z = {{0}}, int8 one = {{1}},
         int8[2] zs = {{0, 0}}>
        {{ q = QuantizeLinear {quantize} [pool] p = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (q)
           y = DequantizeLinear {dequantize} }}"""
    )
    model, result = rewritten(proto, RTX, [each for each in PASSES if each.name == "pool-between-quantizers"])
    assert [skip.reason for skip in result.skipped] == ([] if reason is None else [reason])
    taken = feeds((1, 2, 4, 4, 4))
    assert np.array_equal(run(proto, taken)[0], run(model.proto, taken)[0])


def test_indices_of_a_pooling_stay_where_it_goes_between_quantisers() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,4,4,4] x) => (float[1,2,2,2,2] y, int64[1,2,a,b,c] i)
        <float s = {{0.05}}, int8 z = {{0}}>
        {{ q = QuantizeLinear (x, s, z) [pool] p, i = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (q)
           y = DequantizeLinear (p, s, z) }}"""
    )
    after, edits = edits_of(proto, "pool-between-quantizers")
    assert edits
    for before, now in zip(run(proto, feeds((1, 2, 4, 4, 4))), run(after, feeds((1, 2, 4, 4, 4))), strict=True):
        assert np.array_equal(before, now)


@pytest.mark.parametrize(
    ("op", "weight", "group"),
    [("Conv", "6,4,3,3", 1), ("ConvTranspose", "4,6,3,3", 1), ("ConvTranspose", "4,3,3,3", 2)],
)
@pytest.mark.parametrize("bias", [True, False])
def test_batch_normalization_goes_into_the_layer_in_front(op: str, weight: str, group: int, bias: bool) -> None:
    random = np.random.default_rng(1)
    proto = parse(
        f"""{HEAD} g (float[1,4,5,5] x) => (float[1,6,p,q] y)
        {{ [layer] a = {op} <group = {group}> (x, w{", b" if bias else ""})
           [norm] n = BatchNormalization (a, g0, g1, g2, g3) y = Relu (n) }}"""
    )
    shape = tuple(int(size) for size in weight.split(","))
    values = {"w": random.standard_normal(shape), "b": random.standard_normal(6)}
    values |= {f"g{i}": random.uniform(0.5, 2, 6) * (-1 if i == 0 else 1) for i in range(4)}
    used = {name for node in proto.graph.node for name in node.input}
    for name, array in values.items():
        if name in used:
            proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    after, edits = edits_of(proto, "fold-batch-norm")
    assert edits == [f"{op} layer takes over its factors of 6 channels"]
    assert [node.op_type for node in after.graph.node] == [op, "Relu"]
    expected, got = run(proto, feeds((1, 4, 5, 5)))[0], run(after, feeds((1, 4, 5, 5)))[0]
    assert np.abs(expected - got).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("op", "weight", "axis"), [("Conv", "6,4,3,3", 0), ("ConvTranspose", "4,6,3,3", 1)])
@pytest.mark.parametrize("bias", ["none", "float", "int32"])
@pytest.mark.parametrize("channels", [True, False])
def test_batch_normalization_goes_into_the_scales_of_codes(
    op: str, weight: str, axis: int, bias: str, channels: bool
) -> None:
    random = np.random.default_rng(2)
    made = {"none": "", "float": ", b", "int32": ", e"}[bias]
    proto = parse(
        f"""{HEAD} g (float[1,4,5,5] x) => (float[1,6,p,q] y)
        {{ d = DequantizeLinear <axis = {axis}> (w, s)  e = DequantizeLinear <axis = 0> (i, t)
           [layer] a = {op} (x, d{made}) [norm] n = BatchNormalization (a, g0, g1, g2, g3) y = Relu (n) }}"""
    )
    scales = random.uniform(0.01, 0.1, 6 if channels else ()).astype(np.float32)
    values: dict[str, np.ndarray] = {
        "w": random.integers(-127, 128, [int(n) for n in weight.split(",")]).astype(np.int8)
    }
    values |= {"s": scales, "b": random.standard_normal(6).astype(np.float32)}
    values |= {
        "i": random.integers(-99, 99, 6).astype(np.int32),
        "t": np.broadcast_to(scales * np.float32(0.1), 6).copy(),
    }
    values |= {f"g{i}": random.uniform(0.5, 2, 6).astype(np.float32) for i in range(4)}
    values["g0"][::2] *= -1
    for name, array in values.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    after, edits = edits_of(proto, "fold-quantized-norm")
    assert edits == [f"its factors of 6 channels are in the scales of {op} layer"]
    assert "BatchNormalization" not in {node.op_type for node in after.graph.node}
    codes = next(numpy_helper.to_array(each) for each in after.graph.initializer if each.data_type == 3)
    assert np.array_equal(np.abs(codes), np.abs(values["w"]))
    expected, got = run(proto, feeds((1, 4, 5, 5)))[0], run(after, feeds((1, 4, 5, 5)))[0]
    assert np.abs(expected - got).max() < 1e-5 * np.abs(expected).max()


def test_a_code_without_an_opposite_keeps_its_batch_normalization() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,3,3] x) => (float[1,1,3,3] y)
        <int8[1,1,1,1] w = {{-128}}, float s = {{0.1}}, float[1] one = {{1}}, float[1] less = {{-1}}>
        {{ d = DequantizeLinear (w, s) [layer] a = Conv (x, d)
           [norm] y = BatchNormalization (a, less, one, one, one) }}"""
    )
    _, result = rewritten(proto, RTX, [each for each in PASSES if each.name == "fold-quantized-norm"])
    assert [skip.reason for skip in result.skipped] == ["a code of -128 has no opposite"]


NORMED = """ g (float[1,4,3,3] x, float given) => (float[n,c,p,q] y)
    <KIND[4,2,1,1] w = {1,2,3,4,5,6,7,8}, float s = {0.1}, float[2] rows = {0.1, 0.2}, float[4] many = {1,2,3,4},
     KIND z = {0}, KIND point = {1}, float[4] g = {1,1,1,1}>
    { d = DequantizeLinear (w, s, z)  [layer] a = Conv <group = 2> (x, d)
      [norm] y = BatchNormalization (a, g, g, g, g) }"""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"(w, s, z)": "(w, s)"}, None),
        ({"DequantizeLinear (w, s, z)": "DequantizeLinear <axis = 0> (w, many)"}, None),
        ({"DequantizeLinear (w, s, z)": "DequantizeLinear <axis = -4> (w, many)"}, None),
        ({"DequantizeLinear (w, s, z)": "DequantizeLinear (w, rows)"}, "are not those of its outputs"),
        ({"Conv <": "ConvTranspose <"}, "in groups share scales"),
        ({"KIND": "uint8"}, "is not int8"),
        ({"(w, s, z)": "(w, s, point)"}, "is computed at run time"),
        ({"(w, s, z)": "(w, given, z)"}, "is computed at run time"),
        ({"(x, d)": "(x, d, g)"}, None),
        ({"g, g, g, g)": "g, many, g, g)"}, None),
    ],
)
def test_which_quantised_layers_take_a_batch_normalization(changes: dict[str, str], reason: str | None) -> None:
    text = NORMED
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    text = text.replace("KIND", "int8")
    proto = parse(HEAD + text)
    model, result = rewritten(proto, RTX, [each for each in PASSES if each.name == "fold-quantized-norm"])
    assert len(result.edits) == (reason is None)
    if reason is not None:
        assert [reason in skip.reason for skip in result.skipped] == [True]
        return
    taken = {**feeds((1, 4, 3, 3)), "given": np.array(1, np.float32)}
    np.testing.assert_allclose(run(model.proto, taken)[0], run(proto, taken)[0], rtol=1e-5, atol=1e-5)


def test_batch_normalization_of_a_shared_result_stays() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,3,3] x) => (float[1,2,3,3] y, float[1,2,3,3] a)
        <float[2,2,1,1] w = {{1,2,3,4}}, float[2] one = {{1,1}}>
        {{ [layer] a = Conv (x, w) [norm] y = BatchNormalization (a, one, one, one, one) }}"""
    )
    _, result = rewritten(proto, RTX, [each for each in PASSES if each.name == "fold-batch-norm"])
    assert [skip.reason for skip in result.skipped] == ["the result of Conv 'layer' is used elsewhere too"]


@pytest.mark.parametrize("source", ["x", "r"])
@pytest.mark.parametrize("name", ["fold-batch-norm", "fold-quantized-norm"])
def test_batch_normalization_behind_no_layer_stays(source: str, name: str) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float[2] one = {{1,1}}>
        {{ r = Relu (x) z = BatchNormalization ({source}, one, one, one, one) y = Add (z, r) }}"""
    )
    _, result = rewritten(proto, RTX, [each for each in PASSES if each.name == name])
    assert not result.edits and not result.skipped


def test_batch_normalization_stays_unless_it_is_asked_for() -> None:
    assert "fold-batch-norm" not in {each.name for each in passes_for("int8")}


def test_the_passes_agree_with_each_other() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,4,4,4] x) => (float[1,2,2,2,2] y)
        <float s = {{0.05}}, int8 z = {{0}}, int8 low = {{-127}}, int8 high = {{127}}>
        {{ q = QuantizeLinear (x, s, z) c = Clip (q, low, high)
           p = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (c) y = DequantizeLinear (p, s, z) }}"""
    )
    model = wrap(proto)
    names = {edit.pass_name for edit in run_passes(model, passes_for("as-is"), RTX).edits}
    assert {"fold-quantized-clip", "pool-between-quantizers"} <= names
    assert np.array_equal(run(proto, feeds((1, 2, 4, 4, 4)))[0], run(model.proto, feeds((1, 2, 4, 4, 4)))[0])


@pytest.mark.parametrize("op", ["DequantizeLinear", "QuantizeLinear"])
@pytest.mark.parametrize("shape", ["", "[4]"])
def test_scales_along_an_axis_that_is_not_there_are_left(op: str, shape: str) -> None:
    source, result = ("uint8", "float") if op == "DequantizeLinear" else ("float", "uint8")
    model = wrap(
        parse(
            f"""{HEAD} g ({source}{shape} x) => ({result}{shape} y)
            <float[4] s = {{1, 2, 3, 4}}, uint8[4] z = {{3, 3, 3, 3}}> {{ y = {op} <axis = 1> (x, s, z) }}"""
        )
    )
    done = run_passes(model, PASSES, RTX)
    assert not done.edits and "quantize-in-arithmetic" in {skip.pass_name for skip in done.skipped}


def test_a_tensor_whose_rank_is_not_known_is_named() -> None:
    scales = "<float[4] s = {1, 2, 3, 4}, uint8[4] z = {3, 3, 3, 3}>"
    first = "q = QuantizeLinear <axis = 1> (t, s, z)"
    text = f"""<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[n,4] x) => (float y) {scales}
        {{ t = my.Strange (x)  {first}  y = DequantizeLinear <axis = 1> (q, s, z) }}"""
    skipped = {skip.pass_name: skip.reason for skip in run_passes(wrap(parse(text)), PASSES, RTX).skipped}
    assert "'q'" in skipped["requantize-symmetric"]


@pytest.mark.parametrize(
    ("stored", "body"),
    [
        (
            "float s = {0.1}, int8 z = {0}",
            "i = Identity (z)  q = QuantizeLinear (x, s, i)  y = DequantizeLinear (q, s, i)",
        ),
        (
            "float s = {0.1}, int8 z = {0}",
            "i = Identity (s)  q = QuantizeLinear (x, i, z)  y = DequantizeLinear (q, i, z)",
        ),
        (
            "float s = {0.1}, int32 z = {0}",
            "c = Cast <to = 3> (z)  i = Identity (c)  q = QuantizeLinear (x, s, i)  y = DequantizeLinear (q, s, i)",
        ),
    ],
)
def test_a_scale_or_zero_point_that_is_a_copy_is_a_constant(stored: str, body: str) -> None:
    """As torch's older exporter writes what several quantisers share."""
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8] x) => (float[1,3,8] y) <{stored}> {{ {body} }}'
    model = wrap(onnx.parser.parse_model(text))
    assert not [finding.code for finding in run_rules(model, RTX)]
    run_passes(model, PASSES, RTX)
    assert [node.op_type for node in model.proto.graph.node] == ["QuantizeLinear", "DequantizeLinear"]
    constants = {tensor.name for tensor in model.proto.graph.initializer}
    assert all({*node.input[1:]} <= constants for node in model.proto.graph.node)
