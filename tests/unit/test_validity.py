"""What trtconv knows of operators without asking onnx is what onnx says."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from trtconv import validity
from trtconv.columns import Columns


@pytest.mark.parametrize("op", validity._FREQUENT)
def test_frequent_operators_are_those_of_onnx(op: str) -> None:
    least, types, named = validity._FREQUENT[op]
    seen: dict[str, int] = {}
    for opset in range(validity._FREQUENT_SINCE, onnx.defs.onnx_opset_version() + 1):
        signature = validity._signature(op, opset)
        assert signature is not None
        assert (signature[0], signature[2]) == (least, named), opset
        assert signature[1].items() <= types.items(), opset
        seen |= signature[1]
    assert seen == types


def deconv(opset: int = 17, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up", **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", TensorProto.FLOAT, [1, 1, 4, 4])], [value("y", TensorProto.FLOAT, None)]
    )
    graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 2, 2], [1.0] * 4))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize("opset", [6, 7, 17])
def test_faults_of_a_frequent_operator(opset: int) -> None:
    assert isinstance(validity.examine(deconv(opset, strides=[2, 2])), Columns)
    assert "wrong type" in str(validity.examine(deconv(opset, strides=2)))
    short = deconv(opset)
    del short.graph.node[0].input[1]
    assert "up" in str(validity.examine(short))
