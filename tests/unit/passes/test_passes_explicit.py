"""make-deconv-explicit, node by node: when it fires, what it makes, and where it must look twice."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX, TENSORRT_8, assert_equal, attributes, deconvs, parse, rewritten, wrap
from support.session import Array, run
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, PassResult, passes_for
from trtconv.passes.base import run_passes

PASS = tuple(each for each in PASSES if each.name == "make-deconv-explicit")
W = "<float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>"
HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def one(attrs: str, opset: int = 17, sizes: str = "5,5") -> onnx.ModelProto:
    return parse(
        f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[1,1,{sizes}] x) => (float[1,1,p,q] y) {W}
        {{ [up] y = ConvTranspose <{attrs}> (x, w) }}"""
    )


def same(proto: onnx.ModelProto, **feeds: Array) -> PassResult:
    """Rewrites a model, and holds it to the original on ONNX Runtime."""
    random = np.random.default_rng(0)
    feeds = {"x": random.standard_normal((1, 1, 5, 5)).astype(np.float32), **feeds}
    model, result = rewritten(proto)
    assert_equal(run(proto, feeds), run(model.proto, feeds))
    return result


@pytest.mark.parametrize(
    ("attrs", "pads", "kernel"),
    [
        ("strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]", [1, 1, 0, 0], [3, 3]),
        ("strides=[2,2], output_padding=[1,1]", [0, 0, 0, 0], [4, 4]),
        ("strides=[2,2], output_padding=[1,0]", [0, 0, 0, 0], [4, 3]),
        ("strides=[2,2], dilations=[2,2], output_padding=[1,1]", [0, 0, 1, 1], [4, 4]),
        ("strides=[2,2], pads=[-1,0,0,-2]", [0, 0, 0, 0], [4, 5]),
        ("strides=[2,2], auto_pad='SAME_UPPER'", [0, 0, 1, 1], [3, 3]),
        ("strides=[2,2], auto_pad='SAME_LOWER'", [1, 1, 0, 0], [3, 3]),
        ("strides=[2,2], auto_pad='SAME_UPPER', output_padding=[1,1]", [1, 1, 0, 0], [3, 3]),
        ("strides=[2,2], auto_pad='VALID', output_padding=[1,1]", [0, 0, 0, 0], [4, 4]),
        ("strides=[2,2], output_shape=[10,10]", [1, 1, 0, 0], [3, 3]),
        ("strides=[2,2], output_shape=[10,10], auto_pad='SAME_UPPER'", [0, 0, 1, 1], [3, 3]),
        ("strides=[2,2], output_shape=[1,1,10,10]", [1, 1, 0, 0], [3, 3]),
        ("strides=[2,2], output_shape=[12,12]", [0, 0, 0, 0], [4, 4]),
    ],
)
def test_it_writes_pads_and_kernels(attrs: str, pads: list[int], kernel: list[int]) -> None:
    model, result = rewritten(one(attrs.replace("'", '"')), RTX, PASS)
    made = attributes(deconvs(model)[0])
    assert (made["pads"], made["kernel_shape"]) == (pads, kernel)
    assert made.keys().isdisjoint({"auto_pad", "output_shape", "output_padding"})
    assert [(edit.pass_name, edit.node) for edit in result.edits] == [("make-deconv-explicit", "up")]


@pytest.mark.parametrize(
    ("attrs", "pads", "zeros"),
    [
        ("strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]", [1, 1, 0, 0], None),
        ("strides=[2,2], output_padding=[1,1]", [0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 1, 1]),
        ("strides=[2,2], output_padding=[1,0]", [0, 0, 1, 0], [0, 0, 0, 0, 0, 0, 1, 0]),
        ("strides=[2,3], pads=[-3,0,0,-2]", [1, 0, 0, 1], [0, 0, 2, 0, 0, 0, 0, 1]),
    ],
)
@pytest.mark.parametrize("opset", [9, 17])
def test_on_tensorrt_float32_kernels_stay_small(
    attrs: str, pads: list[int], zeros: list[int] | None, opset: int
) -> None:
    proto = one(attrs, opset)
    model, result = rewritten(proto, TENSORRT_8, PASS)
    assert (attributes(deconvs(model)[0])["pads"], attributes(deconvs(model)[0])["kernel_shape"]) == (pads, [3, 3])
    padded = [node for node in model.proto.graph.node if node.op_type == "Pad"]
    assert [_amounts(model, node) for node in padded] == ([zeros] if zeros else [])
    assert len(result.edits) == 1
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 5)).astype(np.float32)
    if "-" not in attrs:  # ONNX Runtime does not take negative pads.
        assert_equal(run(proto, {"x": x}), run(model.proto, {"x": x}))


