"""Plugins that TensorRT brings: as many inputs as each takes, and no others."""

from __future__ import annotations

import pytest
from onnx import helper

from support.onnx_models import TENSORRT_8, parse, wrap
from trtconv.plugins.known import KNOWN
from trtconv.rules import run_rules

COUNTED = {
    name: plugin.inputs
    for name, plugin in KNOWN.items()
    if plugin.inputs and plugin.fields is not None and plugin.is_in(TENSORRT_8)
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_plugin_takes_no_more_inputs_and_no_fewer(name: str) -> None:
    least, most = COUNTED[name]
    for count in {max(0, least - 1), least, most, most + 1}:
        proto = parse('<ir_version: 8, opset_import: ["": 17]> g (float[1,4] x) => (float[n] y) { y = Relu (x) }')
        attributes = dict.fromkeys(KNOWN[name].required, 1)
        proto.graph.node[0].CopyFrom(helper.make_node(name, ["x"] * count, ["y"], **attributes))
        refused = "TC005" in {finding.code for finding in run_rules(wrap(proto), TENSORRT_8)}
        assert refused is (not least <= count <= most), count
