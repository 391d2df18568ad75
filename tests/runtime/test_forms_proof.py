"""Forms of operators that TensorRT's parser misreads or refuses are built, and proven, as the passes write them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

import trtconv

pytest.importorskip("tensorrt_rtx")

MODELS = {
    "loop": (
        17,
        """(int64 most, bool go, float[2] x) => (float[2] y) {
        y = Loop <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
        { d = Identity (c)  t = Add (s, s) }> (most, go, x) }""",
    ),
    "inner loop": (
        17,
        """(int64 most, int64 least, bool go, float[2] x) => (float[2] y) {
        y = Loop <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity (c)
            t = Loop <body = b (int64 j, bool e, float[2] u) => (bool f, float[2] v)
            { f = Identity (e)  v = Mul (u, u) }> (least, c, s) }> (most, go, x) }""",
    ),
    "responses of a strong window": (
        17,
        "(float[1,6,4,4] x) => (float[1,6,4,4] y) { y = LRN <size = 5, alpha = 5.0, beta = 0.5, bias = 1.0> (x) }",
    ),
    "length without axes": (
        17,
        """(float[1] x, float[4] w) => (float[n] y) <int64 first = {0}>
        { s = Shape (w)  n = Gather (s, first)  y = Expand (x, n) }""",
    ),
    "mean of float16": (
        13,
        "(float16[2,3] a, float16[2,3] b, float16[3] c) => (float16[2,3] y) { y = Mean (a, b, c) }",
    ),
    "upper limit": (13, "(float16[2,3] x, float16 high) => (float16[2,3] y) { y = Clip (x, , high) }"),
    "vector": (17, "(float[7] v, float[5,7,8] m) => (float[5,8] y) { y = MatMul (v, m) }"),
    "largest of one axis": (17, "(float[5] x) => (int64 y) { y = ArgMax <keepdims = 0> (x) }"),
    "sum over one element": (
        17,
        """(float[1,3,2] a, float[2,1,4] b) => (float[2,3,4] y) { y = Einsum <equation = "bik,bkj->bij"> (a, b) }""",
    ),
    "largest in any order": (
        17,
        """(float[3,9,5] x) => (float[3,6,5] y, int64[3,6,5] i) <int64[1] k = {6}>
        { y, i = TopK <axis = -2, sorted = 0> (x, k) }""",
    ),
    "diagonal of any size": (17, "(float[h,w] x) => (float[h,w] y) { y = EyeLike <k = 1> (x) }"),
}
IN_BF16 = {
    "limit": "z = Constant <value = float {1}> ()  c = Clip (a, , z)",
    **{op: f"c = {op} (a)" for op in ("HardSwish", "LpNormalization", "Mean", "Mish")},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_form_is_built_and_proven(name: str, tmp_path: Path) -> None:
    opset, text = MODELS[name]
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}'), path)
    report = trtconv.check(trtconv.CheckRequest(model=path))
    assert report.proof is not None
    assert report.proof.agrees is True
    assert not report.proof.missing


@pytest.mark.parametrize("name", IN_BF16)
def test_a_cast_to_bf16_leaves_what_it_lacks(name: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[1,2,6,6] x) => (float[1,2,6,6] y)
    <float[2,2,1,1] w = {{0.5, -1, 0.75, 1}}> {{ a = Conv (x, w) {IN_BF16[name]}  d = Conv (c, w)  y = Sigmoid (d) }}"""
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    report = trtconv.build(trtconv.BuildRequest(model=path, engine=tmp_path / "b.engine", precision="bf16"))
    assert report.proof is not None
    assert report.proof.agrees is True
    assert "TC402" not in {finding.code for finding in report.findings}
