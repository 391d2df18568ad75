"""Transposed convolutions as the whole one, whose window is cut out or extended by zeros, with the bias added last.

ONNX Runtime computes some of them wrongly, or refuses them, by version (measured; CPU):

| what the node has | 1.20, 1.23 | 1.32 |
|---|---|---|
| output_padding not below the stride, which dilation makes legal | wrong | refused |
| output_shape beyond the full result by a stride or more | wrong, two axes and more | refused |
| negative pads | right | refused |
| SAME_* beside output_padding, in the body of a node | wrong size | wrong size |
"""

from __future__ import annotations

from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.runtimes.definition.writing import Writing

_SLICE_WITH_INPUTS = 10
"""Opset from which on Slice takes its numbers as inputs."""


def write_deconvolution(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a ConvTranspose out that ONNX Runtime may not compute as defined."""
    view = Deconv(scope, index)
    geometry = view.geometry
    if isinstance(geometry, str) or not _is_misrun(geometry):
        return False
    if geometry.output_shape is None:
        window = deconv.crops(geometry, None)
    elif writing.opset < _SLICE_WITH_INPUTS:
        window = deconv.crops(geometry, view.sizes)
        if window is None or geometry.excess_axes(view.sizes):
            return False
    else:
        window = None
    full = writing.compute(
        "ConvTranspose",
        *view.inputs[:2],
        strides=list(geometry.strides),
        dilations=list(geometry.dilations),
        group=geometry.group,
        kernel_shape=list(geometry.kernel),
    )
    result = _cut_at_run_time(writing, full, geometry) if window is None else _cut(writing, full, window)
    if view.bias:
        writing.compute("Add", result, writing.reshape(view.bias, [1, -1, *[1] * geometry.rank]))
    writing.finish()
    return True


def _is_misrun(geometry: Geometry) -> bool:
    if geometry.output_shape is not None:
        return True
    if any(more >= stride for more, stride in zip(geometry.output_padding, geometry.strides, strict=True)):
        return True
    if geometry.auto_pad.startswith("SAME"):
        return any(geometry.output_padding)
    return geometry.auto_pad == "NOTSET" and min((*geometry.begin_pads, *geometry.end_pads)) < 0


def _cut(writing: Writing, full: str, window: tuple[Crop, ...]) -> str:
    return writing.pad(full, [0, 0, *(-crop.begin for crop in window)], [0, 0, *(-crop.end for crop in window)])


def _cut_at_run_time(writing: Writing, full: str, geometry: Geometry) -> str:
    """Cuts an output_shape out of the full result: begin = split(max(0, full + output_padding - output_shape)).

    As many zeros as an output_shape may ask for follow the full result (`Geometry.excess_axes`); where it asks for
    more, the window is too short, and ONNX Runtime refuses the Reshape.
    """
    sizes, rank = geometry.output_shape or (), geometry.rank
    rows = zip(geometry.output_padding, geometry.strides, geometry.dilations, strict=True)
    most = [max(extra, stride - 1, dilation - 1) for extra, stride, dilation in rows]
    extended = writing.pad(full, [0] * (rank + 2), [0, 0, *most])
    shape = writing.compute(
        "Slice", writing.compute("Shape", full), writing.constant([2]), writing.constant([rank + 2])
    )
    surplus = writing.compute(
        "Sub", writing.compute("Add", shape, writing.constant(geometry.output_padding)), writing.constant(sizes)
    )
    zero = writing.constant([0])
    # Max takes integers from opset 12 on.
    surplus = writing.compute("Where", writing.compute("Greater", surplus, zero), surplus, zero)
    if geometry.auto_pad != "SAME_UPPER":
        surplus = writing.compute("Add", surplus, writing.constant([1]))
    begin = writing.compute("Div", surplus, writing.constant([2]))
    end = writing.compute("Add", begin, writing.constant(sizes))
    window = writing.compute("Slice", extended, begin, end, writing.constant(range(2, rank + 2)))
    return writing.reshape(window, [0, 0, *sizes])
