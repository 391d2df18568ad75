"""When rules about single operators fire, and when they just do not: one model each, as small as can be."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

from support.onnx_models import RTX, parse, wrap
from trtconv.core.target import Target
from trtconv.graph.views import deconvs
from trtconv.rules import CHECKS, run_rules
from trtconv.rules.advisories import ADVISORIES, Advisory
from trtconv.rules.deconv_not_int8 import why_in_float

EIGHT, TEN = Target("tensorrt", (8, 6)), Target("tensorrt", (10, 13))
X = "float[1,2,6,6] x"


def net(nodes: str, inputs: str = X, outputs: str = "float[a] y", stored: str = "", opset: int = 17) -> str:
    held = f"<{stored}>" if stored else ""
    return (
        f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1, "my": 1]>'
        f" g ({inputs}) => ({outputs}) {held} {{ {nodes} }}"
    )


def fires(code: str, proto: onnx.ModelProto, target: Target) -> bool:
    (rule,) = (rule for rule in CHECKS if rule.code == code)
    return bool([found for found in run_rules(wrap(proto), target) if found.code == rule.code])


RESIZE = 'y = Resize <mode = "{}", coordinate_transformation_mode = "{}"> (x, {})'
SCALES = "float[4] s = {1,1,2,2}, float[4] half = {1,1,1.5,1.5}, float[4] third = {1,1,1.3,2}, int64[4] n = {1,2,9,9}"
BRANCHES = (
    "y = If (c) < then_branch = t () => (float[{}] u) {{ u = Relu (x) }},"
    " else_branch = e () => (float[{}] v) {{ v = ReduceMax <keepdims = 0> (x) }}>"
)
POOL = "y = MaxPool <kernel_shape = [2,2], strides = [{0},{0}], pads = [{1},{1},{1},{1}], ceil_mode = {2}> (x)"
NMS_INPUTS = "float[1,8,4] boxes, float[1,3,8] scores"
NMS_STORED = "int64 most = {3}, float iou = {0.5}, float least = {0.1}"
WHEN: list[tuple[str, Target, str, bool]] = [
    ("TC601", RTX, net("y = Trilu (x)"), True),
    ("TC601", RTX, net("y = Trilu <upper = 0> (x)"), False),
    ("TC604", RTX, net("y = GlobalLpPool <p = 1> (x)"), True),
    ("TC604", RTX, net("y = GlobalLpPool <p = 3> (x)"), True),
    ("TC604", RTX, net("y = GlobalLpPool <p = 2> (x)"), False),
    ("TC604", RTX, net("y = GlobalLpPool (x)"), False),
    ("TC604", RTX, net("t = Abs (x) y = GlobalLpPool <p = 1> (t)"), False),
    ("TC604", RTX, net("t = Relu (x) y = GlobalLpPool <p = 1> (t)"), True),
    ("TC605", RTX, net("y = ReduceL2 <noop_with_empty_axes = 1> (x)", opset=18), True),
    ("TC605", RTX, net("y = ReduceL2 <noop_with_empty_axes = 0> (x)", opset=18), False),
    ("TC605", RTX, net("y = ReduceL2 (x)", opset=18), False),
    (
        "TC605",
        RTX,
        net("y = ReduceL2 <noop_with_empty_axes = 1> (x, a)", stored="int64[1] a = {1}", opset=18),
        False,
    ),
    ("TC605", RTX, net("y = ReduceMax <noop_with_empty_axes = 1> (x)", opset=18), False),
    ("TC606", RTX, net('y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x)', opset=26), True),
    ("TC606", RTX, net('y = SpaceToDepth <blocksize = 2, mode = "DCR"> (x)', opset=26), False),
    ("TC606", RTX, net("y = SpaceToDepth <blocksize = 2> (x)"), False),
    ("TC607", RTX, net(RESIZE.format("linear", "tf_half_pixel_for_nn", ", s"), stored=SCALES, opset=11), True),
    ("TC607", RTX, net(RESIZE.format("nearest", "tf_half_pixel_for_nn", ", s"), stored=SCALES, opset=11), False),
    ("TC607", RTX, net(RESIZE.format("linear", "half_pixel", ", s"), stored=SCALES, opset=11), False),
    ("TC608", RTX, net(RESIZE.format("linear", "half_pixel", ", given"), f"{X}, float[4] given"), True),
    ("TC608", RTX, net(RESIZE.format("nearest", "half_pixel", ", given"), f"{X}, float[4] given"), False),
    ("TC608", RTX, net("y = Resize (x, , given)", f"{X}, float[4] given"), False),
    ("TC608", RTX, net(RESIZE.format("linear", "half_pixel", ", s"), stored=SCALES), False),
    ("TC608", RTX, net(RESIZE.format("linear", "half_pixel", ", , given"), f"{X}, int64[4] given"), False),
    ("TC618", RTX, net(RESIZE.format("linear", "align_corners", ", third"), stored=SCALES), True),
    ("TC618", RTX, net(RESIZE.format("cubic", "align_corners", ", third"), stored=SCALES), True),
    ("TC618", RTX, net(RESIZE.format("nearest", "align_corners", ", third"), stored=SCALES), False),
    ("TC618", RTX, net(RESIZE.format("linear", "half_pixel", ", third"), stored=SCALES), False),
    ("TC618", RTX, net(RESIZE.format("linear", "align_corners", ", half"), stored=SCALES), False),
    ("TC618", RTX, net(RESIZE.format("linear", "align_corners", ", , n"), stored=SCALES), False),
    (
        "TC618",
        RTX,
        net(RESIZE.format("linear", "align_corners", ", third"), "float[1,2,h,6] x", stored=SCALES),
        False,
    ),
    ("TC609", RTX, net("y = NonMaxSuppression (boxes, scores)", NMS_INPUTS, "int64[a,3] y"), True),
    (
        "TC609",
        RTX,
        net("y = NonMaxSuppression (boxes, scores, most)", NMS_INPUTS, "int64[a,3] y", NMS_STORED),
        True,
    ),
    (
        "TC609",
        RTX,
        net("y = NonMaxSuppression (boxes, scores, , iou, least)", NMS_INPUTS, "int64[a,3] y", NMS_STORED),
        True,
    ),
    (
        "TC609",
        RTX,
        net("y = NonMaxSuppression (boxes, scores, most, iou, least)", NMS_INPUTS, "int64[a,3] y", NMS_STORED),
        False,
    ),
    ("TC610", RTX, net("y = Clip (x, lo, hi)", stored="float lo = {2}, float hi = {1}"), True),
    ("TC610", RTX, net("y = Clip (x, lo, hi)", stored="float lo = {2}, float hi = {2}"), False),
    ("TC610", RTX, net("y = Clip (x, lo, hi)", stored="float lo = {-2}, float hi = {1}"), False),
    ("TC610", RTX, net("y = Clip (x, lo)", stored="float lo = {2}"), False),
    ("TC610", RTX, net("y = Clip (x, lo, hi)", f"{X}, float lo", stored="float hi = {1}"), False),
    ("TC610", RTX, net("y = Clip <min = 2.0, max = 1.0> (x)", opset=10), True),
    ("TC610", RTX, net("y = Clip <min = 1.0, max = 2.0> (x)", opset=10), False),
    ("TC611", RTX, net("y = RNN <hidden_size = 1, layout = 1> (x, w, w)", "float[1,1,1] x, float[1,1,1] w"), True),
    ("TC611", RTX, net("y = RNN <hidden_size = 1, layout = 0> (x, w, w)", "float[1,1,1] x, float[1,1,1] w"), False),
    ("TC611", RTX, net("y = RNN <hidden_size = 1> (x, w, w)", "float[1,1,1] x, float[1,1,1] w"), False),
    ("TC612", RTX, net(POOL.format(3, 1, 1), "float[1,1,5,5] x"), True),
    ("TC612", RTX, net(POOL.format(3, 1, 0), "float[1,1,5,5] x"), False),
    ("TC612", RTX, net(POOL.format(2, 0, 1), "float[1,1,5,5] x"), False),
    ("TC612", RTX, net(POOL.format(3, 1, 1), "float[1,1,6,6] x"), False),
    ("TC612", RTX, net(POOL.format(3, 1, 1), "float[1,1,h,w] x"), False),
    ("TC613", EIGHT, net("y = ReduceMax (x, a)", stored="int64[1] a = {1}", opset=18), True),
    ("TC613", TEN, net("y = ReduceMax (x, a)", stored="int64[1] a = {1}", opset=18), False),
    ("TC613", EIGHT, net("y = ReduceMax (x)", opset=18), False),
    ("TC614", RTX, net("t = Transpose (x) y = Cast <to = 1> (t)", "uint8[2,3] x"), True),
    ("TC614", RTX, net("t = Transpose (x) y = Cast <to = 1> (t)", "int8[2,3] x"), False),
    ("TC614", RTX, net("t = Transpose (x) u = Transpose (t) y = Cast <to = 1> (u)", "uint8[2,3] x"), True),
    ("TC614", RTX, net("t = Transpose (x) y = Add (t, t)", "uint8[2,3] x", "uint8[a,b] y"), False),
    (
        "TC614",
        RTX,
        net(
            "t = Transpose (x) y = Cast <to = 1> (t) z = Cast <to = 6> (t)",
            "uint8[2,3] x",
            "float[a,b] y, int32[c,d] z",
        ),
        False,
    ),
    ("TC617", EIGHT, net("y = Mish (x)", opset=18), True),
    ("TC617", TEN, net("y = Mish (x)", opset=18), False),
    ("TC617", EIGHT, net("y = Relu (x)", opset=18), False),
    ("TC619", RTX, net(BRANCHES.format("a,b", "a"), "float[2,2] x, bool c"), True),
    ("TC619", RTX, net(BRANCHES.format("a,b", "a,b"), "float[2,2] x, bool c"), False),
    ("TC602", RTX, net("y = Attention <left_window_size = 3> (x, x, x)", opset=26), True),
    ("TC602", RTX, net("y = Attention <right_window_size = 0> (x, x, x)", opset=26), True),
    ("TC602", RTX, net("y = Attention <left_window_size = -1, right_window_size = -1> (x, x, x)", opset=26), False),
    ("TC602", RTX, net("y = Attention (x, x, x)", opset=24), False),
    ("TC603", RTX, net("y = Attention (x, x, x, , , , n)", f"{X}, int64[1] n", opset=24), True),
    ("TC603", RTX, net("y = Attention (x, x, x)", opset=24), False),
    ("TC001", EIGHT, net("y = Relu (x)", opset=18), True),
    ("TC001", EIGHT, net("y = Relu (x)"), False),
    ("TC003", RTX, net("t = Relu (x)", outputs="float[1,2,6,6] x"), True),
    ("TC003", RTX, net("y = Relu (x)"), False),
    ("TC004", RTX, net("y = Relu <alpha = 1.0> (x)"), True),
    ("TC004", RTX, net("y = LeakyRelu <alpha = 1.0> (x)"), False),
    ("TC004", RTX, net("y = my.Relu <alpha = 1.0> (x)"), False),
    ("TC006", RTX, net("y = IsNaN (x)"), True),
    ("TC006", RTX, net("y = ArgMax (x)"), True),
    ("TC006", RTX, net("y = Cast <to = 7> (x)"), True),
    ("TC006", RTX, net("y = Constant <value_int = 3> ()"), True),
    ("TC006", RTX, net("y = IsNaN (x)", outputs="bool[1,2,6,6] y"), False),
    ("TC006", RTX, net("y = Cast <to = 1> (x)"), False),
    ("TC006", RTX, net("y = my.IsNaN (x)"), False),
    ("TC006", RTX, net("y = Add (unknown, x) unknown = my.Relu (x)"), False),
    ("TC006", RTX, net(BRANCHES.format("a,b", "a,b"), "float[2,2] x, bool c"), False),
    ("TC204", RTX, net("y = NonZero (x)", outputs="int64[a,b] y"), True),
    ("TC310", RTX, net("y = com.microsoft.QLinearAdd (x, s, z, x, s, z, s, z)", "int8[1] x, float s, int8 z"), True),
    ("TC310", RTX, net("y = my.QLinearAdd (x, s, z, x, s, z, s, z)", "int8[1] x, float s, int8 z"), False),
    ("TC310", RTX, net("y = Resize (x, , s)", "int8[1,1,4,4] x", stored=SCALES), False),
    ("TC310", RTX, net('y = Resize <mode = "linear"> (x, , s)', "uint8[1,1,4,4] x", stored=SCALES), True),
    ("TC310", RTX, net('y = Resize <mode = "linear"> (x, , s)', "int32[1,1,4,4] x", stored=SCALES), False),
    ("TC005", EIGHT, net("y = my.Swirl (x)"), True),
    ("TC005", RTX, net("y = my.Swirl (x)"), False),
    ("TC005", EIGHT, net("y = my.TRT_Swirl (x)"), False),
    ("TC109", RTX, net("y = ConvTranspose (x, w)", "bfloat16[1,1,4,4] x, bfloat16[1,1,2,2] w", "bfloat16[a] y"), True),
    ("TC109", RTX, net("y = ConvTranspose (x, w)", "float16[1,1,4,4] x, float16[1,1,2,2] w", "float16[a] y"), False),
    ("TC110", EIGHT, net("y = Conv (x, w)", f"{X}, float[2,2,3,3] w"), True),
    ("TC110", EIGHT, net("y = Conv <kernel_shape = [3,3]> (x, w)", f"{X}, float[2,2,3,3] w"), False),
    ("TC110", TEN, net("y = Conv (x, w)", f"{X}, float[2,2,3,3] w"), False),
    ("TC110", EIGHT, net("y = Conv (x, w)", stored="float[1,2,1,1] w = {1,2}"), False),
]


@pytest.mark.parametrize("number", range(len(WHEN)), ids=lambda n: f"{WHEN[n][0]} {WHEN[n][2].partition('{ ')[2][:50]}")
def test_when(number: int) -> None:
    code, target, text, expected = WHEN[number]
    assert fires(code, parse(text), target) == expected


def test_every_input_without_a_shape_is_named() -> None:
    proto = parse(
        net("y = Add (x, z) v = Add (y, w)", f"{X}, float[] z, float[2] w, float[] u", stored="float[1] k = {1}")
    )
    for value in (proto.graph.input[1], proto.graph.input[3]):
        value.type.tensor_type.ClearField("shape")
    # An initializer may be an input too, and has its shape from there.
    proto.graph.input.add(name="k")
    found = [each.location.tensor for each in run_rules(wrap(proto), RTX) if each.code == "TC002"]
    assert found == ["z", "u"]


def advisory(issue: str) -> Advisory:
    (found,) = (each for each in ADVISORIES if issue in each.issue)
    return found


@pytest.mark.parametrize(
    ("issue", "target", "concerned"),
    [
        ("4646", "tensorrt-9.3", False),
        ("4646", "tensorrt-10.0", True),
        ("4646", "tensorrt-11.3", True),
        ("4646", "tensorrt-11.4", False),
        ("4646", "tensorrt", True),
        ("4646", "rtx-1.5", True),
        ("4646", "rtx-1.6", False),
        ("4551", "tensorrt-10.7", False),
        ("4551", "tensorrt-10.8", True),
        ("4551", "tensorrt-12.0", True),
        ("4551", "rtx-1.0", False),
        ("4846", "tensorrt-11.0", False),
        ("4846", "tensorrt-11.1", True),
        ("4846", "tensorrt-11.3", False),
    ],
)
def test_versions_that_have_a_fault(issue: str, target: str, concerned: bool) -> None:
    meant = Target.parse(target)
    assert isinstance(meant, Target)
    assert advisory(issue).concerns(meant) == concerned


SUMS = "a = CumSum{} (x, {}) b = CumSum{} (x, {}) y = Add (a, b)"
AXES = "int64 zero = {0}, int64 one = {1}, int64 also = {1}"
GRID = "float[1,1,4,4] x, float[1,2,2,2] at"
ADVISED = {
    "4646": [
        (net("y = GridSample (x, at)", GRID, opset=20), True),
        (net('y = GridSample <mode = "linear"> (x, at)', GRID, opset=20), True),
        (net('y = GridSample <mode = "cubic"> (x, at)', GRID, opset=22), True),
        (net('y = GridSample <mode = "nearest"> (x, at)', GRID, opset=20), False),
        (net("y = GridSample (x, at)", GRID, opset=19), False),
    ],
    "4551": [
        (net(SUMS.format("", "one", "", "zero"), stored=AXES), True),
        (net(SUMS.format("", "one", "", "also"), stored=AXES), False),
        (net(SUMS.format("", "one", " <reverse = 1>", "one"), stored=AXES), True),
        (net(SUMS.format(" <reverse = 1>", "one", " <reverse = 1>", "one"), stored=AXES), False),
        (net(SUMS.format(" <exclusive = 1>", "one", "", "one"), stored=AXES), True),
        (net("y = CumSum (x, one)", stored=AXES), False),
        # Of a file that lacks an axis.
        (net("a = CumSum (x) y = CumSum (a, one)", stored=AXES), True),
        (net("a = CumSum (x) y = CumSum (a)", stored=AXES), False),
    ],
    "4846": [
        (
            net(
                BRANCHES.replace("u = Relu (x)", text.replace("{", "{{").replace("}", "}}")).format("a,b,c,d", "a"),
                f"{X}, bool c",
                stored=SCALES,
            ),
            meets,
        )
        for text, meets in (
            ("t = Transpose (x) u = Resize (t, , s)", True),
            ("t = Relu (x) u = Resize (t, , s)", False),
            ("u = Resize (x, , s)", False),
        )
    ]
    + [(net("t = Transpose (x) y = Resize (t, , s)", stored=SCALES), False)],
}


@pytest.mark.parametrize(("issue", "number"), [(issue, n) for issue, nets in ADVISED.items() for n in range(len(nets))])
def test_places_that_an_advisory_is_about(issue: str, number: int) -> None:
    text, meets = ADVISED[issue][number]
    meant = {"4846": Target("tensorrt", (11, 1))}.get(issue, TEN)
    found = [each for each in run_rules(wrap(parse(text)), meant) if issue in each.message]
    assert bool(found) == meets
    assert all(each.severity is advisory(issue).severity for each in found)


INT8 = """<ir_version: 10, opset_import: ["": 21]> g (float[1,{ins},4,4] x) => (float[a,b,c,d] y)
    <{kind}[{ins},{outs},1,1] w = {{{values}}}, float s = {{0.1}}, {kind} z = {{{point}}}, {input} p = {{{given}}}> {{
    q = QuantizeLinear (x, s, p) i = DequantizeLinear (q, s, p) d = DequantizeLinear (w, s, z)
    y = ConvTranspose <group = {group}> (i, d) }}"""
PLAIN = {"ins": 4, "outs": 4, "kind": "int8", "point": 0, "input": "int8", "given": 0, "group": 1}


def reasons() -> Iterator[tuple[dict[str, object], list[str]]]:
    yield {}, []
    yield {"ins": 3}, ["3 input and 4 output"]
    yield {"outs": 5}, ["4 input and 5 output"]
    yield {"ins": 8, "group": 2}, ["it has 2 groups"]
    yield {"ins": 4, "group": 2}, ["2 input and 4 output", "it has 2 groups"]
    yield {"point": 1}, ["its weight is quantised asymmetrically"]
    yield {"given": 1}, ["its input is quantised asymmetrically"]
    yield {"kind": "uint8", "point": 128}, []
    yield {"kind": "uint8", "point": 7}, ["its weight is quantised to uint8 around 7"]
    yield {"input": "uint8", "given": 0}, ["its input is quantised to uint8 around 0"]
    yield {"input": "uint16", "given": 0}, ["its input is quantised to 16 bits"]
    yield {"kind": "int16"}, ["its weight is quantised to 16 bits"]


@pytest.mark.parametrize(("changes", "expected"), [*reasons()])
def test_reasons_for_float(changes: dict[str, object], expected: list[str]) -> None:
    said = {**PLAIN, **changes}
    count = int(str(said["ins"])) * int(str(said["outs"]))
    (deconv,) = deconvs(wrap(parse(INT8.format(**said, values=",".join(["1"] * count)))))
    why = why_in_float(deconv)
    assert len(why.split("; ")) == max(1, len(expected))
    assert all(reason in why for reason in expected)
    assert bool(why) == bool(expected)
