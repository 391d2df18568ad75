"""The rules about quantisation: each bad spelling has its code, its node and its numbers in the message."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.onnx_models import RTX, TENSORRT_8, parse, rewritten, wrap
from support.quantized_models import Net, Quantiser, make_net
from trtconv.core.findings import Finding, Severity
from trtconv.core.target import Target
from trtconv.graph.views import deconvs
from trtconv.passes import PASSES
from trtconv.rules import STANDING, run_rules
from trtconv.rules.deconv_not_int8 import may_be_computed, why_in_float

QUANT = tuple(f"TC3{n:02}" for n in range(1, 16))


def found(proto: onnx.ModelProto, target: Target = RTX) -> list[Finding]:
    return [f for f in run_rules(wrap(proto), target) if f.code in QUANT and f.severity is not Severity.INFO]


def weight_model(
    weights: str, scales: int, axis: int | None, op: str = "ConvTranspose", group: int = 1
) -> onnx.ModelProto:
    dims = [int(d) for d in weights.split(",")]
    attrs = "" if axis is None else f"<axis = {axis}>"
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,{dims[0] if op == "ConvTranspose" else dims[1]},4,4] x) => (float[n,c,h,w] y)
        {{ [dq] d = DequantizeLinear {attrs} (w, s, z)
          [up] y = {op} <group = {group}> (x, d) }}"""
    )
    for name, values in (
        ("w", np.ones(dims, np.int8)),
        ("s", np.full(scales, 0.1, np.float32)),
        ("z", np.zeros(scales, np.int8)),
    ):
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    return proto


@pytest.mark.parametrize(
    ("weights", "scales", "axis", "op", "code", "words"),
    [
        (
            "64,10,1,1",
            64,
            1,
            "ConvTranspose",
            "TC302",
            "10 output channels, 64 scales: these fit the input channels (axis 1 of",
        ),
        (
            "64,10,1,1",
            64,
            None,
            "ConvTranspose",
            "TC302",
            "10 output channels, 64 scales: these fit the input channels",
        ),
        ("64,10,1,1", 10, 0, "ConvTranspose", "TC302", "64 input channels, 10 scales: these fit the output channels"),
        ("64,10,1,1", 7, 1, "ConvTranspose", "TC302", "10 output channels, 7 scales: they fit no axis"),
        ("64,10,3,3", 3, 1, "ConvTranspose", "TC302", "10 output channels, 3 scales: these fit axes [2, 3]"),
        ("10,64,1,1", 64, 0, "Conv", "TC302", "10 output channels, 64 scales: these fit the input channels"),
        ("64,10,1,1", 64, 7, "ConvTranspose", "TC302", "axis 7 does not exist in [64, 10, 1, 1]"),
        ("64,10,1,1", 64, -5, "ConvTranspose", "TC302", "axis -5 does not exist in [64, 10, 1, 1]"),
        (
            "64,10,1,1",
            64,
            0,
            "ConvTranspose",
            "TC301",
            "64 scales on axis 0 of the weight [64, 10, 1, 1] of ConvTranspose 'up'",
        ),
        ("64,10,1,1", 64, -4, "ConvTranspose", "TC301", "its 10 output channels (axis 1)"),
        ("6,6,1,1", 6, 0, "ConvTranspose", "TC301", "6 scales on axis 0"),
        ("6,4,1,1", 4, 1, "Conv", "TC301", "6 output channels (axis 0)"),
        ("6,4,1,1", 4, None, "Conv", "TC301", "4 scales on axis 1 of"),
    ],
)
def test_scales_and_channels(weights: str, scales: int, axis: int | None, op: str, code: str, words: str) -> None:
    (finding,) = found(weight_model(weights, scales, axis, op))
    assert finding.code == code and finding.severity is Severity.ERROR
    assert words in finding.message
    assert finding.location.node == "dq"
    assert finding.fix


