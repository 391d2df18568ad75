"""Values at the places of a grid, on ONNX Runtime, as a model of one node."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.arrays import Array
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.runtimes.onnxruntime import first_line, raise_if_starved, session_options
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven
from trtconv.runtimes.tensorrt.readback.types import wide

_CLOSE = 1e-4
_OPSET = 20
_IR = 8
_Attributes = tuple[tuple[str, Any], ...]


def grid_sample(values: Array, grid: Array, **attributes: Any) -> Array:
    """Computes ONNX's GridSample in float32.

    Args:
        values: [batch, channels, *sizes].
        grid: [batch, *new sizes, rank].
        attributes: Those of the operator.

    Raises:
        NotProven: ONNX Runtime refuses it at these sizes, or computes something else than ONNX defines.
    """
    settings = tuple(sorted(attributes.items()))
    why = _departure(values.ndim, settings)
    if why:
        raise NotProven(why)
    try:
        return _run(_session(values.ndim, settings), values, grid)
    except Exception as error:  # It raises its own types, one for each status.
        raise_if_starved(error)
        raise Malformed(f"it does not compute at these sizes: {first_line(error)}") from error


@functools.lru_cache(maxsize=256)
def _departure(rank: int, attributes: _Attributes) -> str:
    """Holds ONNX Runtime to ONNX's reference implementation, on a few elements; returns how it departs from it.

    The model is run on ONNX Runtime too, so that what this gets wrong would be wrong on both sides. What the reference
    implementation cannot run is trusted.
    """
    random = np.random.default_rng(0)
    shapes = (1, 2, *range(4, 2 + rank)), (1, *(3,) * (rank - 2), rank - 2)
    few = [random.uniform(-1.3, 1.3, shape).astype(np.float32) for shape in shapes]
    try:
        expected = _run(reference_evaluator(_model(rank, attributes)), *few)
    except Exception:  # It raises whatever its operators do.
        return ""
    try:
        got = _run(_session(rank, attributes), *few)
    except Exception as error:
        return f"it does not compute at these sizes: {first_line(error)}"
    same = got.shape == expected.shape and np.allclose(got, expected, rtol=_CLOSE, atol=_CLOSE)
    return "" if same else "ONNX Runtime, which runs it here, computes another GridSample than ONNX defines"


def _run(loaded: Any, values: Array, grid: Array) -> Array:
    feeds = {"x": np.ascontiguousarray(wide(values), np.float32), "grid": np.ascontiguousarray(wide(grid), np.float32)}
    (result,) = loaded.run(None, feeds)
    return np.asarray(result)


@functools.lru_cache(maxsize=256)
def _session(rank: int, attributes: _Attributes) -> Any:
    import onnxruntime

    data = _model(rank, attributes).SerializeToString()
    return onnxruntime.InferenceSession(data, session_options(), providers=["CPUExecutionProvider"])


def _model(rank: int, attributes: _Attributes) -> onnx.ModelProto:
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], **dict(attributes))
    float32 = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(name, float32, [None] * rank) for name in ("x", "grid")]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", float32, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
