"""Nodes whose sizes contradict each other, which ONNX's checker passes: no pass ends on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import wrap
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

FLOAT, WHOLE, BYTE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8


def model(op: str, inputs: dict[str, tuple[int, tuple[int, ...]]], constants: dict[str, Any], **attrs: Any) -> Any:
    names = sorted({*inputs, *constants})
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info(name, *told) for name, told in inputs.items()],
        [helper.make_tensor_value_info("y", BYTE if op.startswith("QLinear") else FLOAT, ["n"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 20)])


ONE = np.float32(1)
CONTRADICTIONS = {
    "a step of nothing": model("STFT", {"a": (FLOAT, (2, 64, 1)), "c": (FLOAT, (8,))}, {"b": np.int64(0)}),
    "a signal of one axis": model("STFT", {"a": (FLOAT, (64,)), "c": (FLOAT, (8,))}, {"b": np.int64(2)}),
    "no steps": model("STFT", {"a": (FLOAT, (2, 64, 1)), "c": (FLOAT, (8,))}, {"b": np.zeros(0, np.int64)}),
    "one axis of angles": model("AffineGrid", {"a": (FLOAT, (2,)), "b": (WHOLE, (4,))}, {}),
    "pooled of one axis": model("MaxUnpool", {"a": (FLOAT, ()), "b": (WHOLE, ())}, {}, kernel_shape=[2, 2]),
    "blocks of one axis": model("Col2Im", {"a": (FLOAT, (8,))}, {"b": np.array([4, 4]), "c": np.array([2, 2])}),
    "an unknown reduction": model(
        "ScatterND", {"a": (FLOAT, (4,)), "b": (WHOLE, (2, 1)), "c": (FLOAT, (2,))}, {}, reduction=""
    ),
    "channels of a scalar": model(
        "QLinearMatMul",
        {"a": (BYTE, ()), "d": (BYTE, (4, 4))},
        {"b": [ONE, ONE], "c": np.zeros(2, np.int8), "e": ONE, "f": np.int8(0), "g": ONE, "h": np.int8(0)},
    ),
}


@pytest.mark.parametrize("target", [Target("tensorrt", (8, 6)), Target("tensorrt", (10, 3)), Target("rtx", (1, 7))])
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_no_pass_ends(name: str, target: Target) -> None:
    proto = onnx.ModelProto.FromString(CONTRADICTIONS[name].SerializeToString())
    run = run_passes(wrap(proto), PASSES, target)
    assert all(skip.reason for skip in run.skipped)
