"""Models written so that ONNX Runtime computes what ONNX defines.

It computes ConvTranspose wrongly where output_padding is not below the stride, which dilation makes legal (1.23), or
refuses it (1.31). Such nodes become the whole transposed convolution, which it gets right, cropped or extended by
zeros, with the bias added last.

Where the body of a loop returns an input of its own, it hands out memory that the next pass overwrites; and it refuses
bodies that return what is around them. An Identity makes it copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtconv.graph import deconv
from trtconv.graph.deconv import Geometry, geometry_of
from trtconv.graph.walk import inner_graphs

_PADS_AS_INPUT = 11
"""Opset from which on Pad takes its pads as an input."""


def write_out(model: onnx.ModelProto) -> None:
    """Rewrites what ONNX Runtime does not run as defined, in place: nodes of the main graph, and results of bodies.

    Args:
        model: The model; changed.
    """
    graph = model.graph
    for body in list(inner_graphs(graph.node)):
        _copy_results(body)
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        geometry = _misrun(node, shapes)
        if geometry is None:
            nodes.append(node)
        else:
            nodes += _written_out(graph, node, geometry, opset)
    if len(nodes) != len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _copy_results(body: onnx.GraphProto) -> None:
    """Has the body of a node copy each result that it does not compute."""
    made = {name for node in body.node for name in node.output}
    for position, result in enumerate(body.output):
        if result.name not in made:
            copied = f"{result.name}:{position}"
            body.node.append(helper.make_node("Identity", [result.name], [copied]))
            result.name = copied


def _misrun(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> Geometry | None:
    if node.op_type != "ConvTranspose" or len(node.input) < 2:
        return None
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if isinstance(attributes.get("auto_pad"), bytes):
        attributes["auto_pad"] = attributes["auto_pad"].decode()
    geometry = geometry_of(attributes, shapes.get(node.input[1]))
    if isinstance(geometry, str) or not any(
        more >= stride for more, stride in zip(geometry.output_padding, geometry.strides, strict=True)
    ):
        return None
    return geometry if deconv.crops(geometry, None) is not None else None


def _written_out(
    graph: onnx.GraphProto, node: onnx.NodeProto, geometry: Geometry, opset: int
) -> Iterator[onnx.NodeProto]:
    crops = deconv.crops(geometry, None) or ()
    rank, name = geometry.rank, node.output[0]
    full, padded = f"{name}:full", f"{name}:cropped"
    bias = node.input[2] if len(node.input) > 2 else ""
    yield helper.make_node(
        "ConvTranspose",
        list(node.input[:2]),
        [full],
        strides=list(geometry.strides),
        dilations=list(geometry.dilations),
        group=geometry.group,
        kernel_shape=list(geometry.kernel),
    )
    pads = [0, 0, *(-c.begin for c in crops), 0, 0, *(-c.end for c in crops)]
    result = padded if bias else name
    if opset >= _PADS_AS_INPUT:
        graph.initializer.append(numpy_helper.from_array(np.array(pads, np.int64), f"{name}:pads"))
        yield helper.make_node("Pad", [full, f"{name}:pads"], [result])
    else:
        yield helper.make_node("Pad", [full], [result], pads=pads)
    if bias:
        tall = f"{name}:bias"
        yield from _unsqueezed(graph, bias, tall, rank, opset)
        yield helper.make_node("Add", [padded, tall], [name])


def _unsqueezed(graph: onnx.GraphProto, source: str, result: str, rank: int, opset: int) -> Iterator[onnx.NodeProto]:
    shape: Any = np.array([1, -1, *(1,) * rank], np.int64)
    if opset >= 5:
        graph.initializer.append(numpy_helper.from_array(shape, f"{result}:shape"))
        yield helper.make_node("Reshape", [source, f"{result}:shape"], [result])
    else:
        yield helper.make_node("Reshape", [source], [result], shape=shape.tolist())
