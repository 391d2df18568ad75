"""Operators that slide a window or change resolution: convolutions, poolings, Resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtconv.graph import deconv
from trtconv.shapes.lattice.number import ONE, Num, ceil_div, combine, floor_div
from trtconv.shapes.lattice.registry import Inputs, axis_of, given, ints_of, like, normal, operator, shape_of, tensor
from trtconv.shapes.lattice.tensor import Tensor
from trtconv.shapes.lattice.trial import Node, Opaque, Trial

_AXIS_AS_INPUT = 20
"""Opset from which the axis of a DFT is an input, and another one where it is left out."""
_WEIGHT_AT = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "DeformConv": 1}


@operator(*_WEIGHT_AT)
def _conv(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, weight = shape_of(inputs), shape_of(inputs, _WEIGHT_AT[node.op])
    if len(weight) != len(dims) or len(dims) < 3:
        raise trial.fail(f"takes a weight of {len(weight)} dimensions for an input of {len(dims)}")
    group = int(node.attrs.get("group", 1))
    trial.equal(dims[1], weight[1] * group, "takes {0} channels with a weight for {1}")
    kernel = node.attrs.get("kernel_shape") or [n.value for n in weight[2:]]
    if not all(isinstance(k, int) for k in kernel):
        raise Opaque("its kernel size is not known")
    return like(tensor(inputs), [dims[0], weight[0], *_slide(trial, node, dims[2:], kernel)], None)


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    dims = shape_of(inputs)
    kernel = [int(k) for k in node.attrs["kernel_shape"]]
    if len(kernel) != len(dims) - 2:
        raise trial.fail(f"takes batch, channels and {len(kernel)} axes of its window, and is given {len(dims)}")
    shape = [*dims[:2], *_slide(trial, node, dims[2:], kernel)]
    return [like(tensor(inputs), shape), Tensor(shape, None, np.dtype(np.int64))]


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = shape_of(inputs)
    return like(tensor(inputs), [*dims[:2], *[ONE] * (len(dims) - 2)])


def _slide(trial: Trial, node: Node, dims: Sequence[Num], kernel: Sequence[int]) -> list[Num]:
    """Returns the spatial output sizes of a window."""
    rank = len(kernel)
    strides, dilations = (list(node.attrs.get(key) or [1] * rank) for key in ("strides", "dilations"))
    pads = list(node.attrs.get("pads") or [0] * 2 * rank)
    auto = node.attrs.get("auto_pad") or "NOTSET"
    sizes = []
    for axis, dim in enumerate(dims):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            sizes.append(ceil_div(dim, strides[axis]))
            continue
        low, high = (0, 0) if auto == "VALID" else (pads[axis], pads[axis + rank])
        # ONNX Runtime takes a window that is longer than a pooling's input by less than a stride; neither PyTorch nor
        # TensorRT does.
        size = _steps(dim + (low + high - span), strides[axis], bool(node.attrs.get("ceil_mode", 0)), dim + low)
        padded = f" padded by {low + high}" if low + high else ""
        trial.require(at_least_one(size), f"has a window of {span} for size {{0}}{padded} at axis {axis + 2}", dim)
        sizes.append(size)
    return sizes


def at_least_one(size: Num) -> Num:
    """Returns where a size is not empty."""
    return combine(np.greater_equal, size, ONE)


def _steps(reach: Num, stride: int, ceil: bool, last_start: Num) -> Num:
    if stride == 1:
        return reach + 1
    if not ceil:
        return floor_div(reach, Num(stride)) + 1
    count = ceil_div(reach, stride) + 1
    # A window that would start behind the input, in the padding at its end, is left out, as PyTorch does.
    beyond = combine(np.greater_equal, (count - 1) * stride, last_start)
    return count - combine(lambda a, _: np.asarray(a).astype(np.int64), beyond, Num(0))


@operator("ConvTranspose")
def _deconv(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, weight = shape_of(inputs), shape_of(inputs, 1)
    weight_shape = tuple(n.value if isinstance(n.value, int) else None for n in weight)
    geometry = deconv.geometry_of(dict(node.attrs), weight_shape)
    if isinstance(geometry, str):
        raise trial.fail(geometry.replace("{", "").replace("}", ""))
    if len(dims) != geometry.rank + 2 or len(weight) != len(dims):
        raise trial.fail(f"takes a weight of {len(weight)} dimensions for an input of {len(dims)}")
    trial.equal(dims[1], weight[0], "takes {0} channels with a weight for {1}")
    channels = weight[1] * geometry.group
    if geometry.output_shape is not None:
        for axis, count in enumerate(geometry.output_shape):
            stride, dilation = geometry.strides[axis], geometry.dilations[axis]
            full = dims[axis + 2] * stride + ((geometry.kernel[axis] - 1) * dilation + 1 - stride)
            # Whatever output_padding and pads say: as `Geometry.excess_axes`, by the sizes alone.
            trial.at_least(
                full, count - max(stride, dilation) + 1, f"makes {count} elements of {{0}} at axis {axis + 2}"
            )
        return like(tensor(inputs), [dims[0], channels, *(Num(n) for n in geometry.output_shape)])
    window = deconv.crops(geometry, None)
    assert window is not None
    sizes = []
    for axis, crop in enumerate(window):
        span = (geometry.kernel[axis] - 1) * geometry.dilations[axis] + 1
        size = dims[axis + 2] * geometry.strides[axis] + (span - geometry.strides[axis] - crop.begin - crop.end)
        trial.at_least(size, 1, f"leaves {{0}} elements at axis {axis + 2}")
        sizes.append(size)
    return like(tensor(inputs), [dims[0], channels, *sizes])


@operator("STFT")
def _stft(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, step, window = shape_of(inputs), tensor(inputs, 1).ints, given(inputs, 2)
    length = given(inputs, 3)
    frame = [n.value for n in window.shape or ()] if window is not None and window.shape else []
    frame = frame if length is None else length.ints or []
    if not step or len(frame) != 1 or not isinstance(frame[0], int):
        raise Opaque("its window is known only at run time")
    trial.at_least(dims[1], frame[0], f"puts frames of {frame[0]} elements into {{0}}")
    count = floor_div(dims[1] - frame[0], Num(step[0])) + 1
    bins = frame[0] // 2 + 1 if node.attrs.get("onesided", 1) else frame[0]
    return like(tensor(inputs), [dims[0], count, Num(bins), Num(2)])


@operator("DFT")
def _dft(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, length, axis = list(shape_of(inputs)), given(inputs, 1), given(inputs, 2)
    places = [int(node.attrs.get("axis", 1 if node.opset < _AXIS_AS_INPUT else -2))] if axis is None else axis.ints
    one_sided = bool(node.attrs.get("onesided", 0))
    if not places or (one_sided and node.attrs.get("inverse", 0)):
        raise Opaque("its axis is known only at run time, or it is the inverse of one side")
    along = axis_of(trial, places[0], len(dims))
    count = dims[along] if length is None else (length.nums or [Num(None)])[0]
    dims[along] = floor_div(count, Num(2)) + 1 if one_sided else count
    return like(tensor(inputs), [*dims[:-1], Num(2)])


@operator("Resize", "Upsample")
def _resize(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = list(shape_of(inputs))
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Opaque("it keeps the aspect ratio")
    subset = node.attrs.get("axes")
    axes = list(range(len(dims))) if subset is None else [normal(int(a), len(dims)) for a in subset]
    sizes = given(inputs, 3)
    if sizes is not None and (sizes.nums or sizes.data is None):
        nums = sizes.nums
        if nums is None or len(nums) != len(axes):
            raise Opaque("its sizes are not known")
        for axis, size in zip(axes, nums, strict=True):
            dims[axis] = size
    else:
        for axis, scale in zip(axes, _scales(node, inputs, len(axes)), strict=True):
            dims[axis] = _scaled(dims[axis], scale)
    for axis in axes:
        trial.at_least(dims[axis], 1, f"leaves {{0}} elements at axis {axis}")
    return like(tensor(inputs), dims)


def _scales(node: Node, inputs: Inputs, count: int) -> list[Num]:
    if "scales" in node.attrs:
        return [Num(np.float32(s)) for s in node.attrs["scales"]]
    source = given(inputs, 1 if node.opset < 11 or node.op == "Upsample" else 2)
    nums = None if source is None else source.nums
    if nums is None or len(nums) != count:
        raise Opaque("its scales are not known")
    return nums


def _scaled(dim: Num, scale: Num) -> Num:
    """Multiplies in float32 and rounds down, as ONNX Runtime does."""
    if scale.constant and scale.value == 1:
        return dim
    if scale.constant and float(scale.value).is_integer():
        return dim * int(scale.value)

    def multiply(a: Any, b: Any) -> Any:
        return np.floor(np.asarray(a).astype(np.float32) * np.asarray(b).astype(np.float32)).astype(np.int64)

    return combine(multiply, dim, scale)


@operator("GridSample")
def _grid_sample(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, grid = shape_of(inputs), shape_of(inputs, 1)
    trial.equal(dims[0], grid[0], "meets batches of {0} and {1}")
    return like(tensor(inputs), [dims[0], dims[1], *grid[1:-1]])


@operator("AffineGrid")
def _affine_grid(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    size = tensor(inputs, 1).nums
    if size is None:
        raise Opaque("its size is not known")
    return like(tensor(inputs), [size[0], *size[2:], Num(len(size) - 2)])


@operator("RoiAlign", "MaxRoiPool")
def _roi(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims, rois = shape_of(inputs), shape_of(inputs, 1)
    if node.op == "RoiAlign":
        size = [int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1))]
    else:
        size = [int(n) for n in node.attrs["pooled_shape"]]
    return like(tensor(inputs), [rois[0], dims[1], Num(size[0]), Num(size[1])])


@operator("LSTM", "GRU", "RNN")
def _recurrent(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    dims, weight = shape_of(inputs), shape_of(inputs, 1)
    if node.attrs.get("layout", 0):
        raise Opaque("its layout is batch first")
    trial.equal(dims[2], weight[2], "takes {0} features with a weight for {1}")
    directions, hidden = weight[0], shape_of(inputs, 2)[2]
    state = like(tensor(inputs), [directions, dims[1], hidden])
    return [like(tensor(inputs), [dims[0], directions, dims[1], hidden]), state, state]


@operator("CenterCropPad")
def _center_crop_pad(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    dims = list(shape_of(inputs))
    axes = ints_of(node, (), "axes", 0)
    target = tensor(inputs, 1).nums or [Num(None) for _ in range(len(axes or dims))]
    for axis, size in zip(range(len(dims)) if axes is None else axes, target, strict=True):
        dims[axis] = size
    return like(tensor(inputs), dims)
