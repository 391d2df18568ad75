"""Which pass a finding that is no more is put down to."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from support.onnx_models import parse
from trtconv.core.requests.check import CheckRequest
from trtconv.core.target import Target
from trtconv.pipeline import check


@pytest.mark.parametrize("name", ["", "twist"])
def test_it_is_the_pass_that_wrote_the_node_in_other_operators(tmp_path: Path, name: str) -> None:
    """Opset 17, the newest of 8.6, lacks the operator; no pass says that it is for what newer opsets have."""
    proto = parse(
        '<ir_version: 8, opset_import: ["": 18]> g (int32[4] x, int32[4] z) => (int32[4] y, int32[4] v)'
        "{ y = BitwiseNot (x)  v = BitwiseAnd (x, z) }"
    )
    proto.graph.node[0].name = name
    onnx.save(proto, tmp_path / "m.onnx")
    findings = check(CheckRequest(tmp_path / "m.onnx", target=Target("tensorrt", (8, 6)))).findings
    by = {finding.location.op: (finding.severity.value, finding.mended_by) for finding in findings}
    # 8.6 divides int32 as floats, so the pass leaves the other one.
    assert by["BitwiseNot"] == ("warning", "combine-bits")
    assert by["BitwiseAnd"] == ("error", None)
