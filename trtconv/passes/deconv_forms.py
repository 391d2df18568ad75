"""Ways to return output beyond the ends of a deconvolution, all of them exact. Which is the fastest, a GPU decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.dims import times
from trtconv.core.frozen import frozen
from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry, Growth
from trtconv.graph.editor import Field
from trtconv.graph.views import Deconv
from trtconv.passes.base import Refusal
from trtconv.passes.kernel import Kernel, replace_kernel


@frozen
class Site:
    """A deconvolution whose window has a negative crop.

    Args:
        field: The field that it was opened in.
        node: The node.
        geometry: What it says.
        window: Its crops.
        kernel: Its kernel, or why it has no constant one.
    """

    field: Field
    node: gs.Node
    geometry: Geometry
    window: tuple[Crop, ...]
    kernel: Kernel | str

    @property
    def name(self) -> str:
        """What new tensors and nodes are named after."""
        return self.node.name or "ConvTranspose"

    @property
    def is_quantized(self) -> bool:
        """Whether its kernel goes through quantisers."""
        return not isinstance(self.kernel, str) and any("Linear" in link.op for link in self.kernel.chain)


Form = Callable[[Site], "str | Refusal"]
"""Rewrites a node; returns what it did in words, or why it cannot."""


def in_kernel(site: Site) -> str | Refusal:
    """Adds zero taps to the kernel."""
    if isinstance(site.kernel, str):
        return Refusal(site.kernel)
    geometry, node, folding = site.geometry, site.node, deconv.fold(site.geometry, site.window)
    nodes, weight = replace_kernel(
        site.field, site.name, site.kernel, lambda w, zero: deconv.extend_kernel(w, folding, zero)
    )
    node.inputs[1] = weight
    size = tuple(lo + k + hi for lo, k, hi in zip(folding.low, geometry.kernel, folding.high, strict=True))
    set_pads(node, size, folding.crops)
    site.field.replace(node, [*nodes, node])
    return (
        f"{asked_for(geometry)} put into the kernel: {times(geometry.kernel)} zero-extended to {times(size)},"
        f" pads {pads_of(folding.crops)}"
    )


def in_input(site: Site) -> str | Refusal:
    """Pads zeros on around the input, and crops what they make too much."""
    field, node = site.field, site.node
    reason = site.kernel if isinstance(site.kernel, str) else "faster here than a larger kernel"
    if field.model.opset < 2:
        return Refusal(f"{reason}, and opset {field.model.opset} has no Pad that says where")
    longer = deconv.lengthen(site.geometry, site.window)
    padded = _pad(site, "input", node.inputs[0], [0, 0, *longer.low, 0, 0, *longer.high])
    return f"{_lengthened(site, longer, padded)}: {reason}"


def in_input_by_conv(site: Site) -> str | Refusal:
    """The same by a 1x1 convolution that copies each channel, and has the pads: it keeps TensorRT's own layout."""
    longer = deconv.lengthen(site.geometry, site.window)
    channels = None if isinstance(site.kernel, str) else site.kernel.values.shape[0]
    copy = _copy(site, "input", site.node.inputs[0], channels, [*longer.low, *longer.high])
    if isinstance(copy, Refusal):
        return copy
    return f"{_lengthened(site, longer, copy)} of a 1x1 convolution: faster here than a larger kernel"


def _lengthened(site: Site, longer: Growth, padded: gs.Node) -> str:
    """Puts a node that makes the input longer before the deconvolution; returns what was done."""
    field, node = site.field, site.node
    nodes = [padded, *_quantized_again(site, padded.outputs[0])]
    node.inputs[0] = nodes[-1].outputs[0]
    set_pads(node, site.geometry.kernel, longer.crops)
    field.replace(node, [*nodes, node])
    ends = f"{list(longer.low)} and {list(longer.high)}" if any(longer.low) else f"{list(longer.high)}"
    return f"{asked_for(site.geometry)} put into the input as {ends} zeros, pads {pads_of(longer.crops)}"


