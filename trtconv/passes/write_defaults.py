"""Writes down defaults that TensorRT does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass

_SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}
_EXACT_SELU = 6
"""Opset from which on Selu has these defaults; before, 1.6732 and 1.0507, as TensorRT's parser has them."""


class WriteDefaults(NodePass):
    """Writes what Trilu, NonMaxSuppression and Selu leave unsaid.

    The parser reads a Trilu without upper as one of the lower triangle, takes other limits than ONNX where a
    NonMaxSuppression names none, and knows the constants of a Selu to five digits only.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,3] x) => (float[3,3] y) { y = Trilu (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3, 3] x) => (float[3, 3] y) { y = Trilu <upper = 1> (x) }
    """

    name = "write-defaults"
    fixes = ("TC601", "TC609")
    ops = frozenset({"Trilu", "NonMaxSuppression", "Selu"})
    looks_around = False

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        if node.op == "Trilu":
            edit = _write_upper(node)
        elif node.op == "NonMaxSuppression":
            edit = _write_limits(field, node)
        else:
            edit = _write_constants(field, node)
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
