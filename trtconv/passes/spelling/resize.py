"""Writes forms of Resize that TensorRT lacks as products with matrices, or as Gather."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import readable
from trtconv.graph.interpolation import (
    Interpolation,
    ResizedAxis,
    coordinates,
    hangs_on_digits,
    lies_halfway,
    misses_borders,
    nearest,
    weights,
)
from trtconv.graph.scope import Scope
from trtconv.graph.types import INTEGERS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_ROI, _SCALES, _SIZES = 1, 2, 3
_COORDINATES_SINCE = 11
"""Opset from which on a Resize has coordinates and a region."""
_MOST_COUNT = 1 << 20
"""Elements of an axis that are looked at one by one."""
_CROP = "tf_crop_and_resize"
_FOR_NEAREST = "tf_half_pixel_for_nn"
"""Types of which TensorRT resizes none, and float32 holds not all."""
_FIELDS = {field.name for field in dataclasses.fields(Interpolation)}


class ResizeByMatrix(Spelling):
    """Writes Resize with antialias, an aspect ratio that is kept, or coordinates that TensorRT lacks as matrices.

    Along one axis a Resize is a product with a matrix that ONNX's coordinates and kernel give, whose sizes are known
    where those of the input are; a nearest one is a Gather. The neighbour below what tf_half_pixel_for_nn means is, at
    any size, the nearest one of half_pixel, which lies half an element before it. A Gather is also written where a
    nearest one has to choose between two elements that are equally near, of which TensorRT takes the one or the other,
    where one lies on the border that it is rounded at, which TensorRT 8.6 computes as beside it, and for integers.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1,1,2,4] x) => (float[1,1,2,2] y) <float[4] s = {1, 1, 1, 0.5}>
        { y = Resize <antialias = 1, mode = "linear"> (x, , s) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1,1,2,4] x) => (float[1,1,2,2] y)
        <float[4,2] w = {0.5, 0, 0.375, 0.125, 0.125, 0.375, 0, 0.5}>
        { y = MatMul (x, w) }
    """

    name = "resize-by-matrix"
    ops = frozenset({"Resize"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        kernel, policy = _read({a.name: readable(a) for a in scope.columns.attributes[index]})
        return _is_lacking(kernel, policy) or kernel.mode == "nearest"

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.opset < _COORDINATES_SINCE:
            raise Unwritable
        kernel, policy = _read(writer.attrs)
        is_integer = writer.scope.dtype(writer.input(0)) in INTEGERS
        if not (is_integer or _is_lacking(kernel, policy)):
            # TensorRT has it; what is not shown of it the proof says.
            return self._write_choices(writer, kernel)
        shape = writer.shape(writer.input(0))
        if self._is_half_pixel(writer, kernel) and not is_integer:
            mode, rounding = "half_pixel", "round_prefer_ceil"
            kernel = dataclasses.replace(kernel, coordinate_transformation_mode=mode, nearest_mode=rounding)
            with contextlib.suppress(Unwritable):
                return self._write_choices(writer, kernel)
            writer.again(writer.node.input, coordinate_transformation_mode=mode, nearest_mode=rounding)
            return f"{_FOR_NEAREST} rounded down written as half_pixel rounded to the nearest"
        axes = self._axes(writer, shape)
        by_scales = kernel.mode == "nearest" and not writer.input(_SIZES)
        if by_scales and any(hangs_on_digits(axis, kernel) or _has_two_scales(axis, kernel) for axis in axes.values()):
            raise Unwritable("which elements are the nearest depends on how its scales are rounded")
        writer("Identity", self._resize(writer, kernel, axes, len(shape)), to=writer.output())
        return _summary_of(kernel, axes)

    def _write_choices(self, writer: Writer, kernel: Interpolation) -> str:
        """Writes it along the axes along which TensorRT may take another element; raises `Unwritable` for none."""
        if kernel.mode != "nearest":
            raise Unwritable
        try:
            shape = writer.shape(writer.input(0))
            axes = self._axes(writer, shape)
            doubts = {number: _is_doubtful(axis, kernel) for number, axis in axes.items()}
        except (Unwritable, ArithmeticError, LookupError, TypeError, ValueError):
            raise Unwritable from None
        if not any(doubts.values()):
            raise Unwritable
        # Of the others it depends on the digits that are computed with.
        sure = {number: axis for number, axis in axes.items() if doubts[number] is not None}
        rest = [axis for number, axis in axes.items() if number not in sure]
        if rest and all(axis.size == axis.count for axis in rest):
            # By itself it would be taken for a copy.
            raise Unwritable
        tensor = self._resize(writer, kernel, sure, len(shape))
        if not rest:
            writer("Identity", tensor, to=writer.output())
        else:
            self._resize_rest(writer, tensor, kernel, sure, len(shape))
        return _summary_of(kernel, sure)

    @staticmethod
    def _is_half_pixel(writer: Writer, kernel: Interpolation) -> bool:
        """Whether it is one of half_pixel that is rounded otherwise: floor(p) is floor((p - 0.5) + 0.5)."""
        is_below = kernel.mode == "nearest" and kernel.nearest_mode == "floor"
        stretches = writer.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        return is_below and stretches and kernel.coordinate_transformation_mode == _FOR_NEAREST

    @staticmethod
    def _resize(writer: Writer, kernel: Interpolation, axes: Mapping[int, ResizedAxis], rank: int) -> str:
        """Writes what resizes along axes; returns the tensor."""
        tensor, dtype = writer.input(0), writer.dtype(writer.input(0))
        if kernel.mode != "nearest" and dtype.kind in "iub":
            raise Unwritable(f"interpolation of {dtype} is rounded in a way that ONNX does not define")
        for number, axis in axes.items():
            if kernel.mode == "nearest":
                tensor = writer("Gather", tensor, nearest(axis, kernel), axis=number)
            else:
                tensor = _times(writer, tensor, weights(axis, kernel).astype(dtype), number, rank)
        is_crop = kernel.coordinate_transformation_mode == _CROP
        return _extrapolated(writer, tensor, axes, rank, dtype) if is_crop else tensor

    @staticmethod
    def _resize_rest(
        writer: Writer, tensor: str, kernel: Interpolation, axes: Mapping[int, ResizedAxis], rank: int
    ) -> None:
        """Writes the Resize along the other axes; along these the tensor has its sizes."""
        inputs: list[str] = [tensor, *writer.node.input[1:]]
        if not writer.input(_SIZES):
            scales = writer.values(_SCALES, "scales").reshape(-1)
            numbers = [number % rank for number in writer.attrs.get("axes", range(rank))]
            inputs[_SCALES] = writer.constant(np.where([number in axes for number in numbers], 1, scales), scales.dtype)
        modes = ("coordinate_transformation_mode", "nearest_mode")
        writer.again(inputs, **{name: getattr(kernel, name) for name in modes})

    def _axes(self, writer: Writer, shape: Sequence[int | None]) -> dict[int, ResizedAxis]:
        """Returns the axes that change, by their numbers."""
        axes = [axis % len(shape) for axis in writer.attrs.get("axes", range(len(shape)))]
        input_sizes = {axis: size for axis in axes if (size := shape[axis]) is not None}
        roi = self._roi(writer, axes)
        if writer.input(_SIZES):
            sizes = self._sizes(writer, axes)
            return self._by_sizes(writer, input_sizes, dict(zip(axes, sizes, strict=True)), roi)
        scales = dict(zip(axes, writer.values(_SCALES, "scales").reshape(-1).tolist(), strict=True))
        crops = bool(roi)
        changed = [axis for axis in axes if scales[axis] != 1 or (crops and roi[axis] != (0.0, 1.0))]
        _require(changed, input_sizes)
        return {
            axis: ResizedAxis(
                input_sizes[axis],
                int(np.float32(scales[axis]) * np.float32(input_sizes[axis])),
                scales[axis],
                *roi.get(axis, ()),
            )
            for axis in changed
        }

    @staticmethod
    def _sizes(writer: Writer, axes: Sequence[int]) -> list[int]:
        """Returns the sizes that are asked for; the output has them unless the aspect ratio is kept."""
        try:
            return [int(size) for size in writer.values(_SIZES, "sizes").reshape(-1)]
        except Unwritable:
            if writer.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
                raise
        after = writer.sizes(writer.output())
        return [after[axis] for axis in axes]

    @staticmethod
    def _roi(writer: Writer, axes: Sequence[int]) -> Mapping[int, tuple[float, float]]:
        if writer.attrs.get("coordinate_transformation_mode") != _CROP:
            return {}
        values = writer.values(_ROI, "regions").reshape(2, -1).tolist()
        return dict(zip(axes, zip(*values, strict=True), strict=True))

    @staticmethod
    def _by_sizes(
        writer: Writer, input_sizes: Mapping[int, int], sizes: Mapping[int, int], roi: Mapping[int, tuple[float, float]]
    ) -> dict[int, ResizedAxis]:
        policy = writer.attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            _require(sizes, input_sizes)
            scale = (min if policy == "not_larger" else max)(sizes[axis] / input_sizes[axis] for axis in sizes)
            return {
                axis: ResizedAxis(size, int(scale * size + 0.5), scale, *roi.get(axis, ()))
                for axis, size in input_sizes.items()
            }
        changed = [axis for axis in sizes if input_sizes.get(axis) != sizes[axis] or roi.get(axis, (0, 1)) != (0, 1)]
        _require(changed, input_sizes)
        return {
            axis: ResizedAxis(input_sizes[axis], sizes[axis], sizes[axis] / input_sizes[axis], *roi.get(axis, ()))
            for axis in changed
        }


def _read(attributes: Mapping[str, Any]) -> tuple[Interpolation, str]:
    """Returns how a Resize interpolates, and what it does of the aspect ratio."""
    kernel = Interpolation(**{key: value for key, value in attributes.items() if key in _FIELDS})
    return kernel, attributes.get("keep_aspect_ratio_policy", "stretch")


def _is_doubtful(axis: ResizedAxis, kernel: Interpolation) -> bool | None:
    """Whether TensorRT may take another element along an axis; None where that depends on digits."""
    if not 0 < axis.count <= _MOST_COUNT or axis.size < 1:
        return False
    if _has_two_scales(axis, kernel):
        return None
    if kernel.chooses:
        return lies_halfway(axis, kernel.coordinate_transformation_mode)
    return misses_borders(axis, kernel)


def _has_two_scales(axis: ResizedAxis, kernel: Interpolation) -> bool:
    """Whether elements hang on whether a length counts as the scale makes it, or as that is rounded; and what keeps its
    size is copied, or is not."""
    mode = kernel.coordinate_transformation_mode
    hangs = mode == "align_corners" or (mode == "pytorch_half_pixel" and axis.count == 1) or axis.size == axis.count
    return hangs and axis.size > 0 and axis.scale != axis.count / axis.size


def _summary_of(kernel: Interpolation, axes: Mapping[int, ResizedAxis]) -> str:
    return f"Resize written as {'Gather' if kernel.mode == 'nearest' else 'MatMul'} along axes {list(axes)}"


def _is_lacking(kernel: Interpolation, policy: str) -> bool:
    """Whether TensorRT lacks it."""
    mode = kernel.coordinate_transformation_mode
    if mode in (_CROP, "half_pixel_symmetric") or kernel.antialias or policy != "stretch":
        return True
    return mode == _FOR_NEAREST and kernel.mode == "nearest" and kernel.nearest_mode != "round_prefer_floor"


def _require(axes: Any, input_sizes: Mapping[int, int]) -> None:
    for axis in axes:
        if axis not in input_sizes:
            raise Unwritable(f"the size of axis {axis}, which it resizes, is known only at run time")


def _times(writer: Writer, name: str, matrix: Any, axis: int, rank: int) -> str:
    """Multiplies a tensor with a matrix along an axis."""
    if axis == rank - 1:
        return writer("MatMul", name, np.ascontiguousarray(matrix.T))
    if axis == rank - 2:
        return writer("MatMul", matrix, name)
    order = [*(number for number in range(rank) if number != axis), axis]
    moved = writer("MatMul", writer("Transpose", name, perm=order), np.ascontiguousarray(matrix.T))
    return writer("Transpose", moved, perm=np.argsort(order).tolist())


def _extrapolated(writer: Writer, name: str, axes: Mapping[int, ResizedAxis], rank: int, dtype: Any) -> str:
    """Puts the extrapolation value where an output lies outside the input."""
    value = np.array(writer.attrs.get("extrapolation_value", 0.0), dtype)
    for number, axis in axes.items():
        at = coordinates(axis, _CROP)
        outside = (at < 0) | (at > axis.size - 1)
        if outside.any():
            shape = [-1 if position == number else 1 for position in range(rank)]
            name = writer("Where", outside.reshape(shape), value, name)
    return name
