"""verify of an engine whose build freed sizes that the exporter's example fixed in the model."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

import trtconv
from trtconv.cli.formats.engine import verify_text
from trtconv.cli.formats.sizes import sizes_text

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx")

FIXED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n,4,h,w] x) => (float[n,4,l] y) <int64[3] s = {1,4,1024}> { z = Relu (x)  y = Reshape (z, s) }
"""
DIMS = {"n": (1, 2, 3), "h": (16, 32, 64), "w": (16, 64, 128)}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("traced") / "net.onnx"
    onnx.save(onnx.parser.parse_model(FIXED), model)
    report = trtconv.build(trtconv.BuildRequest(model, dims=DIMS, target="rtx"))  # type: ignore[arg-type]
    assert report.exit_code == 0
    assert {finding.code for finding in report.findings if finding.mended_by} == {"TC213"}
    return model


def test_the_size_of_the_model_is_compared_and_the_reason_said_once(built: Path) -> None:
    report = trtconv.verify(trtconv.VerifyRequest(built, random=0))
    compared = [case for case in report.cases if case.passed is not None]
    assert [(case.size, case.shapes, case.passed) for case in compared] == [("traced", {"x": (1, 4, 32, 32)}, True)]
    assert report.exit_code == 4
    text = verify_text(report)
    assert text.count("net.onnx itself runs at n 1, h 32, w 32 alone") == 1
    assert "min, opt and max of profile 0" in text
    assert "ONNXRuntimeError" not in text
    assert "--dim n=1 --dim h=32 --dim w=32" in text


def test_that_size_alone_is_verified(built: Path) -> None:
    report = trtconv.verify(trtconv.VerifyRequest(built, dims={"n": 1, "h": 32, "w": 32}))  # type: ignore[dict-item]
    assert (report.exit_code, {case.size for case in report.cases} & {"traced"}) == (0, set())


def test_sizes_says_that_build_frees_them(built: Path) -> None:
    found = trtconv.sizes(trtconv.SizesRequest(built, {"n": 1, "h": (16, 64, 64), "w": 32}))  # type: ignore[dict-item]
    assert found.freed == ("h",)
    assert "h: build and rewrite free it" in sizes_text(found)
