"""ONNX's reference implementation, with OneHot mended, whose depth may have an axis."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx


def reference_evaluator(model: onnx.ModelProto) -> Any:
    """Returns onnx.reference.ReferenceEvaluator of a model; raises whatever that raises, its operators' errors too."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model, new_ops=[_one_hot()])


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
