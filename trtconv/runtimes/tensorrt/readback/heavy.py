"""Operators that take long, on ONNX Runtime: models of one node, whose sessions are kept.

Weights are inputs of these models, so that nothing is copied. Only operators and attributes are used whose meaning
there is the layer's: pads are taken off by slicing, windows are made explicit first.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.runtimes.onnxruntime import first_line, raise_if_starved, session_options
from trtconv.runtimes.tensorrt.readback.call import Array
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.types import wide

_OPSETS = {"GridSample": 20}
_OPSET = 13
_IR = 8


def one(op: str, *inputs: Array, **attributes: Any) -> Array:
    """Computes an operator in float32.

    Args:
        op: ONNX operator with one output.
        inputs: Its inputs; narrower floats are widened.
        attributes: Its attributes, tuples for lists.

    Raises:
        NotProven: ONNX Runtime refuses it at these sizes.
    """
    floats = [np.ascontiguousarray(wide(each), np.float32) for each in inputs]
    try:
        session = _session(op, tuple(each.ndim for each in floats), tuple(sorted(attributes.items())))
        (result,) = session.run(None, {f"x{i}": each for i, each in enumerate(floats)})
    except Exception as error:  # It raises its own types, one for each status.
        raise_if_starved(error)
        raise NotProven(f"it does not compute at these sizes: {first_line(error)}") from error
    return np.asarray(result)


@functools.lru_cache(maxsize=256)
def _session(op: str, ranks: tuple[int, ...], attributes: tuple[tuple[str, Any], ...]) -> Any:
    import onnxruntime

    names = [f"x{i}" for i in range(len(ranks))]
    opset = _OPSETS.get(op, _OPSET)
    node = helper.make_node(op, names, ["y"], **{k: list(v) if isinstance(v, tuple) else v for k, v in attributes})
    float32 = onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(name, float32, [None] * rank) for name, rank in zip(names, ranks, strict=True)
    ]
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", float32, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR)
    options = session_options()
    # One arena for all sessions would never give memory back; without, each frees what it took.
    options.enable_cpu_mem_arena = False
    data = model.SerializeToString()
    # No second attempt, and nothing printed: what fails for want of memory would fail again.
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"], enable_fallback=False)