def _amounts(model: OnnxModel, pad: onnx.NodeProto) -> list[int]:
    if len(pad.input) < 2:
        return list(attributes(pad)["pads"])
    return [int(n) for n in numpy_helper.to_array(model.main.initializers[pad.input[1]])]


def test_engines_in_half_precision_and_quantised_kernels_take_the_larger_kernel() -> None:
    attrs = "strides=[2,2], output_padding=[1,1]"
    passes = [each for each in passes_for("fp16") if each.name == "make-deconv-explicit"]
    model, _ = rewritten(one(attrs), TENSORRT_8, passes)
    assert attributes(deconvs(model)[0])["kernel_shape"] == [4, 4]
    quantized = parse(
        f"""{HEAD} g (float[1,1,5,5] x) => (float[1,1,p,q] y)
        <int8[1,1,3,3] q = {{1,2,3,4,5,6,7,8,9}}, float s = {{0.5}}>
        {{ w = DequantizeLinear (q, s) y = ConvTranspose <{attrs}> (x, w) }}"""
    )
    model, _ = rewritten(quantized, TENSORRT_8, PASS)
    assert attributes(deconvs(model)[0])["kernel_shape"] == [4, 4]


WIDE = """<ir_version: 8, opset_import: ["": 17]> g (float[1,128,3,3] x) => (float[1,p,q,r] y)
    <float s = {0.5}, int8 z = {0}> { y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (INPUT, w) }"""


def wide(*, quantized: bool, taps: int = 2) -> onnx.ModelProto:
    """Returns a node of 128 input channels."""
    proto = parse(WIDE.replace("INPUT", "a" if quantized else "x"))
    values = np.random.default_rng(3).integers(-9, 9, (128, 2, taps, taps)).astype(np.int8 if quantized else np.float32)
    if quantized:
        names = ["s", "z"]
        proto.graph.node.insert(0, helper.make_node("DequantizeLinear", ["w_q", *names], ["w"]))
        proto.graph.node.insert(0, helper.make_node("DequantizeLinear", ["x_q", *names], ["a"]))
        proto.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", *names], ["x_q"]))
    proto.graph.initializer.append(numpy_helper.from_array(values, "w_q" if quantized else "w"))
    return proto


@pytest.mark.parametrize(
    ("quantized", "target", "ops"),
    [
        (False, TENSORRT_8, ["Conv", "ConvTranspose"]),
        (False, Target("tensorrt", (10, 3)), ["ConvTranspose"]),
        (False, RTX, ["ConvTranspose"]),
        (True, TENSORRT_8, ["Pad", "QuantizeLinear", "DequantizeLinear", "ConvTranspose"]),
        (True, RTX, ["ConvTranspose"]),
    ],
)
def test_wide_nodes_have_zeros_in_their_input_where_that_was_measured(
    quantized: bool, target: Target, ops: list[str]
) -> None:
    proto = wide(quantized=quantized)
    passes = [each for each in passes_for("fp16") if each.name == "make-deconv-explicit"]
    model, _ = rewritten(proto, target, passes)
    assert [node.op_type for node in model.proto.graph.node][-len(ops) :] == ops
    x = np.random.default_rng(0).standard_normal((1, 128, 3, 3)).astype(np.float32)
    assert_equal(run(proto, {"x": x}), run(model.proto, {"x": x}))


@pytest.mark.parametrize(
    ("quantized", "taps", "kernel"),
    [(False, 3, 3), (False, 4, 5), (False, 5, 6), (True, 3, 3), (True, 4, 4), (True, 5, 6)],
)
def test_wide_nodes_have_zeros_in_a_kernel_that_they_make_little_larger(
    quantized: bool, taps: int, kernel: int
) -> None:
    proto = wide(quantized=quantized, taps=taps)
    passes = [each for each in passes_for("fp16") if each.name == "make-deconv-explicit"]
    model, _ = rewritten(proto, TENSORRT_8, passes)
    assert [attributes(node)["kernel_shape"] for node in deconvs(model)] == [[kernel] * 2]
    x = np.random.default_rng(0).standard_normal((1, 128, 3, 3)).astype(np.float32)
    assert_equal(run(proto, {"x": x}), run(model.proto, {"x": x}))