def test_the_output_channels_of_all_groups_are_counted() -> None:
    (finding,) = found(weight_model("8,4,1,1", 8, 0, group=2))
    assert finding.code == "TC301"
    assert "its 8 output channels, 4 in each of 2 groups (axis 1)" in finding.message


@pytest.mark.parametrize("order", [1, -1])
def test_scales_that_layers_share_are_checked_for_each(order: int) -> None:
    proto = weight_model("6,6,1,1", 6, 0)
    other = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[1,6,4,4] x, float[6,6,1,1] d) => (float[n] v)
        { [conv] v = Conv (x, d) }""").graph.node[0]
    users = [proto.graph.node.pop(), other][::order]
    proto.graph.node.extend(users)
    (finding,) = found(proto)
    assert finding.code == "TC301" and "of ConvTranspose 'up'" in finding.message
    model, result = rewritten(proto, RTX, PASSES)
    assert "move-channel-scales" in {edit.pass_name for edit in result.edits}
    assert not [f for f in run_rules(model, RTX) if f.code == "TC301"]
    weights = {n.op_type: n.input[1] for n in model.proto.graph.node if n.op_type.startswith("Conv")}
    assert weights["Conv"] == "d" and weights["ConvTranspose"] != "d"


def test_scales_of_a_layer_in_an_inner_graph_are_found() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,6,4,4] x, bool c) => (float[n,k,h,w] y)
          <int8[6,6,1,1] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1},
           float[6] s = {1,1,1,1,1,1}, int8[6] z = {0,0,0,0,0,0}>
        { [dq] d = DequantizeLinear <axis = 0> (w, s, z)
          y = If (c) <then_branch = a () => (float[n,k,h,w] p) { [up] p = ConvTranspose (x, d) },
                      else_branch = b () => (float[n,k,h,w] q) { q = Neg (x) }> }"""
    )
    (finding,) = found(proto)
    assert finding.code == "TC301" and "of ConvTranspose 'up'" in finding.message


def test_scales_of_all_groups_together_are_recognised() -> None:
    (finding,) = found(weight_model("4,3,1,1", 6, 1, group=2))
    assert finding.code == "TC302"
    assert "3 output channels, 6 scales: these fit the output channels of all 2 groups together" in finding.message


def test_right_scales_are_no_finding() -> None:
    for axis in (1, -3):
        assert not found(weight_model("64,10,1,1", 10, axis))
    assert not found(weight_model("64,10,1,1", 10, None), Target("tensorrt", (10, 15)))
    assert not found(weight_model("10,64,1,1", 10, 0, "Conv"))


@pytest.mark.parametrize("version", [(8, 6), (10, 6), (10, 14)])
def test_an_axis_left_out_means_two_things(version: tuple[int, int]) -> None:
    (finding,) = found(weight_model("64,10,1,1", 10, None), Target("tensorrt", version))
    assert finding.code == "TC305" and "10 scales without an axis" in finding.message
    assert not found(weight_model("64,10,1,1", 1, None), Target("tensorrt", version)), "a single one has no axis"


@pytest.mark.parametrize("value", [0.0, -0.5, np.nan, np.inf])
def test_scales_that_make_no_sense(value: float) -> None:
    proto = weight_model("2,3,1,1", 3, 1)
    scale = np.array([0.1, value, 0.1], np.float32)
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(scale, "s"))
    (finding,) = found(proto)
    assert (finding.code, finding.location.node) == ("TC303", "dq")
    assert f"scale {value:g} at channel 1" in finding.message


