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
    "length without axes": (
        17,
        """(float[1] x, float[4] w) => (float[n] y) <int64 first = {0}>
        { s = Shape (w)  n = Gather (s, first)  y = Expand (x, n) }""",
    ),
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