def _quantized_again(site: Site, tensor: gs.Tensor) -> list[gs.Node]:
    """Returns quantisers like those that the input of a quantised deconvolution comes out of; they change no value."""
    before = Deconv(site.field.scope, site.field.index(site.node)).dequantizer(0) if site.is_quantized else None
    if before is None or not before.has_zero_point:
        return []
    field, name = site.field, site.name
    scales = [field.tensor(source) for source in before.inputs[1:3]]
    axis = {"axis": before.attributes["axis"]} if "axis" in before.attributes else {}
    to = field.node("QuantizeLinear", f"{name}/QuantizeLinear", [tensor, *scales], f"{name}.quantized", **axis)
    back = field.node(
        "DequantizeLinear", f"{name}/DequantizeLinear", [to.outputs[0], *scales], f"{name}.dequantized", **axis
    )
    return [to, back]


def behind(site: Site) -> str | Refusal:
    """Pads zeros on behind the deconvolution; the bias comes after."""
    if site.field.model.opset < 7:
        return Refusal(f"opset {site.field.model.opset} has no broadcasting Add")
    low, high = _missing(site.window)
    full = site.field.variable(f"{site.name}.full")
    return _behind(site, full, _pad(site, "full", full, [0, 0, *low, 0, 0, *high]), "on behind")


def behind_by_conv(site: Site) -> str | Refusal:
    """The same by a 1x1 convolution that copies each channel, and has the pads."""
    low, high = _missing(site.window)
    full = site.field.variable(f"{site.name}.full")
    channels = None if isinstance(site.kernel, str) else site.kernel.values.shape[1] * site.geometry.group
    copy = _copy(site, "full", full, channels, [*low, *high])
    return copy if isinstance(copy, Refusal) else _behind(site, full, copy, "by a 1x1 convolution behind")


def _behind(site: Site, full: gs.Tensor, longer: gs.Node, where: str) -> str:
    """Puts a node that makes the result longer behind the deconvolution; returns what was done."""
    tail = Tail(site.field, site.node, full)
    set_pads(site.node, site.geometry.kernel, [Crop(max(c.begin, 0), max(c.end, 0)) for c in site.window])
    if longer.op == "Conv" and tail.bias is not None and site.field.values(tail.bias) is not None:
        longer.inputs.append(tail.bias)
        tail.bias = None
    tail.append(longer)
    tail.finish()
    return f"{asked_for(site.geometry)} padded {where} the deconvolution: faster than a larger kernel"


def _missing(window: Sequence[Crop]) -> tuple[list[int], list[int]]:
    """Returns how much a window has beyond the low and the high ends."""
    return [max(-c.begin, 0) for c in window], [max(-c.end, 0) for c in window]


FORMS: Mapping[str, Form] = {
    "kernel": in_kernel,
    "input": in_input,
    "input-conv": in_input_by_conv,
    "behind": behind,
    "behind-conv": behind_by_conv,
}
"""The forms by the names that a build's report has."""


def worth_timing(site: Site) -> tuple[str, ...]:
    """Returns the forms that may be the fastest: between quantisers those that leave the node there."""
    if site.is_quantized:
        return ("kernel", "input")
    return tuple(form for form in FORMS if form != "behind" or site.geometry.group > 1)


def set_pads(node: gs.Node, kernel: Sequence[int], window: Sequence[Crop]) -> None:
    """Makes a node say by pads alone what it returns."""
    for name in ("auto_pad", "output_shape", "output_padding"):
        node.attrs.pop(name, None)
    node.attrs["kernel_shape"] = list(kernel)
    node.attrs["pads"] = pads_of(window)


def pads_of(window: Sequence[Crop]) -> list[int]:
    """Returns crops as the pads of a node."""
    return [c.begin for c in window] + [c.end for c in window]


