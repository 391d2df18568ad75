"""Writes down defaults that TensorRT does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass

_NOT_PLAIN = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
"""Reductions that compute something where they reduce nothing."""

_SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}
_EXACT_SELU = 6
"""Opset from which on Selu has these defaults; before, 1.6732 and 1.0507, as TensorRT's parser has them."""


class WriteDefaults(NodePass):
    """Writes what Trilu, NonMaxSuppression, Selu and reductions over nothing leave unsaid.

    The parser reads a Trilu without upper as one of the lower triangle, takes other limits than ONNX where a
    NonMaxSuppression names none, hands on the input of a ReduceL1 over no axes, and knows the constants of a Selu to
    five digits only.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x) => (float[2,3] y) { y = ReduceL1 <noop_with_empty_axes = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2, 3] x) => (float[2, 3] y)
        <int64[0] axes = {}>
        {
          y = ReduceL1 <noop_with_empty_axes = 1> (x, axes)
        }
    """

    name = "write-defaults"
    fixes = ("TC601", "TC605", "TC609")
    ops = frozenset({"Trilu", "NonMaxSuppression", "Selu", *_NOT_PLAIN})
    looks_around = False

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        if node.op == "Trilu":
            edit = _write_upper(node)
        elif node.op == "NonMaxSuppression":
            edit = _write_limits(field, node)
        elif node.op == "Selu":
            edit = _write_constants(field, node)
        else:
            edit = _write_axes(field, node)
        if edit:
            field.replace(node, [node])
        return edit


def _write_upper(node: gs.Node) -> str | None:
    if "upper" in node.attrs:
        return None
    node.attrs["upper"] = 1
    return "upper = 1 written"


def _write_constants(field: Field, node: gs.Node) -> str | None:
    lacking = [name for name in _SELU if name not in node.attrs]
    if not lacking or field.model.opset < _EXACT_SELU:
        return None
    node.attrs.update({name: _SELU[name] for name in lacking})
    return f"{', '.join(lacking)} written"


def _write_limits(field: Field, node: gs.Node) -> str | None:
    values: dict[int, tuple[str, NDArray[Any]]] = {
        2: ("max_output_boxes_per_class", np.array(0, np.int64)),
        3: ("iou_threshold", np.array(0, np.float32)),
        4: ("score_threshold", np.array(np.finfo(np.float32).min, np.float32)),
    }
    inputs = list(node.inputs) + [gs.Variable.empty()] * (5 - len(node.inputs))
    lacking = [index for index in values if inputs[index].is_empty()]
    if not lacking or lacking == [3]:
        return None
    for index in lacking:
        name, value = values[index]
        inputs[index] = field.constant(f"{label(node)}.{name}", value)
    node.inputs = inputs
    return f"{', '.join(values[index][0] for index in lacking)} written"


def _write_axes(field: Field, node: gs.Node) -> str | None:
    lacks = len(node.inputs) < 2 or node.inputs[1].is_empty()
    if node.attrs.get("noop_with_empty_axes") != 1 or not lacks:
        return None
    node.inputs = [node.inputs[0], field.constant(f"{label(node)}.axes", np.zeros(0, np.int64))]
    return "empty axes written"
