"""The sizes of kernels, written into the nodes that have them."""

from __future__ import annotations

from onnx import helper

from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel


def write_kernel_shapes(model: OnnxModel) -> None:
    """Writes the sizes of kernels: a parser that takes them from the weight finds none in one that is dequantised."""
    for scope in model.scopes:
        for index in scope.positions("Conv", "ConvTranspose"):
            node, weight = scope.columns.nodes[index], scope.initializer(scope.columns.inputs[index][1])
            if weight is not None and attribute(node, "kernel_shape") is None:
                node.attribute.append(helper.make_attribute("kernel_shape", list(weight.dims[2:])))
    model.touch()
