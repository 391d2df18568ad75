"""ONNX's reference implementation, with what it gets wrong mended."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import onnx

from trtconv.graph.types import ONNX_DOMAINS

_ONE_AXIS_OPSET = 13
"""From which Softmax, LogSoftmax and Hardmax are over one axis; the reference takes all for such."""


def reference_evaluator(model: onnx.ModelProto) -> Any:
    """Returns onnx.reference.ReferenceEvaluator of a model; raises whatever that raises, its operators' errors too."""
    from onnx.reference import ReferenceEvaluator

    opset = max((entry.version for entry in model.opset_import if entry.domain in ONNX_DOMAINS), default=0)
    return ReferenceEvaluator(model, new_ops=[_one_hot(), *(_over_several_axes() if opset < _ONE_AXIS_OPSET else ())])


@functools.cache
def _one_hot() -> type:
    from onnx.reference.op_run import OpRun

    class OneHot(OpRun):  # type: ignore[misc]
        """Classes are made integers, where they are compared as they are; the depth may have an axis."""

        def _run(self, indices: Any, depth: Any, values: Any, axis: int = -1) -> Any:
            count = int(depth.reshape(()))
            classes = indices.astype(np.int64)
            axis %= classes.ndim + 1
            grid = np.arange(count).reshape([count if at == axis else 1 for at in range(classes.ndim + 1)])
            classes = np.expand_dims(np.where(classes < 0, classes + count, classes), axis)
            return (np.where(classes == grid, values[1], values[0]),)

    return OneHot


@functools.cache
def _over_several_axes() -> tuple[type, ...]:
    from onnx.reference.op_run import OpRun

    class OverAxes(OpRun):  # type: ignore[misc]
        """Takes its input for a matrix, of which the axes from its own on are the columns."""

        def _run(self, data: Any, axis: int) -> Any:
            # What is not written is filled in as the newest opset says.
            axis = axis if any(attribute.name == "axis" for attribute in self.onnx_node.attribute) else 1
            matrix = data.reshape(math.prod(data.shape[: axis % data.ndim]), -1)
            return (self._of_rows(matrix).astype(data.dtype).reshape(data.shape),)

    class Softmax(OverAxes):
        def _of_rows(self, matrix: Any) -> Any:
            powers = np.exp(matrix - matrix.max(1, keepdims=True))
            return powers / powers.sum(1, keepdims=True)

    class LogSoftmax(OverAxes):
        def _of_rows(self, matrix: Any) -> Any:
            shifted = matrix - matrix.max(1, keepdims=True)
            return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))

    class Hardmax(OverAxes):
        def _of_rows(self, matrix: Any) -> Any:
            return np.arange(matrix.shape[1]) == matrix.argmax(1)[:, None]

    return Softmax, LogSoftmax, Hardmax
