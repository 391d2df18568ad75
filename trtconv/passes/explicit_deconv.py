"""Makes every ConvTranspose say by pads alone what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry
from trtconv.graph.editor import Field
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.deconv_forms import FORMS, Site, Tail, asked_for, in_kernel, pads_of, set_pads
from trtconv.passes.kernel import find_kernel

Chooser = Callable[[Deconv, Site, str], str]
"""(node as it stands, the same opened, name of the usual form) -> name of a form."""
_MANY_CHANNELS = 128
_LARGER, _LARGER_QUANTIZED = 1.6, 1.5
"""How many times its taps a larger kernel may have before a longer input is faster."""


def chooser_of(forms: Mapping[str, str]) -> Chooser:
    """Returns what gives nodes the forms that were chosen for them, by their names, and the others the usual one."""
    return lambda view, site, usual: forms.get(view.node.name, usual) if forms.get(view.node.name) in FORMS else usual


class MakeDeconvExplicit(NodePass):
    """Turns auto_pad, output_shape and output_padding of ConvTranspose into explicit pads.

    What the pads cannot say - output_padding beyond the end pad, negative pads - takes one of the forms of
    `deconv_forms`: whichever TensorRT runs fastest, as far as is known (see `_usual`). An output_shape on sizes known
    only at run time becomes a Slice.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,2,h,w] x) => (float[n,2,p,q] y) <float[2,2,3,3] w = {
          1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2,h,w] x) => (float[n, 2,p,q] y)
        <float[2, 2, 4, 4] weight = {1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0, 0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8,
            9, 0, 0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0, 0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0, 0,
            0, 0, 0}>
        {
          y = ConvTranspose <strides = [2, 2], kernel_shape = [4, 4], pads = [0, 0, 0, 0]> (x, weight)
        }
    Args:
        in_half: Whether the engine computes float32 layers in a type of 16 or 8 bits.
        choose: Chooses the form of a node; None: as `_usual` does.
    """

    name = "make-deconv-explicit"
    fixes = ("TC101", "TC102", "TC103", "TC106", "TC107")
    ops = frozenset({"ConvTranspose"})
    looks_around = False

    def __init__(self, *, in_half: bool = False, choose: Chooser | None = None) -> None:
        self.in_half = in_half
        self._choose = choose

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
            set_pads(node, geometry.kernel, window)
            field.replace(node, [node])
            return f"{asked_for(geometry)} written as pads {pads_of(window)}"
        site = Site(field, node, geometry, window, find_kernel(field, node.inputs[1]))
        edit = FORMS[self._form(target, view, site)](site)
        # The larger kernel is always possible, but for one that is no constant.
        return edit if isinstance(edit, str) or isinstance(site.kernel, str) else in_kernel(site)

    def _form(self, target: Target, view: Deconv, site: Site) -> str:
        usual = self._usual(target, site)
        return usual if self._choose is None or isinstance(site.kernel, str) else self._choose(view, site, usual)

    def _usual(self, target: Target, site: Site) -> str:
        """Returns the form that is the fastest more often than not.

        Time over that of the raw node on TensorRT 8.6 (bench/results/gpu-remedies-8.6.json, gpu-candidates-8.6.json,
        gpu-tune-8.6.json):

        kernel: 0.58 to 0.83 in float16, 0.31 to 0.57 in int8, but up to 1.4 in float32 (1.9 without TF32), where a
            larger kernel costs what its size says. TensorRT-RTX, whose layers could not be timed, gets it too: one
            layer.
        input: 0.70 to 1.0 in float32. The only way for a kernel that is no constant. In int8, between quantisers, 3 to
            18 % faster than the kernel from 128 input channels on, and 9 to 12 % slower with 64, or with 5x5 taps.
        input-conv: in float16 6 to 31 % faster than the kernel with 2x2 and 3x3 taps and 128 input channels or more;
            a layer more, which small ones feel. With 5x5 taps, of which the larger kernel has 1.44 times as many, 10 %
            slower; with 4x4 Pad was 16 % slower, and this form was not measured.
        behind: 1.0; for depthwise kernels, of which the others make 1.07 and 1.15.
        """
        kernel = site.kernel
        if isinstance(kernel, str):
            return "input"
        if target.family != "tensorrt":
            return "kernel"
        channels_in, channels_of_group = kernel.values.shape[:2]
        # What was measured: images, in one group.
        is_plain = site.geometry.rank == 2 and site.geometry.group == 1
        is_wide = target.before(9) and is_plain and channels_in >= _MANY_CHANNELS and _costs_much(site)
        if site.is_quantized:
            return "input" if is_wide else "kernel"
        if channels_of_group == 1 and site.geometry.group == channels_in > 1:
            return "behind"
        if not self.in_half and kernel.values.dtype.itemsize == 4:
            return "input"
        return "input-conv" if is_wide else "kernel"


def _costs_much(site: Site) -> bool:
    """Returns whether zeros in the kernel make it so many times as large that a longer input is faster."""
    folding = deconv.fold(site.geometry, site.window)
    rows = zip(folding.low, site.geometry.kernel, folding.high, strict=True)
    growth = math.prod((low + taps + high) / taps for low, taps, high in rows)
    return growth > (_LARGER_QUANTIZED if site.is_quantized else _LARGER)


def _slice_at_run_time(field: Field, node: gs.Node, geometry: Geometry) -> str | Refusal:
    """Cuts the asked output_shape out of the full result, whose size only the run time knows.

    begin = split(max(0, full + output_padding - size)); zeros are padded on where begin + size exceeds full.
    """
    if field.model.opset < 12:
        return Refusal(f"output_shape on dynamic sizes needs opset 12 or newer, the model has {field.model.opset}")
    assert geometry.output_shape is not None
    rank, name = geometry.rank, node.name or "ConvTranspose"
    zeros = [Crop(0, 0)] * rank
    nodes: list[gs.Node] = []

    def ints(label: str, *values: int) -> gs.Tensor:
        return field.constant(f"{name}.{label}", np.array(values, np.int64))

    def compute(op: str, *inputs: gs.Tensor, **attrs: Any) -> gs.Tensor:
        nodes.append(field.node(op, f"{name}/{op}", list(inputs), f"{name}.{op}", **attrs))
        return nodes[-1].outputs[0]

    tail = Tail(field, node, field.variable(f"{name}.full"))
    set_pads(node, geometry.kernel, zeros)
    zero, size = ints("zero", 0), ints("output_shape", *geometry.output_shape)
    full = compute("Slice", compute("Shape", tail.tensor), ints("first", 2), ints("last", rank + 2))
    surplus = compute("Max", compute("Sub", compute("Add", full, ints("extra", *geometry.output_padding)), size), zero)
    if geometry.auto_pad != "SAME_UPPER":
        surplus = compute("Add", surplus, ints("one", 1))
    begin = compute("Div", surplus, ints("two", 2))
    end = compute("Add", begin, size)
    lacking = compute("Max", compute("Sub", end, full), zero)
    fill = compute("Concat", ints("before", *[0] * (rank + 4)), lacking, axis=0)
    tail.nodes.extend(nodes)
    tail.add("Pad", [fill])
    tail.add("Slice", [begin, end, ints("axes", *range(2, rank + 2))])
    # The node says its size and a Slice to computed ends does not: what follows would be seen with other eyes.
    field.keep_type(tail.output)
    tail.finish()
    return f"{asked_for(geometry)} on dynamic sizes cut out of the full result by a Slice"
