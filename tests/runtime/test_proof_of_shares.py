"""What is rounded as numbers around 1 are, and is tiny itself, is no misreading."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import trtconv

pytest.importorskip("tensorrt_rtx")

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,64,64] x) => (float[1,64,64] y) <float far = {-15.0}> { shifted = Add (x, far) y = Sigmoid (shifted) }"""


def test_tiny_shares(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "m.onnx")
    report = trtconv.build(trtconv.BuildRequest(tmp_path / "m.onnx"))
    assert report.proof is not None
    assert (report.exit_code, report.proof["agrees"]) == (0, True), report.findings
