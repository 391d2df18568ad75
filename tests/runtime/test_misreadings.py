"""What TensorRT-RTX's parser reads otherwise than ONNX: found by the numbers alone, and mended or refused."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

import trtconv
from support.paths import ROOT
from trtconv.core.findings import Severity
from trtconv.pipeline import parse as parsing

pytest.importorskip("tensorrt_rtx")

HEADER = '<ir_version: 8, opset_import: ["": {opset}]> '
DECONV = "g (float[1,3,10,10] x, float[3,4,3,3] w) => (float[1,4,p,q] y) {{ [up] y = ConvTranspose <{attrs}> (x, w) }}"
WEIGHTS = ", ".join(str(i % 17 - 8) for i in range(4 * 4 * 3 * 3))

MENDED: Mapping[str, str] = {
    "auto_pad": HEADER.format(opset=17)
    + DECONV.format(attrs='strides=[2,2], kernel_shape=[3,3], auto_pad="SAME_UPPER", output_padding=[1,1]'),
    "output_shape": HEADER.format(opset=17)
    + DECONV.format(attrs="strides=[2,2], kernel_shape=[3,3], output_shape=[20,20]"),
    "trilu": HEADER.format(opset=17) + "g (float[4,5] x) => (float[4,5] y) { y = Trilu (x) }",
    "lp_pool": HEADER.format(opset=17) + "g (float[1,2,4,4] x) => (float[1,2,1,1] y) { y = GlobalLpPool <p = 1> (x) }",
    "noop": HEADER.format(opset=18)
    + "g (float[2,3] x) => (float[2,3] y) { y = ReduceL1 <noop_with_empty_axes = 1> (x) }",
    "no_zero_point": HEADER.format(opset=17)
    + """g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.01}>
    { q = QuantizeLinear (x, s)  y = DequantizeLinear (q, s) }""",
    "clip": HEADER.format(opset=17)
    + "g (float[4] x) => (float[4] y) <float low = {2}, float high = {1}> { y = Clip (x, low, high) }",
    "rnn": HEADER.format(opset=17)
    + """g (float[2,3,4] x, float[1,5,4] w, float[1,5,5] r) => (float[2,3,1,5] y)
    { y = RNN <hidden_size = 5, layout = 1> (x, w, r) }""",
    "lstm": HEADER.format(opset=17)
    + """g (float[2,3,4] x, float[1,20,4] w, float[1,20,5] r, float[2,1,5] h, float[2,1,5] c)
    => (float[2,3,1,5] y, float[2,1,5] yh, float[2,1,5] yc)
    { y, yh, yc = LSTM <hidden_size = 5, layout = 1> (x, w, r, "", "", h, c) }""",
    "pool": HEADER.format(opset=17)
    + """g (float[1,1,2,2] x) => (float[1,1,1,1] y)
    { y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x) }""",
    "average_pool": HEADER.format(opset=17)
    + """g (float[1,3,2,2] x) => (float[1,3,1,1] y)
    { y = AveragePool <kernel_shape = [3, 3], strides = [3, 3], pads = [1, 1, 1, 1], ceil_mode = 1,
        count_include_pad = 1> (x) }""",
    "axis_0": HEADER.format(opset=17)
    + """g (float[1,4,5,5] x) => (float[1,4,p,q] y)
    <int8[4,4,3,3] w = {WEIGHTS}, float[4] s = {0.01, 0.02, 0.05, 0.1}, float a = {0.02}, int8 z = {0}>
    { xq = QuantizeLinear (x, a, z)  xd = DequantizeLinear (xq, a, z)
      wd = DequantizeLinear <axis = 0> (w, s)  y = ConvTranspose <strides = [2, 2]> (xd, wd) }""".replace(
        "WEIGHTS", WEIGHTS
    ),
}
ACCEPTED = {name: text for name, text in MENDED.items() if name != "lstm"}
"""Those that the builder takes as they are; initial values of the wrong layout it does not."""
REFUSED: Mapping[str, tuple[str, str]] = {
    "for_nn": (
        "TC607",
        HEADER.format(opset=11)
        + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[0] roi = {}, float[4] s = {1, 1, 2, 2}>
        { y = Resize <mode = "linear", coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, s) }""",
    ),
}
BYTES = (
    HEADER.format(opset=17)
    + """g (uint8[1,4,5,3] x) => (float[1,3,4,5] y)
    { i = Identity (x)  t = Transpose <perm = [0, 3, 1, 2]> (i)  y = Cast <to = 1> (t) }"""
)


def saved(folder: Path, text: str) -> Path:
    path = folder / "m.onnx"
    onnx.save(parser.parse_model(text), path)
    return path


def check(path: Path, **changes: Any) -> trtconv.CheckReport:
    return trtconv.check(trtconv.CheckRequest(path, prove="full", **changes))


@pytest.fixture
def no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "audit", lambda model, network: ())


@pytest.mark.usefixtures("no_audit")
@pytest.mark.parametrize(
    "text", [*ACCEPTED.values(), *(text for _, text in REFUSED.values())], ids=[*ACCEPTED, *REFUSED]
)
def test_the_numbers_alone_find_it(text: str, tmp_path: Path) -> None:
    report = check(saved(tmp_path, text), rewrite=False)
    assert report.proof is not None
    assert report.proof.agrees is False, report.proof
    (finding,) = [each for each in report.findings if each.code == "TC402"]
    assert "what TensorRT parsed differs at tensor" in finding.message
    assert finding.location.index is not None


