"""Deconvolutions and quantisers where they stand: what is known of them, and why nothing can be computed."""

from __future__ import annotations

import pytest

from support.onnx_models import parse, wrap
from trtconv.graph.views import Deconv, Linear, deconvs, quantizes

QUANT = """<ir_version: 10, opset_import: ["": 21]> g (float[2,3,4,4] x, float given, int8 computed) => (float[a] y)
    <float[{scales}] s = {{{values}}}, int8[{points}] z = {{{zeros}}}, int8[6] six = {{1,2,3,4,5,6}}> {{
    q = QuantizeLinear {attrs} (x, {inputs}) y = Relu (x) }}"""


def linear(attrs: str = "", inputs: str = "s, z", scale: str = "1,1,1", zero: str = "0,0,0") -> Linear:
    text = QUANT.format(
        scales=scale.count(",") + 1,
        values=scale,
        points=zero.count(",") + 1,
        zeros=zero,
        attrs=f"<{attrs}>" if attrs else "",
        inputs=inputs,
    )
    return Linear(wrap(parse(text)).main, 0)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (linear(), None),
        (linear("axis = 1"), None),
        (linear("axis = -3"), None),
        (linear("axis = 0", scale="1,1", zero="0,0"), None),
        (linear("axis = 2"), "3 scales for 4 channels (axis 2 of"),
        (linear("axis = 4"), "axis 4 does not exist"),
        (linear("axis = -5"), "axis -5 does not exist"),
        (linear("axis = -4", scale="1,1", zero="0,0"), None),
        (linear("axis = 9", scale="1", zero="0"), None),
        (linear("block_size = 2"), "in blocks"),
        (linear(inputs="given, z"), "its scale 'given' is computed"),
        (linear(inputs="s, computed"), "its zero point 'computed' is computed"),
        (linear(zero="0,0"), "2 zero points for 3 scales"),
        (linear(zero="5"), None),
        (linear(scale="1,0,1"), "scale 0 at channel 1"),
        (linear(scale="1,-1,1"), "scale -1 at channel 1"),
        (linear(inputs="six, z"), "its scale 'six' is int8"),
        (linear(inputs="s"), None),
    ],
)
def test_why_nothing_can_be_computed(made: Linear, words: str | None) -> None:
    assert made.problem is None if words is None else made.problem is not None and words in made.problem


def test_the_axis_of_scales() -> None:
    assert linear("axis = -3").channels == (1, 4)
    assert linear("axis = 0", scale="1,1", zero="0,0").channels == (0, 4)
    # Of one scale the axis says nothing, and no shape is asked for.
    assert linear("axis = -3", scale="1", zero="0").channels == (-3, None)
    vector = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (int8[2] y)
        <float[2] s = {1,1}, int8[2] z = {0,0}> { y = QuantizeLinear (x, s, z) }"""
    )
    assert Linear(wrap(vector).main, 0).channels == (0, 1)


@pytest.mark.parametrize(
    ("attrs", "inputs", "dtype", "asked"),
    [
        ("", "s, z", "int8", 0),
        ("", "s", "uint8", 0),
        ("output_dtype = 3", "s", "int8", 3),
        ("output_dtype = 4", "s", "uint16", 4),
        ("output_dtype = 999", "s", "uint8", 0),
    ],
)
def test_the_type_of_steps(attrs: str, inputs: str, dtype: str, asked: int) -> None:
    made = linear(attrs, inputs)
    assert (made.dtype, made.asked_type, made.has_zero_point) == (dtype, asked, inputs != "s")
    assert made.clash is None


LAYERS = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,4,4] x, bool c) => (float[a] y)
    <int8[2,2,1,1] w = {1,2,3,4}, uint8[2,2,1,1] u = {1,2,3,4}, float s = {0.5}, int8 z = {0}> {
    d = DequantizeLinear (w, s, z) wrong = DequantizeLinear (u, s, z)
    a = Conv (x, d) b = ConvTranspose (x, d) n = Add (x, d) m = MatMul (d, x)
    t = If (c) < then_branch = p () => (float[p] e) { e = Conv (x, d) },
        else_branch = o () => (float[q] f) { f = Neg (x) }>
    y = Relu (x) }"""


