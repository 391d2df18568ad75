"""Nodes that return as much as they find."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.rules import run_rules

NMS = (
    '<ir_version: 8, opset_import: ["": 17]> g (float[1,n,4] b, float[1,2,n] s, int64 m) => (int64[k,3] y)'
    " { y = NonMaxSuppression (b, s, m) }"
)
NON_ZERO = '<ir_version: 8, opset_import: ["": 17]> g (float[4,h] x) => (int64[2,n] y) { y = NonZero (x) }'


@pytest.mark.parametrize(
    ("text", "target", "severity"),
    [
        (NMS, "rtx", Severity.ERROR),
        (NMS, "rtx-1.7", Severity.ERROR),
        (NMS, "tensorrt-10", Severity.WARNING),
        (NON_ZERO, "rtx", Severity.WARNING),
    ],
)
def test_what_a_runtime_has_no_kernel_for_is_an_error(text: str, target: str, severity: Severity, tmp_path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    meant = Target.parse(target)
    assert meant is not None
    (found,) = (each for each in run_rules(OnnxModel.load(path), meant) if each.code == "TC204")
    assert (found.severity, found.location.index) == (severity, 0)
    assert ("has no kernel for it" in found.message) == (severity is Severity.ERROR)


@pytest.mark.parametrize(("name", "is_of_experts"), [("/model/mlp/experts/NonZero", True), ("/model/NonZero", False)])
def test_experts_are_looked_at_for_all_tokens(name: str, is_of_experts: bool, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (int64[2,m] y) { y = NonZero (x) }'
    proto = onnx.parser.parse_model(text)
    proto.graph.node[0].name = name
    onnx.save(proto, path := tmp_path / "m.onnx")
    (found,) = (each for each in run_rules(OnnxModel.load(path), Target("rtx", (1, 7))) if each.code == "TC204")
    assert ("set_experts_implementation" in found.fix) == is_of_experts
    assert "--partition" in found.fix
