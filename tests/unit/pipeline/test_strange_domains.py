"""What is said of nodes of other domains that the parser refuses."""

from __future__ import annotations

import pytest

from support.onnx_models import parse, wrap
from trtconv.pipeline.strange_domains import advice
from trtconv.runtimes.tensorrt import ParserIssue

PLUGIN = "Plugin not found, are the plugin name, version, and namespace correct?"


@pytest.mark.parametrize(
    ("domain", "reason", "message", "fix", "is_left"),
    [
        ("com.microsoft", PLUGIN, "it has no Op of com.microsoft", "ORT_ENABLE_BASIC", True),
        ("com.microsoft", "block_size must be 32", "block_size must be 32", "what the message names", True),
        ("com.microsoft.nchwc", PLUGIN, "it has no Op of com.microsoft.nchwc", "ORT_ENABLE_EXTENDED", False),
        ("ai.onnx.ml", PLUGIN, "it has no Op of ai.onnx.ml", "hummingbird-ml", True),
        # ONNX Runtime cannot load what nobody but a library of plugins knows.
        ("acme", PLUGIN, "it has no Op of acme", "Replace the operator", False),
        ("", "a type", "a type", "newer one", False),
        ("", PLUGIN, "ONNX has no Op, and TensorRT no plugin of that name", "--plugin (docs", False),
    ],
)
def test_it_says_whose_operator_it_is(domain: str, reason: str, message: str, fix: str, is_left: bool) -> None:
    proto = parse(
        '<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[2] x) => (float[2] y) { y = acme.Op (x) }'
    )
    proto.graph.node[0].domain = domain
    for inside in ((), ("if (If)",)):
        words = advice(wrap(proto), ParserIssue(0, "", "Op", reason, inside))
        assert words.message == message
        assert fix in words.fix
        assert ("--partition" in words.fix) == is_left


@pytest.mark.parametrize("reason", ["a type", PLUGIN])
def test_an_operator_of_onnx_can_be_left_to_onnx_runtime(reason: str) -> None:
    proto = parse('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Det (x) }')
    words = advice(wrap(proto), ParserIssue(0, "", "Det", reason))
    assert words.message == reason and "--partition" in words.fix


def test_a_function_of_the_model_can_be_left_to_onnx_runtime() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[2] x) => (float[2] y) { y = acme.Op (x) }
        <domain: "acme", opset_import: ["": 17]> Op (a) => (b) { b = Relu (a) }"""
    )
    assert "--partition" in advice(wrap(proto), ParserIssue(0, "", "Op", "a type")).fix
