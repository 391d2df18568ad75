"""`verify --prove`: what TensorRT parses of a model is proven as `build` proves it, whatever ran."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

import trtconv
from support.paths import ROOT
from trtconv.cli.formats.engine import verify_text
from trtconv.core.documents.verify import VerifyReport

BY_SIZE = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,4] x) => (float[n,4] y) <int64[1] most = {10}, int64[1] axes = {0}>
{ s = Shape <start = 0, end = 1> (x)  g = Greater (s, most)  c = Squeeze (g, axes)
  y = If (c) <then_branch = a () => (float[n,4] p) { p = Relu (x) },
              else_branch = b () => (float[n,4] q) { q = Neg (x) }> }"""


def verify(model: Path, level: str, engine: Path | None = None, **dims: trtconv.Range) -> VerifyReport:
    return trtconv.verify(trtconv.VerifyRequest(model, prove=level, random=0, dims=dims, engine=engine))


def test_what_the_parser_misreads_is_not_verified(tmp_path: Path) -> None:
    # LogSoftmax becomes a logarithm of zero, at values that the sizes' own inputs do not reach.
    model, engine = ROOT / "tests" / "data" / "proof" / "false-alarms" / "soft_0.onnx", tmp_path / "m.engine"
    trtconv.build(trtconv.BuildRequest(model, engine=engine, rewrite=False, prove="none"))
    report = verify(model, "quick", engine)
    assert report.exit_code == 1
    assert [each.code for each in report.findings] == ["TC402"]
    assert "NOT VERIFIED" in verify_text(report)
    assert verify(model, "quick").exit_code == 0


@pytest.mark.parametrize(("level", "code"), [("none", 0), ("quick", 0), ("required", 1)])
def test_what_is_not_shown_fails_where_it_must_be(level: str, code: int, tmp_path: Path) -> None:
    onnx.save(parser.parse_model(BY_SIZE), tmp_path / "m.onnx")
    report = verify(tmp_path / "m.onnx", level, n=trtconv.Range(1, 2, 4))
    assert report.exit_code == code
    assert (report.parsed is None) == (level == "none")
    assert [each.code for each in report.findings] == ([] if level == "none" else ["TC410"])


BOTH_ENDS = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] x, float[2,3] y) { y = Relu (x) }'


@pytest.mark.parametrize(("level", "told"), [("quick", ["TC003"]), ("required", ["TC003", "TC410"])])
def test_an_input_that_is_an_output_is_no_fault_of_the_parser(level: str, told: list[str], tmp_path: Path) -> None:
    """Nothing is shown of such a network, and whoever asks for a proof is told so."""
    onnx.save(parser.parse_model(BOTH_ENDS), tmp_path / "m.onnx")
    report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx", prove=level))
    assert [each.code for each in report.findings] == told
    assert report.proof is not None and report.proof.agrees is None and "'x' is an output too" in report.proof.why
