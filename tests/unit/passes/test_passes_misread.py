"""The passes about what parsers read otherwise than ONNX: each changes nothing but the spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from support.onnx_models import RTX, TENSORRT_8, parse, wrap
from trtconv.core.target import Target
from trtconv.graph.pooling import PoolAxis
from trtconv.passes import PASSES, run_passes
from trtconv.rules import run_rules
from trtconv.rules.advisories import ADVISORIES
from trtconv.runtimes.onnxruntime import session

RANDOM = np.random.default_rng(0)


def model(text: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')


def same(proto: onnx.ModelProto, target: Target, *feeds: Any) -> tuple[onnx.ModelProto, list[str]]:
    """Rewrites a model and compares it with itself; returns the result and the passes that edited."""
    names = [value.name for value in proto.graph.input]
    values = dict(zip(names, feeds, strict=True))
    expected = ReferenceEvaluator(proto).run(None, values)
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, target)
    for before, after in zip(expected, ReferenceEvaluator(rewritten.proto).run(None, values), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    return rewritten.proto, [edit.pass_name for edit in done.edits]


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


CASES = {
    "write-defaults": ("(float[4,5] x) => (float[4,5] y) { y = Trilu (x) }", 17, (normal(4, 5),)),
    "uncross-clip-limits": (
        "(float[4] x) => (float[4] y) <float low = {2}, float high = {1}> { y = Clip (x, low, high) }",
        17,
        (normal(4),),
    ),
    "put-time-first": (
        """(float[2,3,4] x, float[1,15,4] w, float[1,15,5] r, float[2,1,5] h) => (float[2,3,1,5] y, float[2,1,5] z)
        { y, z = GRU <hidden_size = 5, layout = 1> (x, w, r, "", "", h) }""",
        17,
        (normal(2, 3, 4), normal(1, 15, 4), normal(1, 15, 5), np.zeros((2, 1, 5), np.float32)),
    ),
    "cast-bytes-first": (
        """(uint8[1,4,5,3] x) => (float[1,3,4,5] y)
        { i = Identity (x)  t = Transpose <perm = [0, 3, 1, 2]> (i)  y = Cast <to = 1> (t) }""",
        17,
        (RANDOM.integers(0, 256, (1, 4, 5, 3)).astype(np.uint8),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_model_computes_what_it_did(name: str) -> None:
    text, opset, feeds = CASES[name]
    assert same(model(text, opset), RTX, *feeds)[1] == [name]


@pytest.mark.parametrize("power", [1, 2, 3])
def test_norms_with_odd_powers_are_of_magnitudes(power: int) -> None:
    text = f"(float[1,2,4,4] x) => (float[1,2,1,1] y) {{ y = GlobalLpPool <p = {power}> (x) }}"
    original, rewritten = (wrap(model(text)) for _ in range(2))
    done = run_passes(rewritten, PASSES, RTX)
    assert [edit.pass_name for edit in done.edits] == (["take-magnitudes-first"] if power % 2 else [])
    x = normal(1, 2, 4, 4)
    before, after = (session(each).run(None, {"x": x})[0] for each in (original, rewritten))
    np.testing.assert_allclose(after, before, rtol=1e-5)
    np.testing.assert_allclose(after.reshape(2), (np.abs(x) ** power).sum((0, 2, 3)) ** (1 / power), rtol=1e-4)


def test_channels_of_space_to_depth_are_put_in_order() -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    rewritten = wrap(
        model('(float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x) }', 28)
    )
    run_passes(rewritten, PASSES, RTX)
    for entry in rewritten.proto.opset_import:
        entry.version = 17
    (got,) = ReferenceEvaluator(rewritten.proto).run(None, {"x": x})
    blocks = x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 2)
    np.testing.assert_array_equal(got, blocks)


@pytest.mark.parametrize("size", range(2, 12))
@pytest.mark.parametrize(("kernel", "stride", "begin", "end"), [(1, 2, 0, 0), (2, 3, 0, 1), (3, 3, 1, 1), (2, 2, 1, 1)])
def test_pads_for_windows_that_onnx_leaves_out(size: int, kernel: int, stride: int, begin: int, end: int) -> None:
    axis = PoolAxis(size, kernel, stride, begin, end)
    starts = [
        i for i in range(0, 100, stride) if i < size + begin and (i == 0 or i < size + begin + end - kernel + stride)
    ]
    assert axis.count == len(starts)
    exact = axis.exact_end
    if exact is not None:
        assert (size + begin + exact - kernel) // stride + 1 == axis.count


@pytest.mark.parametrize("opset", [6, 10])
def test_limits_that_are_attributes_are_uncrossed(opset: int) -> None:
    proto = model("(float[4] x) => (float[4] y) { y = Clip <min = 2.0, max = 1.0> (x) }", opset)
    assert [each.code for each in run_rules(wrap(proto), RTX)].count("TC610") == 1
    rewritten, edits = same(proto, RTX, normal(4))
    assert edits == ["uncross-clip-limits"]
    assert "TC610" not in [each.code for each in run_rules(wrap(rewritten), RTX)]


LOWERED = {
    "reduce": "(float[1,8,4,4] x) => (float[1,8,1,1] y) <int64[2] axes = {2, 3}> { y = ReduceMean (x, axes) }",
    "split": """(float[1,8,4,4] x) => (float[1,4,4,4] y, float[1,4,4,4] z)
        { y, z = Split <axis = 1, num_outputs = 2> (x) }""",
    "pool": "(float[1,8,4,4] x) => (float[1,8,3,3] y) { y = LpPool <ceil_mode = 0, kernel_shape = [2, 2]> (x) }",
    "same": "(float[1,8,4,4] x) => (float[1,8,4,4] y) { t = Relu (x)  s = Shape (t)  y = Reshape (t, s) }",
}


@pytest.mark.parametrize("text", LOWERED.values(), ids=LOWERED)
def test_newer_opsets_are_lowered_for_8_6(text: str) -> None:
    rewritten, edits = same(model(text, 20), TENSORRT_8, normal(1, 8, 4, 4))
    assert "lower-opset" in edits
    assert rewritten.opset_import[0].version == 17
    assert run_rules(wrap(rewritten), TENSORRT_8) == ()
    assert same(model(text, 20), RTX, normal(1, 8, 4, 4))[1] == []


def test_more_parts_than_rows_are_empty() -> None:
    text = (
        "(float[5] x) => (float[a] p, float[b] q, float[c] r, float[d] s) { p, q, r, s = Split <num_outputs = 4> (x) }"
    )
    lowered = wrap(model(text, 18))
    run_passes(lowered, PASSES, TENSORRT_8)
    (sizes,) = (numpy_helper.to_array(each).tolist() for each in lowered.proto.graph.initializer)
    assert sizes == [2, 2, 1, 0]


@pytest.mark.parametrize("axis", [None, -3, 1])
def test_the_axis_of_a_dft_is_that_of_opset_20(axis: int | None) -> None:
    third = "" if axis is None else f"<int64 a = {{{axis}}}>"
    text = f"(float[1,4,4,1] x) => (float[1,4,4,2] y) {third} {{ y = DFT (x{', , a' if third else ''}) }}"
    original, lowered = (wrap(model(text, 20)) for _ in range(2))
    run_passes(lowered, PASSES, TENSORRT_8)
    assert lowered.opset == 17 and "DFT" not in {node.op_type for node in lowered.proto.graph.node}
    x = normal(1, 4, 4, 1)
    before, after = (session(each).run(None, {"x": x})[0] for each in (original, lowered))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "(float[2,3] x, int64[1] axes) => (float[a,b] y) { y = ReduceMean (x, axes) }",
        """(float[a,1,b,c] x) => (float[a,1,d,e] y) <float[4] s = {1,1,2,2}>
        { y = Resize <antialias = 1, mode = "linear"> (x, "", s) }""",
        "(string[4] x, string[4] z) => (string[4] y) { y = StringConcat (x, z) }",
    ],
)
def test_what_opset_17_does_not_have_is_left(text: str) -> None:
    left = wrap(model(text, 20))
    done = run_passes(left, PASSES, TENSORRT_8)
    assert "lower-opset" in [skip.pass_name for skip in done.skipped]
    assert left.opset == 20


@pytest.mark.parametrize(
    ("version", "mode", "opset", "warned"),
    [((10, 13), "linear", 20, True), ((11, 4), "linear", 20, False), ((10, 13), "bilinear", 17, False)],
)
def test_advisories_go_by_version(version: tuple[int, ...], mode: str, opset: int, warned: bool) -> None:
    text = f'(float[1,1,4,4] x, float[1,2,2,2] at) => (float[1,1,2,2] y) {{ y = GridSample <mode = "{mode}"> (x, at) }}'
    found = run_rules(wrap(model(text, opset)), Target("tensorrt", version))
    assert ([f.code for f in found] == ["TC616"]) == warned
    assert all("4646" in f.message and f.fix for f in found)


@pytest.mark.parametrize(
    ("made", "version", "refused"),
    [
        ("f = Reshape (at, n)  m = MatMul (f, two)  t = Tanh (m)  p = Reshape (t, s)", (8, 6), True),
        ("f = Reshape (at, n)  m = MatMul (f, two)  t = Tanh (m)  p = Reshape (t, s)", (10, 0), False),
        ("m = MatMul (at, eye)  p = Tanh (m)", (8, 6), False),
        ("m = Mul (at, at)  p = Tanh (m)", (8, 6), False),
    ],
)
def test_samples_behind_products_are_refused_for_tensorrt_8(made: str, version: tuple[int, ...], refused: bool) -> None:
    text = f"""(float[1,1,4,4] x, float[1,2,2,2] at, float[2,2] two) => (float[1,1,2,2] y)
        <float[2,2] eye = {{1,0,0,1}}, int64[2] n = {{4, 2}}, int64[4] s = {{1, 2, 2, 2}}>
        {{ {made}  y = GridSample (x, p) }}"""
    found = run_rules(wrap(model(text, 17)), Target("tensorrt", version))
    assert [(f.code, f.severity.value) for f in found] == ([("TC616", "error")] if refused else [])


def test_every_advisory_names_a_report_and_what_to_do() -> None:
    assert all(each.issue and each.workaround and each.versions for each in ADVISORIES)
    sums = """(float[4,4] x) => (float[4,4] y) <int32 a = {0}, int32 b = {1}>
        { s = CumSum (x, a)  t = CumSum <reverse = 1> (s, b)  y = Add (s, t) }"""
    codes = [f.code for f in run_rules(wrap(model(sums)), Target("tensorrt", (10, 9)))]
    assert codes == ["TC616", "TC616"]
    assert run_rules(wrap(model(sums)), Target("tensorrt", (10, 7))) == ()


@pytest.mark.parametrize(("opset", "attributes", "written"), [(17, "", 2), (17, "<gamma = 1.05>", 1), (5, "", 0)])
def test_the_constants_of_a_selu_are_written_where_they_are_the_exact_ones(
    opset: int, attributes: str, written: int
) -> None:
    text = (
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[4] x) => (float[4] y) {{ y = Selu {attributes} (x) }}'
    )
    model = wrap(parser.parse_model(text))
    before = {each.name for each in model.proto.graph.node[0].attribute}
    run_passes(model, PASSES, RTX)
    after = {each.name: each.f for each in model.proto.graph.node[0].attribute}
    assert len(after.keys() - before) == written
    if "alpha" in after:
        assert after["alpha"] == np.float32(1.67326319217681884765625)


@pytest.mark.parametrize("limits", ["", ", m", ", , i", ", m, i", ", , , s", ", m, , s", ", m, i, s", ", , i, s"])
def test_limits_that_are_left_out_are_written_in_their_places(limits: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,4,4] b, float[1,1,4] c) => (int64[n,3] y)
        <int64 m = {{2}}, float i = {{0.5}}, float s = {{0.25}}> {{ y = NonMaxSuppression (b, c{limits}) }}"""
    )
    model = wrap(proto)
    run_passes(model, [each for each in PASSES if each.name == "write-defaults"], RTX)
    node = next(each for each in model.proto.graph.node if each.op_type == "NonMaxSuppression")
    before = [*proto.graph.node[0].input, "", "", ""][:5]
    values = [model.main.values(name) for name in node.input[2:]]
    wanted = [2 if before[2] else 0, 0.5 if before[3] else 0, 0.25 if before[4] else np.finfo(np.float32).min]
    if before[2] and before[4]:
        assert list(node.input) == list(proto.graph.node[0].input)
    else:
        assert [None if value is None else value.item() for value in values] == wanted