def test_layers_whose_weight_a_quantiser_makes() -> None:
    model = wrap(parse(LAYERS))
    made, wrong = (Linear(model.main, index) for index in (0, 1))
    assert sorted(node.output[0] for node in made.weights_of) == ["a", "b", "e"]
    assert made.weight_of is not None
    assert wrong.weights_of == ()
    assert wrong.weight_of is None
    assert (made.clash, wrong.clash) == (None, ("uint8", "int8"))
    assert "its input is uint8 and its zero point int8" in str(wrong.problem)
    assert made.shape == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("ops", "rounds"),
    [
        ("y = QuantizeLinear (x, s)", True),
        ("y, a, b = DynamicQuantizeLinear (x)", True),
        ("y = com.microsoft.QLinearAdd (x, s, z, x, s, z, s, z)", True),
        ("y = my.Steps (x)", True),
        ("y = DequantizeLinear (x, s)", False),
        ("y = Relu (x)", False),
    ],
)
def test_models_that_round_to_steps(ops: str, rounds: bool) -> None:
    function = (
        '<domain: "my", opset_import: ["": 17]> Steps (a) => (b) { t, u, v = DynamicQuantizeLinear (a) b = Neg (t) }'
    )
    text = f"""<ir_version: 8, opset_import: ["": 17, "my": 1, "com.microsoft": 1]>
        g (float[2] x, float s, int8 z) => (float[a] y) {{ {ops} }} {function if "my." in ops else ""}"""
    assert quantizes(wrap(parse(text))) == rounds


def deconv(inputs: str, more: str = "", shape: str = "1,2,5,h") -> Deconv:
    (made,) = deconvs(
        wrap(
            parse(
                f"""<ir_version: 8, opset_import: ["": 17]> g (float[{shape}] x, float[2,3,2,2] computed, float[p] k)
                => (float[a] y) <float[2,3,1,2] w = {{1,2,3,4,5,6,7,8,9,1,2,3}}, float[6] b = {{1,2,3,4,5,6}}>
                {{ u = ConvTranspose <group = 2{more}> ({inputs}) y = Relu (u) }}"""
            )
        )
    )
    return made


def test_what_is_known_of_a_deconvolution() -> None:
    plain = deconv("x, w, b")
    assert not isinstance(plain.geometry, str)
    assert (plain.geometry.kernel, plain.geometry.group) == ((1, 2), 2)
    assert (plain.out_channels, plain.bias, plain.weight_shape) == (6, "b", (2, 3, 1, 2))
    assert (plain.input_shape, plain.sizes) == ((1, 2, 5, None), None)
    fixed = deconv("x, w", shape="1,2,5,7")
    assert (fixed.sizes, fixed.bias, fixed.is_quantized_behind) == ((5, 7), "", False)
    assert deconv("x, w", shape="1,2,5").sizes is None, "another rank than the kernel's"
    by_shape = deconv("x, computed")
    assert not isinstance(by_shape.geometry, str)
    assert (by_shape.geometry.kernel, by_shape.out_channels) == ((2, 2), None)
    assert deconv("x").geometry == "it has no weight"
    assert deconv("x").out_channels is None


def test_a_weight_of_one_axis_has_no_geometry() -> None:
    assert isinstance(deconv("x, k").geometry, str)


def test_quantisers_around_a_deconvolution() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (int8[a] q)
        <int8[1,1,1,1] w = {1}, float s = {0.5}, int8 z = {0}> {
        d = DequantizeLinear (w, s, z) u = ConvTranspose (x, d) q = QuantizeLinear (u, s, z) }"""
    )
    (made,) = deconvs(wrap(proto))
    assert made.is_quantized_behind
    assert made.dequantizer(0) is None
    weight = made.dequantizer(1)
    assert weight is not None
    assert weight.location.op == "DequantizeLinear"
    assert weight.scale is not None
    assert weight.scale.item() == 0.5
