"""A convolution between two Relus, of any rank, in any spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtconv.graph.model import OnnxModel


def convolution(
    op: str, rank: int, groups: int = 1, *, kernel: int = 3, bias: bool = True, **attributes: Any
) -> OnnxModel:
    """Returns Relu, a convolution named "up" of 4 -> 6 channels, Relu."""
    random = np.random.default_rng(0)
    ins, outs = (6, 4 // groups) if op == "Conv" else (4, 6 // groups)
    weight = random.standard_normal((ins, outs, *[kernel] * rank)).astype(np.float32)
    inits = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.arange(6, dtype=np.float32), "b")]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        helper.make_node(op, ["r", "w", *(["b"] if bias else [])], ["u"], "up", group=groups, **attributes),
        helper.make_node("Relu", ["u"], ["y"], "last"),
    ]
    sizes = [f"d{axis}" for axis in range(rank)]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4, *sizes])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 6, *(f"o{a}" for a in range(rank))])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return OnnxModel(proto, Path("m.onnx"))
