"""Operators that take long, on ONNX Runtime: models of one node, whose sessions are kept.

Weights are inputs of these models, so that nothing is copied. Only operators and attributes are used whose meaning
there is the layer's: pads are taken off by slicing, windows are made explicit first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.runtimes.onnxruntime import first_line, raise_if_starved, session_options
from trtconv.runtimes.tensorrt.readback.call import Array
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven
from trtconv.runtimes.tensorrt.readback.types import wide

_WINDOWED = ("Conv", "ConvTranspose")
_WINDOW = 3
"""Size up to which windows are held to the definition as they are; larger ones at this size."""
_FEW = 3
_CLOSE = 1e-4
_OPSETS = {"GridSample": 20}
_OPSET = 13
_IR = 8


_Attributes = tuple[tuple[str, Any], ...]


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
    given = tuple(sorted(attributes.items()))
    why = _departure(op, tuple(each.ndim for each in floats), floats[1].shape[2:] if op in _WINDOWED else (), given)
    if why:
        raise NotProven(why)
    try:
        session = _session(op, tuple(each.ndim for each in floats), given)
        (result,) = session.run(None, {f"x{i}": each for i, each in enumerate(floats)})
    except Exception as error:  # It raises its own types, one for each status.
        raise_if_starved(error)
        raise Malformed(f"it does not compute at these sizes: {first_line(error)}") from error
    return np.asarray(result)


@functools.lru_cache(maxsize=1024)
def _departure(op: str, ranks: tuple[int, ...], window: tuple[int, ...], attributes: _Attributes) -> str:
    """Holds ONNX Runtime to ONNX's reference implementation, on a few elements; returns how it departs from it.

    The model is run on ONNX Runtime too, so that what this gets wrong would be wrong on both sides. What the reference
    implementation cannot run is trusted.
    """
    small = dict(attributes)
    if "group" in small:
        small["group"] = min(small["group"], _FEW)
    sizes = tuple(min(size, _WINDOW) for size in window)
    if "kernel_shape" in small:
        small["kernel_shape"] = sizes
    key = tuple(sorted(small.items()))
    inputs = _few(op, ranks, sizes, small)
    feeds = {f"x{i}": each for i, each in enumerate(inputs)}
    try:
        expected = np.asarray(_reference(_model(op, ranks, key)).run(None, feeds)[0])
    except Exception:  # It raises whatever its operators do.
        return ""
    try:
        (got,) = _session(op, ranks, key).run(None, feeds)
    except Exception as error:
        return f"it does not compute at these sizes: {first_line(error)}"
    same = got.shape == expected.shape and np.allclose(got, expected, rtol=_CLOSE, atol=_CLOSE)
    return "" if same else f"ONNX Runtime, which runs it here, computes another {op} than ONNX defines"


def _few(op: str, ranks: tuple[int, ...], window: tuple[int, ...], attributes: Mapping[str, Any]) -> list[Array]:
    """Returns small inputs of an operator."""
    random = np.random.default_rng(0)
    if op in _WINDOWED:
        group = attributes.get("group", 1)
        strides = attributes.get("strides", (1,) * len(window))
        dilations = attributes.get("dilations", (1,) * len(window))
        sizes = [(k - 1) * d + s + 1 for k, d, s in zip(window, dilations, strides, strict=True)]
        shapes = [(1, 2 * group, *sizes), (2 * group, 2, *window), (2 * group,)]
    elif op == "GridSample":
        places = ranks[0] - 2
        shapes = [(1, 2, *range(4, 4 + places)), (1, *(3,) * places, places)]
    else:
        shapes = [(_FEW,) * rank for rank in ranks]
    return [random.uniform(-1.3, 1.3, shape).astype(np.float32) for shape, _ in zip(shapes, ranks, strict=False)]


def _reference(model: onnx.ModelProto) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model)


@functools.lru_cache(maxsize=256)
def _session(op: str, ranks: tuple[int, ...], attributes: _Attributes) -> Any:
    import onnxruntime

    data = _model(op, ranks, attributes).SerializeToString()
    return onnxruntime.InferenceSession(data, session_options(), providers=["CPUExecutionProvider"])


def _model(op: str, ranks: tuple[int, ...], attributes: _Attributes) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(ranks))]
    opset = _OPSETS.get(op, _OPSET)
    node = helper.make_node(op, names, ["y"], **{k: list(v) if isinstance(v, tuple) else v for k, v in attributes})
    float32 = onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(name, float32, [None] * rank) for name, rank in zip(names, ranks, strict=True)
    ]
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", float32, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR)