@pytest.mark.parametrize(
    ("net", "codes"),
    [
        (Net(activation=Quantiser("uint8", 128)), {"TC307"}),
        (Net(weight=Quantiser("uint8", 128, axis=1)), {"TC307"}),
        (Net(activation=Quantiser("int8", 3)), {"TC308"}),
        (Net(activation=Quantiser("uint8", 0)), {"TC308"}),
        (Net(activation=Quantiser("uint16", 5), opset=21), {"TC308"}),
        (Net(activation=Quantiser("uint16", 5), opset=17), {"TC308"}),
        (Net(bias="int32"), {"TC309"}),
        (Net(bias="int32_channels"), {"TC309"}),
        (Net(activation=Quantiser("uint8", 0, spelling="bare")), {"TC306"}),
        # Copies of constants are constants.
        (Net(activation=Quantiser(spelling="computed")), set()),
        (Net(activation=Quantiser(spelling="constant")), set()),
        (Net(weight=Quantiser(axis=1), float_weight=True), set()),
        (Net(op="Conv", weight=Quantiser(axis=0), float_weight=True), set()),
        (Net(op="Conv", weight=Quantiser(axis=1)), {"TC301"}),
        (Net(op="Gemm", kernel=(), weight=Quantiser(axis=1)), set()),
    ],
)
@pytest.mark.parametrize("place", ["main", "if"])
def test_every_spelling_has_its_code(net: Net, codes: set[str], place: str) -> None:
    proto, _ = make_net(dataclasses.replace(net, place=place))
    findings = found(proto)
    assert {f.code for f in findings} == codes
    for finding in findings:
        assert finding.location.node.endswith("_node")
        assert finding.location.graph == ("" if place == "main" else "choice/then_branch")
        assert finding.location.op in ("QuantizeLinear", "DequantizeLinear")


def test_a_missing_zero_point_is_an_error_for_8_6() -> None:
    proto = weight_model("2,3,1,1", 3, 1)
    proto.graph.node[0].input.pop()
    assert not found(proto)
    (finding,) = found(proto, TENSORRT_8)
    assert finding.code == "TC306" and "tensorrt-8.6" in finding.message


@pytest.mark.parametrize(("dtype", "code"), [("uint8", 2), ("int8", 3), ("uint16", 4), ("int16", 5), ("none", 0)])
def test_a_type_that_no_zero_point_tells(dtype: str, code: int) -> None:
    proto = parse(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[1,2] x) => (float[1,2] y) <float s = {{0.1}}>
        {{ q = QuantizeLinear <output_dtype = {code}> (x, s)
          y = DequantizeLinear (q, s) }}"""
    )
    findings = found(proto, Target("tensorrt", (10, 16)))
    if dtype == "none":
        assert [f.code for f in findings] == ["TC306"]
        return
    assert [f.code for f in findings] == ([] if dtype == "int8" else ["TC308", "TC308"])
    assert all(f.message.startswith(f"{dtype} without a zero point") for f in findings)


@pytest.mark.parametrize("form", ["zero point", "output_dtype"])
@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        ("FLOAT8E4M3FN", [False, True]),
        ("INT4", [False, True]),
        ("INT8", [False, False]),
        *((kind, [True, True]) for kind in ("FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E4M3FNUZ", "UINT4")),
    ],
)
def test_a_type_that_nothing_is_quantised_to_is_named(kind: str, targets: list[bool], form: str) -> None:
    code = onnx.TensorProto.DataType.Value(kind)
    attribute, point = ("", ", z") if form == "zero point" else (f"<output_dtype = {code}>", "")
    proto = parse(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[1,2] x) => (float[1,2] y) <float s = {{0.1}}>
        {{ [quant] q = QuantizeLinear {attribute} (x, s{point})
          y = DequantizeLinear (q, s{point}) }}"""
    )
    if point:
        zero = np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(code))
        proto.graph.initializer.append(numpy_helper.from_array(zero, "z"))
    findings = [[f for f in found(proto, target) if f.code == "TC315"] for target in (RTX, TENSORRT_8)]
    assert [[f.location.node for f in ours] for ours in findings] == [["quant"] * refused for refused in targets]
    assert all(kind in f.message for ours in findings for f in ours)


def test_a_zero_point_of_another_shape() -> None:
    proto = weight_model("2,3,1,1", 3, 1)
    proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.zeros(2, np.int8), "z"))
    (finding,) = found(proto)
    assert finding.code == "TC312" and "[2]" in finding.message and "[3]" in finding.message