@pytest.mark.usefixtures("no_audit")
@pytest.mark.parametrize("text", MENDED.values(), ids=MENDED)
def test_the_passes_mend_it(text: str, tmp_path: Path) -> None:
    report = check(saved(tmp_path, text))
    assert report.proof is not None
    assert report.proof.agrees is True, report.proof
    assert not [each for each in report.findings if each.code == "TC402"]


@pytest.mark.parametrize(("code", "text"), REFUSED.values(), ids=REFUSED)
def test_what_no_pass_mends_is_an_error_by_rule(code: str, text: str, tmp_path: Path) -> None:
    found = [each for each in check(saved(tmp_path, text)).findings if each.severity is Severity.ERROR]
    assert code in [each.code for each in found]


def test_bytes_are_cast_first(tmp_path: Path) -> None:
    path = saved(tmp_path, BYTES)
    assert any(each.code == "TC401" for each in check(path, rewrite=False).findings)
    report = check(path)
    assert report.proof is not None
    assert report.proof.agrees is True
    assert report.exit_code == 0


@pytest.mark.parametrize("kind", ["float", "int32"])
def test_classes_of_any_type_are_proven(kind: str, tmp_path: Path) -> None:
    """Neither ONNX Runtime nor ONNX's reference implementation runs them as ONNX says."""
    text = HEADER.format(opset=17) + (
        f"g ({kind}[6] x) => (float[4,6] y) <int64[1] depth = {{4}}, float[2] values = {{0, 1}}>"
        "{ y = OneHot <axis = 0> (x, depth, values) }"
    )
    report = check(saved(tmp_path, text))
    assert report.proof is not None
    assert report.proof.agrees is True, report.proof


LOST = (
    HEADER.format(opset=17)
    + """g (float[1,4,5,5] x) => (float[1,4,p,q] y)
    <int8[4,4,3,3] w = {WEIGHTS}, float[4] s = {1, 0.001, 0.001, 0.001}, float[4,1,1] m = {0, 1, 1, 1}>
    { xm = Mul (x, m)  wd = DequantizeLinear <axis = 0> (w, s)  y = ConvTranspose <strides = [2, 2]> (xm, wd) }"""
).replace("WEIGHTS", WEIGHTS)
"""Scales by output channel have no step left for what is not multiplied by zero."""


def test_a_rewrite_that_loses_the_numbers_is_not_proven_by_itself(tmp_path: Path) -> None:
    path = saved(tmp_path, LOST)
    report = trtconv.build(trtconv.BuildRequest(path))
    assert report.exit_code == 1
    (finding,) = [each for each in report.findings if each.code == "TC402"]
    assert "the passes changed tensor 'y'" in finding.message
    assert report.to_json()["engine"] is None
    assert not (tmp_path / "m.engine").exists()


def test_an_engine_that_was_proven_less_than_is_asked_is_not_up_to_date(tmp_path: Path) -> None:
    path = saved(tmp_path, MENDED["trilu"])
    levels = ("none", "quick", "quick", "full", "quick")
    reports = [trtconv.build(trtconv.BuildRequest(path, prove=level)) for level in levels]
    assert [each.up_to_date for each in reports] == [False, False, True, False, True]


def test_sizes_that_nobody_asked_for_are_small(tmp_path: Path) -> None:
    text = "g (float[n,a,b,c,d,e] x) => (float[n,a,b,c,d,e] y) { y = Relu (x) }"
    report = check(saved(tmp_path, HEADER.format(opset=17) + text))
    assert report.proof is not None
    assert report.proof.agrees is True, report.proof


def test_a_build_that_is_not_proven_writes_no_engine(tmp_path: Path) -> None:
    path = saved(tmp_path, MENDED["trilu"])
    request = trtconv.BuildRequest(path, rewrite=False, fail_on=None)
    report = trtconv.build(request)
    assert report.exit_code == 1
    assert [each.code for each in report.findings if each.code == "TC402"]
    assert not (tmp_path / "m.engine").exists()


def suite() -> Any:
    spec = importlib.util.spec_from_file_location("proof_suite", ROOT / "bench" / "proof_suite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
def test_the_node_tests_of_onnx() -> None:
    """Every one that the parser accepts as it is agrees, or is known to be misread."""
    bench = suite()
    known = {
        row["test"]
        for row in json.loads(bench.RESULTS.read_text())["rows"]
        if row["variant"] == "as is" and row["verdict"] == "differs"
    }
    parser_of_rtx, found, unproven = bench.Suite(), set(), []
    for name, model, inputs, outputs in bench.cases():
        feeds = {value.name: each for value, each in zip(model.graph.input, inputs, strict=True)}
        expected = {value.name: each for value, each in zip(model.graph.output, outputs, strict=False)}
        verdict, why = parser_of_rtx.verdict(model, feeds, expected)
        if verdict == "differs":
            found.add(name)
        if verdict == "unproven":
            unproven.append(why)
    assert found == known
    assert not [why for why in unproven if "not known" in why]


def test_what_is_misread_is_mended_or_an_error() -> None:
    bench = suite()
    rows = [row for row in json.loads(bench.RESULTS.read_text())["rows"] if row["verdict"] == "differs"]
    assert rows
    assert all(row["trtconv"] == "mended" or row["trtconv"].startswith("error TC") for row in rows)
    assert bench.table(json.loads(bench.RESULTS.read_text())) in bench.DOCUMENT.read_text()
