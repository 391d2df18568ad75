"""On TensorRT 8.6 several scales of what is no weight are arithmetic, and inputs of int8 no Cast."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

EIGHT = Target("tensorrt", (8, 6))
NAME = "quantize-in-arithmetic"
SCALES = "float[2] s = {0.5, 0.25}, int8[2] z = {0, 0}, float one = {0.25}, int8 none = {0}, int8 three = {3}"


def rewritten(graph: str, target: Target) -> tuple[onnx.ModelProto, onnx.ModelProto, int]:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    own = wrap(proto)
    result = run_passes(own, PASSES, target)
    return proto, own.proto, [edit.pass_name for edit in result.edits].count(NAME)


@pytest.mark.parametrize(
    ("axis", "target", "count"),
    [
        *((axis, EIGHT, count) for axis, count in ((1, 2), (-3, 2), (0, 2), (2, 2), (3, 2), (-1, 2))),
        *((3, target, 0) for target in (RTX, Target("tensorrt", (10, 0)))),
    ],
)
def test_values_with_scales_along_an_axis(axis: int, target: Target, count: int) -> None:
    proto, after, edits = rewritten(
        f"""g (float[2,2,2,2] x) => (float[2,2,2,2] y) <{SCALES}>
        {{ q = QuantizeLinear <axis = {axis}> (x, s, z)  y = DequantizeLinear <axis = {axis}> (q, s, z) }}""",
        target,
    )
    assert edits == count
    x = (40 * np.random.default_rng(0).normal(size=(2, 2, 2, 2))).astype(np.float32)
    np.testing.assert_array_equal(run(after, {"x": x})[0], run(proto, {"x": x})[0])


def test_scales_along_the_only_axis() -> None:
    proto, after, edits = rewritten(
        f"""g (float[2] x) => (float[2] y) <{SCALES}>
        {{ q = QuantizeLinear <axis = 0> (x, s, z)  y = DequantizeLinear <axis = 0> (q, s, z) }}""",
        EIGHT,
    )
    assert edits == 2
    x = np.array([3.3, -40], np.float32)
    np.testing.assert_array_equal(run(after, {"x": x})[0], run(proto, {"x": x})[0])


def test_a_body_takes_no_input_of_the_network() -> None:
    """An int8 that a loop carries is cast, as whatever is computed."""
    graph = f"""g (int8[2] x, float k, int64 n, bool c) => (int8[2] o, float[l,2] y) <{SCALES}>
    {{ o, y = Loop (n, c, x) < body = b (int64 i, bool d, int8[2] a) => (bool e, int8[2] f, float[2] r) {{
      e = Identity (d)  f = Identity (a)  r = DequantizeLinear (a, k) }} > }}"""
    _, after, edits = rewritten(graph, EIGHT)
    assert edits == 1
    body = next(node for node in after.graph.node if node.op_type == "Loop").attribute[0].g
    assert "Cast" in {node.op_type for node in body.node}


@pytest.mark.parametrize("target", [EIGHT, RTX])
def test_one_scale_and_those_of_weights_are_left(target: Target) -> None:
    """A weight of a Conv has its channels along the first axis, behind operators that move it too."""
    _, after, edits = rewritten(
        f"""g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <{SCALES}, float[2,2,1,1] w = {{1, 2, 3, 4}}>
        {{
          q = QuantizeLinear (x, one, none)  d = DequantizeLinear (q, one, none)  t = Transpose <perm = [0,1,2,3]> (w)
          v = QuantizeLinear <axis = 0> (t, s, z)  u = DequantizeLinear <axis = 0> (v, s, z)  y = Conv (d, u)
        }}""",
        target,
    )
    assert edits == 0 and "DequantizeLinear" in {node.op_type for node in after.graph.node}


@pytest.mark.parametrize("read", ["x", "i"])
@pytest.mark.parametrize(
    "dequantizer",
    [
        "y = DequantizeLinear ({x}, one, three)",
        "y = DequantizeLinear <axis = 3> ({x}, s, z)",
        "y = DequantizeLinear ({x}, k)",
    ],
)
def test_an_input_of_int8_is_dequantised_by_one(dequantizer: str, read: str) -> None:
    body = f"i = Identity (x)  {dequantizer.format(x=read)}  o = Identity (k)"
    graph = f"g (int8[2,2,2,2] x, float k) => (float[2,2,2,2] y, float o) <{SCALES}> {{ {body} }}"
    x = np.arange(-128, 128, 16, dtype=np.int8).reshape(2, 2, 2, 2)
    feeds = {"x": x, "k": np.array(0.5, np.float32)}
    for target in (EIGHT, RTX):
        proto, after, _ = rewritten(graph, target)
        ops = [node.op_type for node in after.graph.node]
        assert "Cast" not in ops or target == RTX
        np.testing.assert_array_equal(run(after, feeds)[0], run(proto, feeds)[0])
    assert rewritten(graph, EIGHT)[2] == 1


def test_what_is_computed_of_int8_is_cast() -> None:
    _, after, edits = rewritten(
        f"""g (float[2] x, float k) => (float[2] y) <{SCALES}>
        {{ q = QuantizeLinear (x, k, three)  y = DequantizeLinear (q, k, three) }}""",
        EIGHT,
    )
    assert edits == 2 and "DequantizeLinear" not in {node.op_type for node in after.graph.node}


def test_an_input_of_uint8_is_cast() -> None:
    """TensorRT 8.6 takes one, and has no quantiser of that type."""
    proto, after, edits = rewritten(
        """g (uint8[2,3] x) => (float[2,3] y) <float s = {0.5}, uint8 z = {3}> { y = DequantizeLinear (x, s, z) }""",
        EIGHT,
    )
    assert edits == 1
    assert [node.op_type for node in after.graph.node] == ["Cast", "Sub", "Mul"]
    x = np.array([[0, 3, 7], [255, 128, 1]], np.uint8)
    np.testing.assert_array_equal(run(after, {"x": x})[0], run(proto, {"x": x})[0])


def test_one_scale_along_an_axis_is_left() -> None:
    edits = rewritten(
        """g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[1] s = {0.5}, int8[1] z = {0}>
        { q = QuantizeLinear <axis = 0> (x, s, z)  y = DequantizeLinear <axis = 0> (q, s, z) }""",
        EIGHT,
    )[2]
    assert edits == 0
