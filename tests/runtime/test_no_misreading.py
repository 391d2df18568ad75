"""What is no misreading: tiny numbers that are rounded as numbers around 1 are, and infinities."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import trtconv

pytest.importorskip("tensorrt_rtx")

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,64,64] x) => (float[1,64,64] y) <float far = {-15.0}> { shifted = Add (x, far) y = Sigmoid (shifted) }"""
OVERFLOWING = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,1,4,4] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}, float far = {3e38}>
{ more = Exp (x) much = Mul (more, far) endless = Mul (much, far)
  y = ConvTranspose <strides = [2,2], pads = [0,0,0,0], output_padding = [1,1]> (endless, w) }"""


def test_tiny_shares(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "m.onnx")
    report = trtconv.build(trtconv.BuildRequest(tmp_path / "m.onnx"))
    assert report.proof is not None
    assert (report.exit_code, report.proof.agrees) == (0, True), report.findings


REMAINDER = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,8,6,3] x, float[1,8,6,3] z) => (float[1,8,6,3] y, float[1,8,6,3] w) <float c = {0.3}>
{ y = Mod <fmod = 1> (x, c)  w = Mod <fmod = 1> (x, z) }"""


def test_remainders_are_rounded_as_what_is_divided(tmp_path: Path) -> None:
    # Of 0.9 by 0.3 it is nothing or nearly 0.3, by the last bit of either.
    onnx.save(onnx.parser.parse_model(REMAINDER), tmp_path / "m.onnx")
    report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx"))
    assert report.proof is not None
    assert (report.exit_code, report.proof.agrees, report.proof.missing) == (0, True, ()), report.findings


HALFWAY = """<ir_version: 8, opset_import: ["": 13]>
g (float[1,2,6,6] x) => (float[1,2,13,13] y) <{}>
{{ y = Resize <mode = "nearest", nearest_mode = "round_prefer_ceil", coordinate_transformation_mode = "half_pixel">
       (x, , {}) }}"""


@pytest.mark.parametrize(
    ("constant", "slots", "rewrite"),
    [
        ("int64[4] n = {1, 2, 13, 13}", ", n", False),
        ("float[4] n = {1, 1, 2.1666667, 2.1666667}", "n", True),
    ],
    ids=["sizes", "scales"],
)
def test_what_lies_halfway_between_two_elements_is_not_shown(
    constant: str, slots: str, rewrite: bool, tmp_path: Path
) -> None:
    # By its definition either: TensorRT 8.6 was seen to take the other one.
    onnx.save(onnx.parser.parse_model(HALFWAY.format(constant, slots)), tmp_path / "m.onnx")
    report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx", rewrite=rewrite))
    assert report.exit_code == 0 and report.proof is not None and report.proof.agrees is not True
    assert any("halfway" in missing.reason for missing in report.proof.missing)


def test_what_lies_halfway_by_sizes_is_written_as_what_is_taken(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(HALFWAY.format("int64[4] n = {1, 2, 13, 13}", ", n")), tmp_path / "m.onnx")
    report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx"))
    assert report.proof is not None
    assert (report.exit_code, report.proof.agrees, report.proof.missing) == (0, True, ())


def test_values_that_overflow_show_nothing(tmp_path: Path) -> None:
    # Zeros that a pass puts into the kernel make NaN of infinities.
    onnx.save(onnx.parser.parse_model(OVERFLOWING), tmp_path / "m.onnx")
    report = trtconv.build(trtconv.BuildRequest(tmp_path / "m.onnx", prove="full"))
    assert report.proof is not None
    assert (report.exit_code, report.proof.why) == (0, "the model's values overflow"), report.findings
    # By its definition it is the same, at whatever values.
    report = trtconv.build(trtconv.BuildRequest(tmp_path / "m.onnx", force=True))
    assert report.proof is not None
    assert (report.exit_code, report.proof.agrees) == (0, True)