@pytest.mark.parametrize("rank", [1, 3])
def test_wide_nodes_of_other_than_two_axes_have_a_larger_kernel(rank: int) -> None:
    attrs = f"strides={[2] * rank}, output_padding={[1] * rank}"
    proto = parse(
        f"""{HEAD} g (float[1,128{",5" * rank}] x) => (float[1,p{",q" * rank}] y)
        {{ y = ConvTranspose <{attrs}> (x, w) }}"""
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((128, 2, *[2] * rank), np.float32), "w"))
    passes = [each for each in passes_for("fp16") if each.name == "make-deconv-explicit"]
    model, _ = rewritten(proto, TENSORRT_8, passes)
    assert [node.op_type for node in model.proto.graph.node] == ["ConvTranspose"]


def test_what_a_form_cannot_do_the_kernel_does() -> None:
    proto = wide(quantized=False)
    proto.graph.initializer[-1].CopyFrom(numpy_helper.from_array(np.ones((128, 2, 2, 2), np.float64), "w"))
    proto.graph.input[0].type.tensor_type.elem_type = proto.graph.output[0].type.tensor_type.elem_type = (
        TensorProto.DOUBLE
    )
    passes = [each for each in passes_for("fp16") if each.name == "make-deconv-explicit"]
    model, _ = rewritten(proto, TENSORRT_8, passes)
    assert [attributes(node)["kernel_shape"] for node in deconvs(model)] == [[3, 3]]


def test_on_tensorrt_depthwise_nodes_are_padded_behind_before_the_bias() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,2,5,5] x) => (float[1,2,p,q] y)
        <float[2,1,2,2] w = {{1,2,3,4,5,6,7,8}}, float[2] b = {{3,4}}>
        {{ y = ConvTranspose <strides=[2,2], output_padding=[1,1], group=2> (x, w, b) }}"""
    )
    model, _ = rewritten(proto, TENSORRT_8, PASS)
    assert [node.op_type for node in model.proto.graph.node] == ["ConvTranspose", "Pad", "Add"]
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 5)).astype(np.float32)
    assert_equal(run(proto, {"x": x}), run(model.proto, {"x": x}))


@pytest.mark.parametrize(
    "attrs", ["group=1", "strides=[2,2]", "strides=[2,2], pads=[1,1,1,1]", 'auto_pad="NOTSET", output_padding=[0,0]']
)
def test_it_leaves_what_is_explicit(attrs: str) -> None:
    proto = one(attrs)
    model, result = rewritten(proto, passes=PASS)
    assert result == PassResult()
    assert model.proto == proto


@pytest.mark.parametrize("attrs", ["strides=[2,2], output_padding=[2,2]", "strides=[2,2], output_shape=[13,13]"])
def test_it_refuses_more_than_stride_and_dilation_allow(attrs: str) -> None:
    proto = one(attrs)
    model, result = rewritten(proto, passes=PASS)
    assert model.proto == proto
    assert "TC105" in result.skipped[0].reason


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ('auto_pad="SAME"', "auto_pad 'SAME' is not one of"),
        ("strides=[2], output_padding=[1,1]", "strides has 1 entries"),
        ("kernel_shape=[2,2], output_padding=[1,1]", "does not match"),
    ],
)
def test_it_refuses_what_makes_no_sense(attrs: str, reason: str) -> None:
    proto = one(attrs)
    model, result = wrap(proto), PassResult()
    for each in PASS:
        result += each.run(model, RTX)
    assert model.proto == proto
    assert reason in result.skipped[0].reason


def test_a_node_without_weight_is_refused() -> None:
    node = "y = ConvTranspose <output_padding=[0,1]> (x)"
    model = wrap(parse(f"{HEAD} g (float[1,1,5,5] x) => (float[1,1,p,q] y) {{ {node} }}"))
    assert run_passes(model, PASS, RTX).skipped[0].reason == "it has no weight"


@pytest.mark.parametrize(("opset", "edits"), [(11, 0), (12, 1)])
def test_an_output_shape_on_dynamic_sizes_needs_opset_12(opset: int, edits: int) -> None:
    _, result = rewritten(one("strides=[2,2], output_shape=[10,10]", opset, "h,w"), passes=PASS)
    assert (len(result.edits), len(result.skipped)) == (edits, 1 - edits)


def test_edits_say_why_a_kernel_was_not_folded() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x, float[1,1,3,3] w, float[1] b) => (float[1,1,p,q] y)
        {{ [up] y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w, b) }}"""
    )
    result = same(proto, w=np.ones((1, 1, 3, 3), np.float32), b=np.array([7], np.float32))
    assert "'w' is computed at run time" in result.edits[0].what


