"""Engines with inputs and outputs in other types and formats, built and proven by the installed TensorRT-RTX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import InputError
from trtconv.core.options import of_settings, to_settings
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.engine import VerifyRequest
from trtconv.core.tensor_io import TensorIo, read_io
from trtconv.engine import verify
from trtconv.pipeline import build

NET = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,"h",8] x) => (float[1,4,"h",8] y)
<float s = {0.25}, int8 z = {0}>
{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  r = Relu (d)  y = Add (r, d) }
"""
DIMS = {"h": 8}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(NET), path)
    return path


def made(model: Path, *io: str, **extra: Any) -> BuildReport:
    return build(BuildRequest(model=model, dims=DIMS, io=read_io(io, None, None), **extra))


@pytest.mark.parametrize(
    ("io", "precision", "held"),
    [
        (["x=uint8"], "as-is", ["uint8", "float32"]),
        (["x=int8:chw4", "y=fp16:hwc8"], "as-is", ["int8 times 0.25, chw4", "float16, hwc8"]),
        (["inputs=fp16:chw2", "outputs=fp16"], "fp16", ["float16, chw2", "float16"]),
    ],
)
def test_an_engine_is_proven_and_its_report_says_what_it_takes(
    model: Path, io: list[str], precision: str, held: list[str]
) -> None:
    report = made(model, *io, precision=precision, prove="full")
    assert report.exit_code == 0
    assert [each.type_text for each in report.io] == held
    assert report.proof is not None
    assert (report.proof.agrees, report.proof.missing) == (True, ())
    assert report.plan.io == read_io(io, None, None)
    assert made(model, *io, precision=precision, prove="full").up_to_date
    assert load_report(model.with_suffix(".engine.json")).report.plan.io == report.plan.io
    verified = verify(VerifyRequest(model))
    assert verified.exit_code == 0
    assert [each.name for case in verified.cases for each in case.outputs] == ["y"]


def test_another_io_is_another_engine(model: Path) -> None:
    assert made(model, prove="none").exit_code == 0
    changed = made(model, "x=fp16", prove="none")
    assert (changed.up_to_date, [each.dtype for each in changed.io]) == (False, ["float16", "float32"])


def test_a_format_that_the_type_has_not_fails_and_writes_nothing(model: Path) -> None:
    report = made(model, "x=fp32:chw4", prove="none")
    assert (report.exit_code, {each.code for each in report.findings if each.severity.value == "error"}) == (
        1,
        {"TC403"},
    )
    assert [each.name for each in model.parent.iterdir()] == ["net.onnx"]
    with pytest.raises(InputError, match="no input or output 'w'"):
        made(model, "w=fp16")


def test_a_configuration_and_a_job_say_it_too(model: Path) -> None:
    io = {"x": TensorIo("fp16", "hwc8"), "outputs": TensorIo("fp16")}
    table = to_settings(BuildRequest(model=model, io=io), BuildRequest)
    assert table["io"] == {"x": "fp16:hwc8", "outputs": "fp16"}
    assert of_settings(BuildRequest, table)["io"] == io
