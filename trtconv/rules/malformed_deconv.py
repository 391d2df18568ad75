"""TC108."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry, output_sizes
from trtconv.graph.views import Deconv
from trtconv.rules.base import ModelView, Rule


class MalformedDeconv(Rule):
    """A ConvTranspose's attributes contradict each other or its weight.

    What it checks:
        Lengths of strides, dilations, pads, output_padding and output_shape; kernel_shape against the weight; the
        group against the input channels; the bias against the output channels; an output of at least one element
        where sizes are static.
    Why TensorRT cares:
        It reads such a node as something, or fails with a message that names no node.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2]> (x, w) }
    Fix:
        Export the model again; such a node does not come from a framework.
    Source:
        ONNX operator ConvTranspose.
    """

    code = "TC108"
    name = "malformed-deconv"
    fix = "Correct the node's attributes, or export the model again."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for deconv in view.deconvs:
            fault = deconv.geometry if isinstance(deconv.geometry, str) else _fault(deconv, deconv.geometry)
            if fault:
                yield self.finding(fault, deconv.location)


def _fault(deconv: Deconv, geometry: Geometry) -> str | None:
    weight = deconv.scope.initializer(deconv.node.input[1])
    if geometry.group < 1 or (weight is not None and weight.dims[0] % geometry.group):
        return f"group {geometry.group} does not divide the weight's input channels"
    bias = deconv.scope.initializer(deconv.bias) if deconv.bias else None
    if bias is not None and weight is not None and list(bias.dims) != [deconv.out_channels]:
        return f"its bias has the shape {list(bias.dims)}, and it has {deconv.out_channels} output channels"
    # Sizes cost a shape inference, and only pads that crop more than the kernel adds can leave nothing.
    spans = [(k - 1) * d + 1 for k, d in zip(geometry.kernel, geometry.dilations, strict=True)]
    pads = [b + e for b, e in zip(geometry.begin_pads, geometry.end_pads, strict=True)]
    if geometry.auto_pad == "NOTSET" and any(p >= s for p, s in zip(pads, spans, strict=True)):
        sizes = deconv.sizes
        if sizes is not None and min(output_sizes(geometry, sizes)) < 1:
            return f"pads {pads} leave nothing of an input of {list(sizes)}"
    return None


def channels_fault(deconv: Deconv) -> str | None:
    """Returns why the input does not fit the weight.

    Costs an inference over the whole model, so the rule leaves it to the parser, which says it too.
    """
    weight = deconv.scope.constant(deconv.inputs[1]) if deconv.inputs[1] else None
    channels = (deconv.input_shape or (None, None))[1:2]
    if weight is None or channels in ((), (None,), (weight.dims[0],)):
        return None
    return f"its input has {channels[0]} channels, and its weight of {list(weight.dims)} takes {weight.dims[0]}"
