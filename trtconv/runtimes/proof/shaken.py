"""A piece whose weights and intermediate results are off by a little: how far rounding inside it moves its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel

_FLOATS = {"float16": onnx.TensorProto.FLOAT16, "float32": onnx.TensorProto.FLOAT, "float64": onnx.TensorProto.DOUBLE}
_INTERPOLATED = frozenset({"Resize", "Upsample"})
_ADDING = frozenset(
    "Conv ConvTranspose Gemm MatMul Einsum Add Sub Sum Mean AveragePool GlobalAveragePool ReduceSum ReduceMean".split()  # noqa: SIM905
)
"""Operators whose terms are their inputs, or products of these; none may cancel another."""
_STEPS_OF_POSITIONS = 4
"""A position is rounded by four units at most, and `tolerance.FACTOR` allows for sixteen."""


def shaken(part: onnx.ModelProto, model: OnnxModel, by: float, seed: int) -> onnx.ModelProto:
    """Returns a piece with each element of its weights, and each intermediate result as a whole, off by a factor.

    A difference of large numbers that are nearly alike moves by much more than its inputs do, and what a step of a
    recurrence adds to the next is none of them.

    Args:
        part: The piece.
        model: The model that it is cut out of.
        by: The factor is one more or one less than this.
        seed: Of the signs.
    """
    random = np.random.default_rng(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(part)
    for tensor in copy.graph.initializer:
        if tensor.data_type in _FLOATS.values():
            values = model.array(tensor)
            factors = random.choice([1 - by, 1 + by], values.shape)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(values * factors, values.dtype), tensor.name))
    results = {output.name for output in copy.graph.output}
    nodes = []
    for node in copy.graph.node:
        nodes.append(node)
        for slot, name in enumerate(node.output):
            kind = _FLOATS.get(model.main.dtype(name) or "") if name not in results else None
            if kind is not None:
                node.output[slot] = f"{name}:exact"
                factor = helper.make_tensor(f"{name}:factor", kind, [], [random.choice([1 - by, 1 + by])])
                copy.graph.initializer.append(factor)
                nodes.append(helper.make_node("Mul", [f"{name}:exact", factor.name], [name]))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def widen_interpolations(part: onnx.ModelProto, model: OnnxModel) -> None:
    """Makes interpolations of magnitudes see as far as rounding takes a position, and none of their terms cancel.

    Cubic ones become linear, and each reads the largest of an element and those beside it.

    Args:
        part: The piece, with magnitudes for weights.
        model: The model that it is cut out of.
    """
    nodes = []
    for node in part.graph.node:
        if node.op_type in _INTERPOLATED:
            mode = next((entry for entry in node.attribute if entry.name == "mode"), None)
            if mode is not None and mode.s == b"cubic":
                mode.s = b"linear"
            for entry in [entry for entry in node.attribute if entry.name in ("cubic_coeff_a", "exclude_outside")]:
                node.attribute.remove(entry)
            axes = len(model.main.shape(node.input[0]) or ()) - 2
            if mode is not None and mode.s != b"nearest" and axes > 0:
                wide = f"{node.output[0]}:wide"
                nodes.append(
                    helper.make_node("MaxPool", [node.input[0]], [wide], kernel_shape=[3] * axes, pads=[1] * 2 * axes)
                )
                node.input[0] = wide
        nodes.append(node)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del part.graph.node[:]
    part.graph.node.extend(nodes)


def steps(part: onnx.ModelProto, result: NDArray[Any]) -> float:
    """Returns how many times the rounding of an element that of the positions is that a piece interpolates at.

    Args:
        part: The piece.
        result: What it computes; the last position along an axis is about its size.
    """
    modes = [attribute(node, "mode", b"nearest") for node in part.graph.node if node.op_type in _INTERPOLATED]
    if all(mode == b"nearest" for mode in modes):
        return 1.0
    positions: list[float] = [size / _STEPS_OF_POSITIONS for size in result.shape[2:]]
    return max([1.0, *positions])


def take_magnitudes(graph: onnx.GraphProto, model: OnnxModel) -> None:
    """Puts an Abs before every sum for what is computed: what an int8 kernel stands for is one sign or the other."""
    computed = {name for node in graph.node for name in node.output if name and _is_float(model, name)}
    signed = {name for node in graph.node if node.op_type in _ADDING for name in node.input} & computed
    nodes = []
    for node in graph.node:
        if node.op_type in _ADDING:
            node.input[:] = [f"{name}:magnitude" if name in signed else name for name in node.input]
        nodes.append(node)
        nodes += [onnx.helper.make_node("Abs", [n], [f"{n}:magnitude"]) for n in node.output if n in signed]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)


def _is_float(model: OnnxModel, name: str) -> bool:
    return "float" in (model.main.dtype(name) or "")
