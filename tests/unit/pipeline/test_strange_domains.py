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
    proto = parse('<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x) => (float y) { y = Det (x) }')
    words = advice(wrap(proto), ParserIssue(0, "", "Det", reason))
    assert words.message == reason and "--partition" in words.fix


def test_a_function_of_the_model_can_be_left_to_onnx_runtime() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[2] x) => (float[2] y) { y = acme.Op (x) }
        <domain: "acme", opset_import: ["": 17]> Op (a) => (b) { b = Relu (a) }"""
    )
    assert "--partition" in advice(wrap(proto), ParserIssue(0, "", "Op", "a type")).fix


@pytest.mark.parametrize(
    "text",
    [
        "g (float[1,5] x) => (float[1,2] y) <float[4,2] w = {1,1,1,1,1,1,1,1}> { y = MatMul (x, w) }",
        """g (float[1,1,8,8] x) => (float[1,1,6,6] y) <float[1,1,2,2] w = {1,1,1,1}>
        { y = Conv <kernel_shape: ints = [3, 3]> (x, w) }""",
        """g (float[1,2,8,8] x, float[1,1,3,3] w) => (float[1,1,a,b] y)
        { z = Relu (w)  y = Conv <kernel_shape: ints = [2, 2]> (x, z) }""",
    ],
)
def test_an_invalid_node_is_left_to_nobody(text: str) -> None:
    model = wrap(parse(f'<ir_version: 8, opset_import: ["": 17]> {text}'))
    index = len(model.proto.graph.node) - 1
    fix = advice(model, ParserIssue(index, "", model.proto.graph.node[index].op_type, "a shape")).fix
    assert "--partition" not in fix
    assert "not valid" in fix


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n,5] x) => (float[n,4] y) <float[5,1] w = {1,1,1,1,1}> { y = MatMul (x, w) }",
        "g (float[1,1,8,8] x, float[1,1,a,b] w) => (float y) { y = Conv <kernel_shape: ints = [3, 3]> (x, w) }",
        "g (float[6] x) => (float[a,b] y) <int64[2] s = {2, 3}> { y = Reshape (x, s) }",
        """g (bool c, float[2] x) => (float[2] y)
        { y = If (c) <then_branch = t () => (float[2] a) { a = Relu (x) }, else_branch = e () => (float[2] b)
        { b = Abs (x) }> }""",
    ],
)
def test_a_valid_node_can_be_left_to_onnx_runtime(text: str) -> None:
    model = wrap(parse(f'<ir_version: 8, opset_import: ["": 17]> {text}'))
    fix = advice(model, ParserIssue(0, "", model.proto.graph.node[0].op_type, "a shape")).fix
    assert "--partition" in fix


def test_strings_are_named() -> None:
    model = wrap(parse('<ir_version: 8, opset_import: ["": 17]> g (string[1] x) => (string[1] y) { y = Identity (x) }'))
    fix = advice(model, ParserIssue(-1, "", "", "a type")).fix
    assert "strings" in fix and "'x'" in fix
