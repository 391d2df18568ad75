"""Findings about a rewritten model name the places of the file."""

from __future__ import annotations

from pathlib import Path

import onnx

from support.onnx_models import RTX, parse, wrap
from support.quantized_models import Net, Quantiser, make_net
from trtconv import CheckRequest, Target, pipeline
from trtconv.core.findings import Finding, Location, Severity
from trtconv.graph.provenance import Origin
from trtconv.passes import passes_for, run_passes

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,2,4,4] x) => (float[n,c,h,w] y) <float s = {0.1}, uint8 z = {77}, float[2,2,1,1] k = {1,2,3,4}>
{ q = QuantizeLinear (x, s, z)
  d = DequantizeLinear (q, s, z)
  [up] u = ConvTranspose (d, k)
  v = Relu (u)
  [same] t = Neg (v)
  [same] y = Neg (t) }"""


def placed(name: str, op: str, index: int, rewrite: bool = True) -> int | None:
    model = wrap(parse(TEXT))
    origin = Origin(model)
    if rewrite:
        assert run_passes(model, passes_for("as-is"), RTX).edits
    assert model.main.columns.ops[index] == op
    found = Finding("TC000", "name", "message", Severity.INFO, Location("", index, name, op))
    (result,) = origin.place([found], model)
    assert result.location == Location("", result.location.index, name, op)
    return result.location.index


def test_a_node_is_where_the_file_has_it() -> None:
    model = wrap(parse(TEXT))
    run_passes(model, passes_for("as-is"), RTX)
    now = model.main.columns.ops
    assert now.index("ConvTranspose") > 2
    assert placed("up", "ConvTranspose", now.index("ConvTranspose")) == 2
    # By what they make: one has no name, two have one.
    assert placed("", "Relu", now.index("Relu")) == 3
    assert placed("same", "Neg", now.index("Neg")) == 4
    assert placed("same", "Neg", now.index("Neg") + 1) == 5
    # What a pass made is not in the file.
    assert placed("", "Div", now.index("Div")) is None
    assert [placed("", "QuantizeLinear", 0, rewrite=False), placed("up", "ConvTranspose", 2, rewrite=False)] == [0, 2]


def test_check_names_one_place_of_a_node(tmp_path: Path) -> None:
    net = Net(activation=Quantiser("int8", 3), channels=(4, 4), weight=Quantiser(axis=1), bias="int32")
    proto, _ = make_net(net)
    onnx.save_model(proto, tmp_path / "model.onnx")
    report = pipeline.check(CheckRequest(tmp_path / "model.onnx", target=Target("tensorrt", (10, 16))))
    assert {f.code for f in report.findings} >= {"TC308", "TC309", "TC311"}
    for finding in report.findings:
        assert finding.location.index is not None
        assert proto.graph.node[finding.location.index].name == finding.location.node
