"""ONNX's reference implementation computes what ONNX defines, whichever onnx is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from support.session import session
from trtconv.graph.reference_evaluator import reference_evaluator


def computed(op: str, *arrays: NDArray[Any], opset: int = 17, **attributes: Any) -> NDArray[Any]:
    names = [f"x{at}" for at in range(len(arrays))]
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in zip(names, arrays, strict=True)
    ]
    result = onnx.helper.make_tensor_value_info("y", values[-1].type.tensor_type.elem_type, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, names, ["y"], **attributes)], "g", values, [result])
    proto = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", opset)])
    (y,) = reference_evaluator(proto).run(None, dict(zip(names, arrays, strict=True)))
    return np.asarray(y)


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
@pytest.mark.parametrize("depth", [np.array(3), np.array([3])])
def test_one_hot_is_that_of_the_definition(axis: int | None, depth: NDArray[np.int64]) -> None:
    classes = np.array([[0.0, 2.0], [-1.0, 5.0]])
    attributes = {} if axis is None else {"axis": axis}
    y = computed("OneHot", classes, depth, np.array([5.0, 9.0], np.float32), **attributes)
    expected = np.full((2, 2, 3), 5.0, np.float32)
    expected[0, 0, 0] = expected[0, 1, 2] = expected[1, 0, 2] = 9.0
    np.testing.assert_array_equal(y, np.moveaxis(expected, 2, -1 if axis is None else axis))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("opset", [11, 12, 13])
def test_what_was_over_several_axes(op: str, axis: int | None, opset: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    y = computed(op, x, opset=opset, **attributes)
    assert y.dtype == x.dtype
    np.testing.assert_allclose(y, by_runtime(op, x, opset, attributes), rtol=1e-5, atol=1e-6)


def by_runtime(op: str, x: NDArray[Any], opset: int, attributes: dict[str, int]) -> Any:
    kind = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"], **attributes)], "g", [kind], [result])
    proto = onnx.helper.make_model(graph, ir_version=7, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return session(proto).run(None, {"x": x})[0]
