"""Computes long one-dimensional transposed convolutions as the Conv that makes all samples of a stride at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.deconv import Crop, Geometry, crops
from trtconv.graph.editor import Field
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes.base import NodePass
from trtconv.passes.kernel import Kernel, find_kernel, replace_kernel

_FEWEST_TAPS, _FEWEST_INPUTS, _MOST_OUTPUTS, _MOST_BLOCKS = 512, 64, 2, 8
_HALF = ("float16", "bfloat16")
_SLICE_OF_INPUTS = 10
"""Opset from which on the ends of a Slice are inputs."""


class OverlapAdd(NodePass):
    """Makes the long 1-D ConvTranspose of an inverse Fourier transform or a vocoder a Conv over overlapping frames.

    A kernel of m strides adds m frames into each stride of the result: a Conv of m taps whose output channels are the
    samples of a stride, then a Transpose and a Reshape. On TensorRT 8.6 in float16 1026 -> 1 channels, kernel 1024,
    stride 256, 400 frames take 17.4 microseconds in this way and 32.1 as they are, 514 -> 2 channels, kernel 512,
    stride 128, 800 frames 13.9 and 30.2, 64 -> 1 channels 8.6 and 9.8; in float32 the first takes 89 and 39
    (bench/results/gpu-overlap-8.6.json). So only layers computed in float16, with so few outputs and so many inputs
    and taps, are changed.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float16[1,64,3] x) => (float16[1,1,1024] y) <int64[3] shape = {64, 1, 512}>
        { f = ConstantOfShape <value = float[1] {0.5}> (shape)  w = Cast <to = 10> (f)
          y = ConvTranspose <strides = [256]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float16[1,64,3] x) => (float16[1,1,1024] y)
        <int64[3] shape = {256, 64, 2}, int64[4] split = {0, 1, 256, -1}, int64[3] join = {0, 1, -1}>
        { f = ConstantOfShape <value = float[1] {0.5}> (shape)  w = Cast <to = 10> (f)
          a = Conv <pads = [1,1]> (x, w)  b = Reshape (a, split)
          c = Transpose <perm = [0,1,3,2]> (b)  y = Reshape (c, join) }
    Args:
        in_half: Whether the engine computes float32 layers in a type of 16 bits.
        measured: Whether layers unlike those that were measured are left alone.
        typed_nodes: Names of nodes that stay as they are: a type of their own is asked for them by that name.
    """

    name = "overlap-add"
    ops = frozenset({"ConvTranspose"})
    looks_around = False

    def __init__(self, *, in_half: bool = False, measured: bool = True, typed_nodes: Collection[str] = ()) -> None:
        self._in_half = in_half
        self._measured = measured
        self._typed_nodes = frozenset(typed_nodes)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        if not target.before(9) or scope.columns.nodes[index].name in self._typed_nodes:
            return False
        geometry = Deconv(scope, index).geometry
        least = _FEWEST_TAPS if self._measured else 1
        return isinstance(geometry, Geometry) and geometry.rank == 1 and geometry.kernel[0] >= least

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        geometry = Deconv(field.scope, field.index(node)).geometry
        kernel = find_kernel(field, node.inputs[1])
        bias = node.inputs[2] if len(node.inputs) > 2 and not node.inputs[2].is_empty() else None
        if not isinstance(geometry, Geometry) or isinstance(kernel, str) or not self._suits(geometry, kernel):
            return None
        # A kernel kept in half and cast to float is computed with in float.
        types = (*_HALF, "float32") if self._in_half else _HALF
        if (field.dtype(node.inputs[1]) or str(kernel.values.dtype)) not in types:
            return None
        window = crops(geometry, None)
        added = None if bias is None else field.fold(bias)
        if window is None or window[0].begin < 0:
            return None
        # One that does not fit would be repeated into one that does not fit either, with other sizes.
        if bias is not None and (added is None or added.shape != kernel.values.shape[1:2]):
            return None
        if field.model.opset < _SLICE_OF_INPUTS:
            return None
        return _write(field, node, geometry, window[0], kernel, added)

    def _suits(self, geometry: Geometry, kernel: Kernel) -> bool:
        if geometry.group > 1 or geometry.dilations != (1,) or any("Linear" in link.op for link in kernel.chain):
            return False
        (taps,), (stride,), (inputs, outputs) = geometry.kernel, geometry.strides, kernel.values.shape[:2]
        measured = inputs >= _FEWEST_INPUTS and outputs <= _MOST_OUTPUTS and 2 * stride <= taps <= _MOST_BLOCKS * stride
        return measured or not self._measured


def _write(
    field: Field, node: gs.Node, geometry: Geometry, crop: Crop, kernel: Kernel, bias: NDArray[Any] | None
) -> str:
    (taps,), (stride,), outputs = geometry.kernel, geometry.strides, kernel.values.shape[1]
    # Room for the zeros of an output_padding beyond the kernel's end too.
    blocks = -(-(taps + max(0, -crop.end)) // stride)
    name = node.name or "ConvTranspose"

    def ints(label: str, *values: int) -> gs.Tensor:
        return field.constant(f"{name}.{label}", np.array(values, np.int64))

    nodes, weight = replace_kernel(field, name, kernel, lambda w, zero: frames_kernel(w, stride, blocks))
    inputs = [node.inputs[0], weight]
    if bias is not None:
        inputs.append(field.constant(f"{name}.bias", np.repeat(bias, stride)))

    def then(op: str, tensors: list[gs.Tensor], label: str, **attrs: Any) -> gs.Tensor:
        nodes.append(field.node(op, f"{name}/{label}", tensors, f"{name}.{label}", **attrs))
        return nodes[-1].outputs[0]

    tensor = then("Conv", inputs, "frames", kernel_shape=[blocks], pads=[blocks - 1] * 2)
    tensor = then("Reshape", [tensor, ints("split", 0, outputs, stride, -1)], "samples")
    tensor = then("Transpose", [tensor], "in_order", perm=[0, 1, 3, 2])
    tensor = then("Reshape", [tensor, ints("join", 0, outputs, -1)], "joined")
    surplus = blocks * stride - taps + crop.end
    if crop.begin or surplus:
        end = -surplus if surplus else np.iinfo(np.int64).max
        then("Slice", [tensor, ints("first", crop.begin), ints("last", end), ints("axis", 2)], "cut")
    nodes[-1].outputs.clear()
    nodes[-1].outputs.append(node.outputs[0])
    # The Slice does not say what the node did: its result's size.
    field.keep_type(node.outputs[0])
    node.outputs.clear()
    field.replace(node, nodes)
    return f"{taps} taps with stride {stride} computed as a Conv over {blocks} frames, and its samples put in order"


def frames_kernel(weights: NDArray[Any], stride: int, blocks: int) -> NDArray[Any]:
    """Returns the kernel of the Conv that makes all samples of a stride at once.

    Args:
        weights: Of the transposed convolution, (inputs, outputs, taps).
        stride: Its stride, in samples.
        blocks: Strides that the kernel reaches over, rounded up.

    Returns:
        (outputs * stride, inputs, blocks): sample s of output o is channel o * stride + s, and a tap that was b strides
        from the kernel's begin meets the input b frames before.
    """
    inputs, outputs, taps = weights.shape
    padded = np.zeros((inputs, outputs, blocks * stride), weights.dtype)
    padded[:, :, :taps] = weights
    split = padded.reshape(inputs, outputs, blocks, stride)[:, :, ::-1].transpose(1, 3, 0, 2)
    return np.ascontiguousarray(split.reshape(outputs * stride, inputs, blocks))
