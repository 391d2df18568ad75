"""int8 weights of products for TensorRT 8: the same codes, from float weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes
from trtconv.passes.weight_quantizers import WriteWeightQuantizers

RTX, EIGHT, TEN = Target("rtx", (1, 7)), Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))
NAME = "write-weight-quantizers"


def model(
    codes: np.ndarray, scale: np.ndarray, axis: int | None, op: str = "MatMul", point: int = 0
) -> onnx.ModelProto:
    """Returns a product of an input with int8 weights."""
    zero = np.full(scale.shape, point, np.int8)
    constants = {"w": codes, "s": scale, "z": zero}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **({} if axis is None else {"axis": axis})),
        helper.make_node(op, ["x", "d"], ["y"]),
    ]
    shape = [1, codes.shape[1], 3, 3] if op == "Conv" else [2, codes.shape[0]]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def names(proto: onnx.ModelProto, target: Target) -> tuple[onnx.ModelProto, list[str]]:
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, target)
    return rewritten.proto, [edit.pass_name for edit in done.edits]


@settings(max_examples=40)
@given(st.sampled_from((None, 0, 1, -1)), st.sampled_from(("MatMul", "Gemm")), st.integers(0, 99))
def test_the_codes_are_the_same(axis: int | None, op: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(-128, 128, (5, 7)).astype(np.int8)
    scale = np.array(2.0 ** random.uniform(-30, 5, () if axis is None else codes.shape[axis]), np.float32)
    proto = model(codes, scale, axis, op)
    rewritten, edits = names(proto, EIGHT)
    assert edits.count(NAME) == 1
    assert [node.op_type for node in rewritten.graph.node] == ["QuantizeLinear", "DequantizeLinear", op]
    assert all(
        t.data_type != TensorProto.INT8 or not any(numpy_helper.to_array(t).ravel())
        for t in rewritten.graph.initializer
    )
    feeds = {"x": random.standard_normal((2, 5)).astype(np.float32)}
    rewritten.graph.output.append(
        helper.make_tensor_value_info(rewritten.graph.node[0].output[0], TensorProto.INT8, None)
    )
    got, written = session(rewritten, sized=False).run(None, feeds)
    np.testing.assert_array_equal(written, codes)
    np.testing.assert_array_equal(got, session(proto, sized=False).run(None, feeds)[0])


@pytest.mark.parametrize(("op", "target"), [("MatMul", TEN), ("MatMul", RTX), ("Conv", EIGHT)])
def test_others_stay(op: str, target: Target) -> None:
    codes = np.arange(1, 5, dtype=np.int8).reshape((2, 2, 1, 1) if op == "Conv" else (2, 2))
    assert NAME not in names(model(codes, np.float32(0.5), None, op), target)[1]


@pytest.mark.parametrize(("scale", "point"), [(3e38, 0), (0.5, 3)])
def test_codes_that_would_change_stay(scale: float, point: int) -> None:
    codes = np.array([[-128, 127], [1, 2]], np.int8)
    alone = wrap(model(codes, np.array(scale, np.float32), None, point=point))
    assert not run_passes(alone, (WriteWeightQuantizers(),), EIGHT).edits