def asked_for(geometry: Geometry) -> str:
    """Returns what the node asked for, in words."""
    parts = []
    if geometry.auto_pad != "NOTSET":
        parts.append(f"auto_pad {geometry.auto_pad}")
    if geometry.output_shape is not None:
        parts.append(f"output_shape {list(geometry.output_shape)}")
    if any(geometry.output_padding):
        parts.append(f"output_padding {list(geometry.output_padding)}")
    if min((*geometry.begin_pads, *geometry.end_pads)) < 0:
        parts.append(f"pads {list(geometry.begin_pads + geometry.end_pads)}")
    return ", ".join(parts)


def _pad(site: Site, label: str, tensor: gs.Tensor, pads: list[int]) -> gs.Node:
    """Makes a Pad with zeros in the spelling of the model's opset."""
    field, name = site.field, site.name
    if field.model.opset < 11:
        return field.node("Pad", f"{name}/Pad", [tensor], f"{name}.{label}_padded", pads=pads)
    amounts = field.constant(f"{name}.pads", np.array(pads, np.int64))
    return field.node("Pad", f"{name}/Pad", [tensor, amounts], f"{name}.{label}_padded")


def _copy(site: Site, label: str, tensor: gs.Tensor, channels: int | None, pads: list[int]) -> gs.Node | Refusal:
    """Makes a depthwise 1x1 convolution whose weights are ones, where channels and type are known."""
    field, name, rank = site.field, site.name, site.geometry.rank
    # The weight's type is the input's, and needs no inference.
    kernel = site.kernel
    plain = None if isinstance(kernel, str) or kernel.chain else str(kernel.values.dtype)
    dtype = plain or field.dtype(site.node.inputs[0])
    if dtype not in ("float32", "float16") or channels is None:
        return Refusal(f"a 1x1 convolution of ones takes float32 or float16 and known channels, not {dtype}")
    ones = field.constant(f"{name}.ones", np.ones((channels, 1, *[1] * rank), dtype))
    attributes = {"kernel_shape": [1] * rank, "pads": pads, "group": channels}
    return field.node("Conv", f"{name}/Conv", [tensor, ones], f"{name}.{label}_longer", **attributes)


class Tail:
    """The nodes behind a deconvolution that lost its bias: each takes the last result, the bias comes at the end."""

    def __init__(self, field: Field, node: gs.Node, full: gs.Tensor) -> None:
        self.field = field
        self.node = node
        self.name = node.name or "ConvTranspose"
        self.output = node.outputs[0]
        self.bias = node.inputs[2] if len(node.inputs) > 2 and not node.inputs[2].is_empty() else None
        node.inputs = list(node.inputs)[:2]
        node.outputs.clear()
        self.tensor = full
        node.outputs.append(self.tensor)
        self.nodes: list[gs.Node] = [node]

    def add(self, op: str, inputs: list[gs.Tensor], **attrs: Any) -> None:
        self.append(self.field.node(op, f"{self.name}/{op}", [self.tensor, *inputs], f"{self.name}.{op}", **attrs))

    def append(self, node: gs.Node) -> None:
        self.nodes.append(node)
        self.tensor = node.outputs[0]

    def finish(self) -> None:
        """Adds the bias and hands the nodes over; the last one makes what the deconvolution made."""
        if self.bias is not None:
            self.add("Add", [self._broadcastable(self.bias)])
        last = self.nodes[-1]
        last.outputs.clear()
        last.outputs.append(self.output)
        self.field.replace(self.node, self.nodes)

    def _broadcastable(self, bias: gs.Tensor) -> gs.Tensor:
        """Returns the bias (C) as (C, 1, ...)."""
        shape = [-1] + [1] * len(self.node.attrs["kernel_shape"])
        values = self.field.values(bias)
        if values is not None:
            return self.field.constant(f"{self.name}.bias", values.reshape(shape))
        target = self.field.constant(f"{self.name}.bias_shape", np.array(shape, np.int64))
        node = self.field.node("Reshape", f"{self.name}/Reshape", [bias, target], f"{self.name}.bias")
        self.nodes.append(node)
        return node.outputs[0]