@pytest.mark.parametrize(("points", "shown"), [([5, 5, 5], "5"), ([9, 2, 5], "2 to 9"), ([0, -3, 0], "-3 to 0")])
def test_the_zero_points_are_told(points: list[int], shown: str) -> None:
    proto = weight_model("2,3,1,1", 3, 1)
    proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.array(points, np.int8), "z"))
    (finding,) = found(proto)
    assert finding.code == "TC308" and f"with zero point {shown}: " in finding.message


def test_a_zero_point_of_another_type_is_the_only_finding() -> None:
    for point in (128, 3):
        proto = weight_model("2,3,1,1", 1, None)
        proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.full(1, point, np.uint8), "z"))
        (finding,) = found(proto)
        assert finding.code == "TC313" and "input is int8 and its zero point uint8" in finding.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y = QLinearMatMul (x, s, z, w, s, z, s, z)", "QLinearMatMul"),
        ("y = com.microsoft.QLinearAdd (x, s, z, x, s, z, s, z)", "QLinearAdd"),
        (
            't = Unsqueeze (x, a) r = Resize <mode = "linear"> (t, , f) y = Squeeze (r, a)',
            "interpolates quantised values",
        ),
    ],
)
def test_operators_on_integers(text: str, words: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (int8[4,4] x) => (int8[m,n] y)
          <float s = {{0.1}}, int8 z = {{0}}, int8[4,4] w = {{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}},
           int64[1] a = {{0}}, float[3] f = {{1,2,2}}>
        {{ {text} }}"""
    )
    (finding,) = found(proto)
    assert finding.code == "TC310" and words in finding.message


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (Net(channels=(2, 3)), "2 input and 3 output channels a group are not multiples of 4"),
        (Net(channels=(4, 4), group=2), "it has 2 groups"),
        (Net(channels=(4, 4), kernel=(2, 2, 2)), "3-D and its output is not quantised"),
        (Net(channels=(4, 4), activation=None), "input is not dequantised"),
        (Net(channels=(4, 4), activation=Quantiser("int8", 3)), "asymmetrically"),
    ],
)
def test_why_a_deconvolution_will_not_run_in_int8(net: Net, words: str) -> None:
    (finding,) = [f for f in run_rules(wrap(make_net(net)[0]), RTX) if f.code == "TC311"]
    assert words in finding.message and finding.severity is Severity.INFO
    assert finding.location.op == "ConvTranspose"


def test_a_deconvolution_that_will_is_no_finding() -> None:
    net = Net(channels=(4, 4), kernel=(2, 2, 2), requantized=True)
    assert not run_rules(wrap(make_net(net)[0]), RTX)


def test_the_codes_stand_in_check() -> None:
    assert set(QUANT) <= set(STANDING)


@pytest.mark.parametrize("axis", [-9, -5, 0, 1, 3, 4, 9])
@pytest.mark.parametrize("count", [2, 3, 64])
@pytest.mark.parametrize("floats", [False, True])
def test_the_rules_read_what_makes_no_sense(axis: int, count: int, floats: bool) -> None:
    proto, _ = make_net(Net(weight=Quantiser(axis=1), float_weight=floats))
    for tensor in proto.graph.initializer:
        if tensor.dims == [3] and re.match("scale|point", tensor.name):
            tensor.CopyFrom(numpy_helper.from_array(np.ones(count, numpy_helper.to_array(tensor).dtype), tensor.name))
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "axis":
                attribute.i = axis
    fits = axis in range(-4, 4) and (2, 3, 3, 3)[axis] == count
    codes = {f.code for f in found(proto)}
    assert ("TC302" in codes) == (not fits)


MIXED = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x, float[1,1,1,1] given) => (float[1,1,n,m] y)
    <float[1,1,1,1] w = {1}, int8[1,1,1,1] q = {1}, float s = {0.1}, int8 z = {0}>
    { d = DequantizeLinear (q, s, z)  c = Conv (x, d)  [up] y = ConvTranspose (%s) }"""


@pytest.mark.parametrize(
    ("inputs", "why", "computed"), [("c, w", "it runs in float", True), ("c, given", "", False)], ids=["kept", "given"]
)
def test_a_float_deconvolution_among_quantised_layers(inputs: str, why: str, computed: bool) -> None:
    (deconv,) = deconvs(wrap(parse(MIXED % inputs)))
    assert (why_in_float(deconv), may_be_computed(deconv)) == (why, computed)


@pytest.mark.parametrize(("source", "computed"), [("x", True), ("back", False)])
def test_only_a_float_input_may_have_been_computed_by_a_pass(source: str, computed: bool) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,n,m] y)
        <int8[1,1,1,1] q = {{1}}, float s = {{0.1}}, int8 z = {{0}}>
        {{ i = QuantizeLinear (x, s, z)  back = DequantizeLinear (i, s, z)  d = DequantizeLinear (q, s, z)
          [up] y = ConvTranspose ({source}, d) }}"""
    )
    (deconv,) = deconvs(wrap(proto))
    assert may_be_computed(deconv) is computed


@pytest.mark.parametrize("point", [0, 3])
def test_only_a_zero_point_beside_0_is_asymmetric(point: int) -> None:
    """Whatever the scale is: it is not the zero point."""
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,n,m] y)
        <int8[1,1,1,1] q = {{1}}, float s = {{7}}, int8 z = {{0}}, int8 p = {{{point}}}>
        {{ i = QuantizeLinear (x, s, p)  back = DequantizeLinear (i, s, p)  d = DequantizeLinear (q, s, z)
          [up] y = ConvTranspose (back, d) }}"""
    )
    (deconv,) = deconvs(wrap(proto))
    assert ("asymmetrically" in why_in_float(deconv)) is (point != 0)


