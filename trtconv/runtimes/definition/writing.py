"""The nodes that stand for one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_CONSTANT_PADS, _CONSTANT_SHAPE = 11, 5
"""Opsets from which on Pad and Reshape take their numbers as an input."""


class Writing:
    """Collects the nodes that stand for one node; the tensors between them are named after its output.

    Args:
        node: The node that they stand for.
        opset: Version of the standard operators.
    """

    def __init__(self, node: onnx.NodeProto, opset: int) -> None:
        self.node = node
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []

    def compute(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node of one output; returns that output's name."""
        name = f"{self.node.output[0]}:{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Sequence[int]) -> str:
        """Adds a constant of int64."""
        return self.compute("Constant", value=numpy_helper.from_array(np.array(list(values), np.int64)))

    def number(self, value: float) -> str:
        """Adds a constant of float64."""
        return self.compute("Constant", value=numpy_helper.from_array(np.array(value, np.float64)))

    def pad(self, tensor: str, low: Sequence[int], high: Sequence[int]) -> str:
        """Pads a tensor with zeros, as many as given for each axis; a negative number takes elements off."""
        pads = [*low, *high]
        if self.opset < _CONSTANT_PADS:
            return self.compute("Pad", tensor, pads=pads)
        return self.compute("Pad", tensor, self.constant(pads))

    def reshape(self, tensor: str, shape: Sequence[int]) -> str:
        """Reshapes a tensor; 0 keeps a size, and a number of elements that does not fit is refused by ONNX Runtime."""
        if self.opset < _CONSTANT_SHAPE:
            return self.compute("Reshape", tensor, shape=list(shape))
        return self.compute("Reshape", tensor, self.constant(shape))

    def finish(self) -> None:
        """Gives the last result the name of the output that it stands for."""
        self.nodes[-1].output[0] = self.node.output[0]
