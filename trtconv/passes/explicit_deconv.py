"""Makes every ConvTranspose say by pads alone what it returns."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.dims import times
from trtconv.core.target import Target
from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry
from trtconv.graph.editor import Field
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.kernel import Kernel, find_kernel, replace_kernel


class MakeDeconvExplicit(NodePass):
    """Turns auto_pad, output_shape and output_padding of ConvTranspose into explicit pads.

    What the pads cannot say - output_padding beyond the end pad, negative pads - goes into the kernel as zero taps, or
    into the input as zero elements: whichever TensorRT runs faster (see `_Place`). An output_shape on sizes known only
    at run time becomes a Slice.

    Args:
        in_half: Whether the engine computes float32 layers in a type of 16 or 8 bits.
    """

    name = "make-deconv-explicit"
    fixes = ("TC101", "TC102", "TC103", "TC106", "TC107")
    ops = frozenset({"ConvTranspose"})
    looks_around = False

    def __init__(self, *, in_half: bool = False) -> None:
        self.in_half = in_half

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        return any(
            (a.name == "auto_pad" and a.s not in (b"", b"NOTSET"))
            or (a.name == "output_shape" and len(a.ints) > 0)
            or (a.name == "output_padding" and any(a.ints))
            or (a.name == "pads" and min(a.ints, default=0) < 0)
            for a in scope.columns.attributes[index]
        )

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        view = Deconv(field.scope, field.index(node))
        geometry = view.geometry
        if isinstance(geometry, str):
            return Refusal(geometry)
        if geometry.is_explicit:
            return None
        sizes = view.sizes if geometry.output_shape else None
        if geometry.excess_axes(sizes):
            return Refusal("it asks for as many extra elements as its stride and dilation, or more (see TC105)")
        window = deconv.crops(geometry, sizes)
        if window is None:
            return _slice_at_run_time(field, node, geometry)
        folding = deconv.fold(geometry, window)
        if not folding.is_needed:
            _set_pads(node, geometry.kernel, window)
            field.replace(node, [node])
            return f"{_asked(geometry)} written as pads {_pads(window)}"
        kernel = find_kernel(field, node.inputs[1])
        place = self._place(target, geometry, kernel)
        if place is _Place.BEHIND:
            return _pad_behind(field, node, geometry, window)
        if place is _Place.INPUT or isinstance(kernel, str):
            reason = kernel if isinstance(kernel, str) else "faster here than a larger kernel"
            return _pad_input(field, node, geometry, window, reason)
        nodes, weight = replace_kernel(
            field, node.name or "ConvTranspose", kernel, lambda w, zero: deconv.extend_kernel(w, folding, zero)
        )
        node.inputs[1] = weight
        size = tuple(lo + k + hi for lo, k, hi in zip(folding.low, geometry.kernel, folding.high, strict=True))
        _set_pads(node, size, folding.crops)
        field.replace(node, [*nodes, node])
        return (
            f"{_asked(geometry)} put into the kernel: {times(geometry.kernel)} zero-extended to {times(size)},"
            f" pads {_pads(folding.crops)}"
        )

    def _place(self, target: Target, geometry: Geometry, kernel: Kernel | str) -> _Place:
        if isinstance(kernel, str):
            return _Place.INPUT
        if any("Linear" in link.op for link in kernel.chain) or target.family != "tensorrt":
            return _Place.KERNEL
        channels_in, channels_of_group = kernel.values.shape[:2]
        if channels_of_group == 1 and geometry.group == channels_in > 1:
            return _Place.BEHIND
        return _Place.KERNEL if self.in_half or kernel.values.dtype.itemsize < 4 else _Place.INPUT


class _Place(enum.Enum):
    """Where the zeros go.

    Time over that of the raw node on TensorRT 8.6 (bench/results/gpu-remedies-8.6.json):

    KERNEL: 0.58 to 0.83 in float16, 0.31 to 0.57 in int8, but up to 1.4 in float32 (1.9 without TF32), where a larger
        kernel costs what its size says. TensorRT-RTX, whose layers could not be timed, gets it too: one layer.
    INPUT: 0.70 to 1.0 in float32. It would break a Q/DQ chain. The only way for a kernel that is no constant.
    BEHIND: 1.0; for depthwise kernels, of which the others make 1.07 and 1.15.
    """

    KERNEL = enum.auto()
    INPUT = enum.auto()
    BEHIND = enum.auto()


def _set_pads(node: gs.Node, kernel: Sequence[int], window: Sequence[Crop]) -> None:
    for name in ("auto_pad", "output_shape", "output_padding"):
        node.attrs.pop(name, None)
    node.attrs["kernel_shape"] = list(kernel)
    node.attrs["pads"] = _pads(window)


def _pads(window: Sequence[Crop]) -> list[int]:
    return [c.begin for c in window] + [c.end for c in window]


def _asked(geometry: Geometry) -> str:
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


def _pad_input(field: Field, node: gs.Node, geometry: Geometry, window: Sequence[Crop], reason: str) -> str | Refusal:
    """Pads zeros on around the input, and crops what they make too much."""
    if field.model.opset < 2:
        return Refusal(f"{reason}, and opset {field.model.opset} has no Pad that says where")
    longer = deconv.lengthen(geometry, window)
    padded = _pad(field, node, "input", node.inputs[0], [0, 0, *longer.low, 0, 0, *longer.high])
    node.inputs[0] = padded.outputs[0]
    _set_pads(node, geometry.kernel, longer.crops)
    field.replace(node, [padded, node])
    ends = f"{list(longer.low)} and {list(longer.high)}" if any(longer.low) else f"{list(longer.high)}"
    return f"{_asked(geometry)} put into the input as {ends} zeros, pads {_pads(longer.crops)}: {reason}"


def _pad_behind(field: Field, node: gs.Node, geometry: Geometry, window: Sequence[Crop]) -> str | Refusal:
    """Pads zeros on behind a depthwise deconvolution; the bias comes after."""
    if field.model.opset < 7:
        return Refusal(f"opset {field.model.opset} has no broadcasting Add")
    kept = [Crop(max(c.begin, 0), max(c.end, 0)) for c in window]
    missing = [0, 0, *(max(-c.begin, 0) for c in window), 0, 0, *(max(-c.end, 0) for c in window)]
    tail = _Tail(field, node)
    _set_pads(node, geometry.kernel, kept)
    tail.append(_pad(field, node, "full", tail.tensor, missing))
    tail.finish()
    return f"{_asked(geometry)} padded on behind the deconvolution: faster than a larger depthwise kernel"


def _pad(field: Field, node: gs.Node, label: str, tensor: gs.Tensor, pads: list[int]) -> gs.Node:
    """Makes a Pad with zeros in the spelling of the model's opset."""
    name = node.name or "ConvTranspose"
    if field.model.opset < 11:
        return field.node("Pad", f"{name}/Pad", [tensor], f"{name}.{label}_padded", pads=pads)
    amounts = field.constant(f"{name}.pads", np.array(pads, np.int64))
    return field.node("Pad", f"{name}/Pad", [tensor, amounts], f"{name}.{label}_padded")