def test_sizes_behind_a_same_pad_with_output_padding_are_not_believed() -> None:
    """ONNX's shape inference gives the first node 11 elements; it has 10."""
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x) => (float[1,1,p,q] y) {W}
        {{ a = ConvTranspose <strides=[2,2], auto_pad="SAME_UPPER", output_padding=[1,1]> (x, w)
           r = Relu (a)
           y = ConvTranspose <strides=[2,2], output_shape=[20,20]> (r, w) }}"""
    )
    same(proto)
    same(onnx.shape_inference.infer_shapes(proto))


BRANCHES = """
y = If (c) <
    then_branch = t () => (float[1,1,p,q] a) { a = ConvTranspose <strides=[2,2], output_padding=[1,1]> (%s, v) },
    else_branch = e () => (float[1,1,p,q] b) { b = ConvTranspose <strides=[2,2], output_shape=[10,10]> (x, v) }>"""


@pytest.mark.parametrize("flag", [True, False])
def test_branches_behind_a_node_that_becomes_several(flag: bool) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x, bool c, float[1,1,3,3] w) => (float[1,1,p,q] y)
        <float[1,1,3,3] v = {{1,2,3,4,5,6,7,8,9}}>
        {{ h = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w)
           {BRANCHES % "h"} }}"""
    )
    result = same(proto, c=np.array(flag), w=np.ones((1, 1, 3, 3), np.float32))
    assert len(result.edits) == 3


@pytest.mark.parametrize("flag", [True, False])
def test_a_constant_node_outside_a_branch_is_folded(flag: bool) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x, bool c) => (float[1,1,p,q] y)
        {{ v = Constant <value = float[1,1,3,3] {{1,2,3,4,5,6,7,8,9}}> ()
           {BRANCHES % "x"} }}"""
    )
    result = same(proto, c=np.array(flag))
    assert [("kernel" in e.what, "pads [1, 1, 0, 0]" in e.what) for e in result.edits] == [(True, False), (False, True)]


def test_subgraphs_of_nodes_with_the_same_name() -> None:
    branches = (BRANCHES % "x").replace("y = If", "[twin] y = If")
    second = branches.replace("y = If", "z = If").replace("(x, v)", "(r, v)")
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x, bool c) => (float[1,1,p,q] y, float[1,1,p,q] z) {W.replace(" w", " v")}
        {{ {branches} r = Neg (x) {second} }}"""
    )
    model, result = rewritten(proto)
    assert len(result.edits) == 4
    proto.graph.node[2].name = model.proto.graph.node[2].name = "other"  # ONNX Runtime wants names of their own.
    feeds = {"x": np.ones((1, 1, 5, 5), np.float32), "c": np.array(True)}
    assert_equal(run(proto, feeds), run(model.proto, feeds))


QUANTIZED = [
    "int8[1,1,3,3] q = {1,2,3,4,5,6,7,8,9}, int8 z = {0}",
    "uint8[1,1,3,3] q = {1,2,3,4,5,6,7,8,9}, uint8 z = {100}",
]


@pytest.mark.parametrize("constants", QUANTIZED)
def test_added_taps_of_quantised_weights_are_zero_points(constants: str) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x) => (float[1,1,p,q] y) <{constants}, float s = {{0.5}}>
        {{ w = DequantizeLinear (q, s, z)
           y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w) }}"""
    )
    assert "4x4" in same(proto).edits[0].what


@pytest.mark.parametrize(
    "chain",
    [
        "a = Cast <to=1> (i) q = QuantizeLinear (a, s, z) w = DequantizeLinear (q, s, z)",
        "a = Cast <to=2> (i) w = DequantizeLinear (a, s, z)",
        "a = Cast <to=2> (f) w = DequantizeLinear (a, s, z)",
        "q = QuantizeLinear (f, s, z) a = Identity (q) w = DequantizeLinear (a, s, z)",
    ],
)
def test_what_stands_for_zero_depends_on_where_the_chain_begins(chain: str) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x) => (float[1,1,p,q] y)
        <int32[1,1,3,3] i = {{1,2,3,4,5,6,7,8,9}}, float[1,1,3,3] f = {{1,2,3,4,5,6,7,8,9}}, float s = {{0.5}},
         uint8 z = {{100}}>
        {{ {chain}
           y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w) }}"""
    )
    assert "4x4" in same(proto).edits[0].what