@pytest.mark.parametrize("computed", ["s", "z"])
def test_what_is_not_constant_is_named(computed: str) -> None:
    kinds = {"s": "float", "z": "uint8"}
    (constant,) = kinds.keys() - {computed}
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x, {kinds[computed]} {computed}) => (uint8[1,2,4,4] y) <{kinds[constant]} {constant} = {{1}}>
        {{ y = QuantizeLinear (x, s, z) }}"""
    )
    (finding,) = [each for each in found(proto) if each.code == "TC304"]
    assert re.findall(r"'(\w+)'", finding.message) == [computed]


@pytest.mark.parametrize(("dims", "shape"), [("2", "[2]"), ("2,3", "[2, 3]"), ("n", "[None]")])
def test_an_integer_bias_is_told_with_its_own_shape(dims: str, shape: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (int32[{dims}] b) => (float[{dims}] y) <float s = {{0.1}}> {{ y = DequantizeLinear (b, s) }}"""
    )
    (finding,) = [each for each in found(proto) if each.code == "TC309"]
    assert f"'b' {shape}:" in finding.message


@pytest.mark.parametrize(
    ("maker", "codes"),
    [
        ("Cast <to = 2> (x)", ["TC308"]),
        ("Cast <to = 3> (x)", []),
        ("QuantizeLinear (x, s)", ["TC306"]),
        ("QuantizeLinear (x, s, z)", ["TC308", "TC308"]),
    ],
)
def test_codes_without_a_zero_point_are_told_once(maker: str, codes: list[str]) -> None:
    proto = parse(
        f"""<ir_version: 10, opset_import: ["": 21]> g (float[1,2] x) => (float[1,2] y)
        <float s = {{0.1}}, uint8 z = {{0}}> {{ q = {maker}  y = DequantizeLinear (q, s) }}"""
    )
    assert [finding.code for finding in found(proto, Target("tensorrt", (10, 16)))] == codes


@pytest.mark.parametrize("dims", ["3", "3,2", "2,2"])
def test_scales_of_a_weight_of_any_rank_are_read(dims: str) -> None:
    sizes = [int(n) for n in dims.split(",")]
    proto = weight_model("3,2,1,1", 3, 0)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(sizes, np.int8), "w"))
    assert ("TC301" in {finding.code for finding in found(proto)}) == (dims == "3,2")