def _slice_at_run_time(field: Field, node: gs.Node, geometry: Geometry) -> str | Refusal:
    """Cuts the asked output_shape out of the full result, whose size only the run time knows.

    begin = split(max(0, full + output_padding - asked)); zeros are padded on where begin + asked exceeds full.
    """
    if field.model.opset < 12:
        return Refusal(f"output_shape on dynamic sizes needs opset 12 or newer, the model has {field.model.opset}")
    assert geometry.output_shape is not None
    rank, name = geometry.rank, node.name or "ConvTranspose"
    zeros = [Crop(0, 0)] * rank
    made: list[gs.Node] = []

    def ints(label: str, *values: int) -> gs.Tensor:
        return field.constant(f"{name}.{label}", np.array(values, np.int64))

    def compute(op: str, *inputs: gs.Tensor, **attrs: Any) -> gs.Tensor:
        made.append(field.node(op, f"{name}/{op}", list(inputs), f"{name}.{op}", **attrs))
        return made[-1].outputs[0]

    tail = _Tail(field, node)
    _set_pads(node, geometry.kernel, zeros)
    zero, asked = ints("zero", 0), ints("output_shape", *geometry.output_shape)
    full = compute("Slice", compute("Shape", tail.tensor), ints("first", 2), ints("last", rank + 2))
    surplus = compute("Max", compute("Sub", compute("Add", full, ints("extra", *geometry.output_padding)), asked), zero)
    if geometry.auto_pad != "SAME_UPPER":
        surplus = compute("Add", surplus, ints("one", 1))
    begin = compute("Div", surplus, ints("two", 2))
    end = compute("Add", begin, asked)
    lacking = compute("Max", compute("Sub", end, full), zero)
    fill = compute("Concat", ints("before", *[0] * (rank + 4)), lacking, axis=0)
    tail.nodes.extend(made)
    tail.add("Pad", [fill])
    tail.add("Slice", [begin, end, ints("axes", *range(2, rank + 2))])
    # The node says its size and a Slice to computed ends does not: what follows would be seen with other eyes.
    field.keep_type(tail.output)
    tail.finish()
    return f"{_asked(geometry)} on dynamic sizes cut out of the full result by a Slice"


class _Tail:
    """The nodes behind a deconvolution that lost its bias: each takes the last result, the bias comes at the end."""

    def __init__(self, field: Field, node: gs.Node) -> None:
        self.field = field
        self.node = node
        self.name = node.name or "ConvTranspose"
        self.output = node.outputs[0]
        self.bias = node.inputs[2] if len(node.inputs) > 2 and not node.inputs[2].is_empty() else None
        node.inputs = list(node.inputs)[:2]
        node.outputs.clear()
        self.tensor: gs.Tensor = field.variable(f"{self.name}.full")
        node.outputs.append(self.tensor)
        self.nodes: list[gs.Node] = [node]

    def add(self, op: str, inputs: list[gs.Tensor], **attrs: Any) -> None:
        self.append(self.field.node(op, f"{self.name}/{op}", [self.tensor, *inputs], f"{self.name}.{op}", **attrs))

    def append(self, made: gs.Node) -> None:
        self.nodes.append(made)
        self.tensor = made.outputs[0]

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