def test_four_bit_weights() -> None:
    proto = parse(
        """<ir_version: 10, opset_import: ["": 21]> g (float[1,1,5,5] x) => (float[1,1,p,q] y) <float s = {0.5}>
        { w = DequantizeLinear (q, s, z)
          y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w) }"""
    )
    values = [1, 2, 3, 4, 5, 6, 7, -8, -3]
    proto.graph.initializer.append(helper.make_tensor("q", TensorProto.INT4, [1, 1, 3, 3], values))
    proto.graph.initializer.append(helper.make_tensor("z", TensorProto.INT4, [], [2]))
    assert "4x4" in same(proto).edits[0].what


def test_eight_bit_float_weights(capfd: pytest.CaptureFixture[str]) -> None:
    proto = parse(
        """<ir_version: 10, opset_import: ["": 21]> g (float[1,1,5,5] x) => (float[1,1,p,q] y)
        <float[1,1,3,3] f = {1,2,3,4,5,6,7,8,9}, float s = {0.5}, float8e4m3fn z = {0}>
        { q = QuantizeLinear (f, s, z) w = DequantizeLinear (q, s, z)
          y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w) }"""
    )
    assert "4x4" in same(proto).edits[0].what
    assert capfd.readouterr().out == ""


def test_scales_along_the_kernel_are_left_alone() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x) => (float[1,1,p,q] y)
        <int8[1,1,3,3] q = {{1,2,3,4,5,6,7,8,9}}, float[3] s = {{0.1,0.2,0.3}}>
        {{ w = DequantizeLinear <axis=2> (q, s)
           y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w) }}"""
    )
    assert "quantised along the kernel" in same(proto).edits[0].what


def test_a_foreign_dequantizer_is_not_copied_as_a_standard_one() -> None:
    proto = parse(
        f"""{HEAD.replace("]", ', "com.microsoft": 1]')} g (float[1,1,5,5] x) => (float[1,1,p,q] y)
        <int16[1,1,3,3] q = {{1,2,3,4,5,6,7,8,9}}, float s = {{0.1}}, int16 z = {{100}}>
        {{ w = com.microsoft.DequantizeLinear (q, s, z)
           y = ConvTranspose <strides=[2,2], kernel_shape=[3,3], output_padding=[1,1]> (x, w) }}"""
    )
    assert "computed at run time" in same(proto).edits[0].what


def test_old_models_declare_their_initializers_as_inputs() -> None:
    proto = parse(
        """<ir_version: 3, opset_import: ["": 9]> g (float[1,1,5,5] x, float[1,1,3,3] w) => (float[1,1,12,12] y)
        <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w) }"""
    )
    onnx.checker.check_model(proto)
    assert len(same(proto).edits) == 1
    onnx.checker.check_model(rewritten(proto)[0].proto)


@pytest.mark.parametrize("size", [3, 70_000])
def test_deconvolutions_in_a_chain(size: int) -> None:
    """Neighbours in one field do not disturb each other; weights that a shape inference leaves out are found."""
    proto = parse(
        f"""{HEAD} g (float[1,1,5,5] x, float[1,1,3,3] w) => (float[1,1,p,q] y) {W.replace(" w", " v")}
        {{ a = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, w)
           b = ConvTranspose <strides=[2,2], output_padding=[1,1]> (a, v)
           y = ConvTranspose <output_shape=[25,25]> (b, w) }}"""
    )
    assert len(same(proto, w=np.full((1, 1, 3, 3), size, np.float32)).edits) == 3


@pytest.mark.parametrize(("second", "valid"), [([24, 24], True), ([50, 50], False), ([23, 30], False)])
@pytest.mark.parametrize("between", ["Relu", "Identity"])
def test_what_follows_an_output_shape_on_dynamic_sizes_still_knows_its_size(
    second: list[int], valid: bool, between: str
) -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,h,w] x) => (float[1,1,p,q] y) {W}
        {{ [up1] a = ConvTranspose <strides=[2,2], output_shape=[12,12]> (x, w)
           b = {between} (a)
           [up2] y = ConvTranspose <strides=[2,2], output_shape={second}> (b, w) }}"""
    )
    model, result = rewritten(proto, passes=PASS)
    assert [edit.node for edit in result.edits] == (["up1", "up2"] if valid else ["up1"])
    if valid:
        feeds = {"x": np.random.default_rng(0).standard_normal((1, 1, 6, 6)).astype(np.float32)}
        assert_equal(run(proto, feeds), run(model.proto, feeds))
