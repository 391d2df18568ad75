"""Averages that count zeros of the padding, over windows that reach beyond it.

With `ceil_mode` a last window may reach beyond the end padding. What lies there is not counted; ONNX Runtime 1.21 to
1.23 count it where `count_include_pad` is set (measured). The mean over what a window has of the input, which every
version computes, times the share of the input among what is counted is the same.
"""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_SLICE_WITH_INPUTS = 10
"""Opset from which on Slice takes its numbers as inputs, and AveragePool has ceil_mode."""


def write_pooling(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an AveragePool out that rounds its size up and counts zeros of the padding."""
    node = scope.columns.nodes[index]
    attributes = {each.name: helper.get_attribute_value(each) for each in scope.columns.attributes[index]}
    both = attributes.get("ceil_mode", 0) and attributes.pop("count_include_pad", 0)
    if not both or attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or writing.opset < _SLICE_WITH_INPUTS:
        return False
    mean = writing.compute("AveragePool", node.input[0], **attributes)
    pads = attributes.pop("pads", [])
    if any(pads):
        rank = len(pads) // 2
        one = numpy_helper.from_array(np.ones(1, np.float32))
        ones = writing.compute("ConstantOfShape", writing.compute("Shape", node.input[0]), value=one)
        padded = writing.pad(ones, [0, 0, *pads[:rank]], [0, 0, *pads[rank:]])
        # Windows that begin in the end padding are left out by ONNX; here that padding is part of the input.
        share = writing.compute("AveragePool", padded, **attributes)
        start = writing.constant([0] * (rank + 2))
        share = writing.compute("Slice", share, start, writing.compute("Shape", mean))
        # Of the type of the input, which need not be float32.
        writing.compute("Mul", mean, writing.compute("CastLike", share, mean) if writing.opset >= 15 else share)
    writing.finish()
    return True
