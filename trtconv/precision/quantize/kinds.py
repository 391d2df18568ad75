"""What layers are quantised to: the numbers of weights and inputs, the layers that take them, and what that needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.quantization import quantize_symmetric, symmetric_scale
from trtconv.precision.quantize.operators import PRODUCTS, weight_axis

_BLOCKS = (128, 64, 32)
"""Weights of int4 that share a scale: the largest that divides the rows. ModelOpt's default is the first."""
_LARGEST_INT4 = 7
_LARGEST_FLOAT8 = 448.0


class Codes(NamedTuple):
    """A quantised weight.

    Args:
        values: The codes.
        scale: Their scales.
        attributes: Of the DequantizeLinear.
    """

    values: NDArray[Any]
    scale: NDArray[np.float32]
    attributes: Mapping[str, int]


Coder = Callable[[NDArray[Any], onnx.NodeProto], Codes]
"""Makes the codes of a weight, for the node that reads it."""


def by_channel(values: NDArray[Any], node: onnx.NodeProto) -> Codes:
    """Returns int8 with a scale for each output channel."""
    axis = weight_axis(node, values.ndim)
    scale = symmetric_scale(values, axis)
    return Codes(quantize_symmetric(values, scale, axis), scale, {"axis": axis})


def in_blocks(values: NDArray[Any], node: onnx.NodeProto) -> Codes:
    """Returns int4 with a scale for each block of rows of an output channel."""
    axis = summed_axis(node)
    size = block_size(values.shape[axis]) or values.shape[axis]
    shape = (*values.shape[:axis], values.shape[axis] // size, size, *values.shape[axis + 1 :])
    blocks = values.reshape(shape)
    scale = np.abs(blocks).max(axis + 1, initial=0.0).astype(np.float32) / np.float32(_LARGEST_INT4)
    scale[scale == 0] = 1.0
    codes = np.clip(np.rint(blocks / np.expand_dims(scale, axis + 1)), -_LARGEST_INT4, _LARGEST_INT4)
    return Codes(codes.reshape(values.shape).astype(ml_dtypes.int4), scale, {"axis": axis, "block_size": size})


def as_float8(values: NDArray[Any], node: onnx.NodeProto) -> Codes:
    """Returns float8 (E4M3) with one scale: its steps are relative, so that channels need none of their own."""
    scale = np.asarray(np.abs(values).max(initial=0.0) / _LARGEST_FLOAT8, np.float32)
    scale = scale if scale else np.asarray(1.0, np.float32)
    return Codes((values / scale).astype(ml_dtypes.float8_e4m3fn), scale, {})


def summed_axis(node: onnx.NodeProto) -> int:
    """Returns the axis of a matrix, the weight of a product, along which products are summed."""
    return 1 - weight_axis(node, 2)


def block_size(rows: int) -> int | None:
    """Returns how many rows share a scale; None where they fill no blocks."""
    return next((size for size in _BLOCKS if rows % size == 0), None)


@frozen
class QuantizationKind:
    """What layers are quantised to.

    Args:
        name: As `--kind` has it.
        coder: Makes the codes of weights.
        type_name: Type of the codes.
        largest: The largest code of an input.
        inputs: Whether inputs of layers are quantised too.
        ops: The layers with weights that are.
        opset: The first one that has what is written.
        methods: How ranges are taken; empty where there are none.
        since: The first TensorRT that takes it; all others than TensorRT do.
    """

    name: str
    coder: Coder
    type_name: str
    largest: float
    inputs: bool
    ops: tuple[str, ...]
    opset: int
    methods: tuple[str, ...]
    since: int

    @property
    def element(self) -> np.dtype[Any]:
        """The type of the codes."""
        dtype: np.dtype[Any] = np.dtype(getattr(np if self.type_name == "int8" else ml_dtypes, self.type_name))
        return dtype

    def require(self, target: Target, method: str, attention: bool = False) -> None:
        """Checks that a kind can be written.

        Args:
            target: What it is for.
            method: How ranges are asked to be taken.
            attention: Whether products of computed matrices are asked for.

        Raises:
            InputError: The target does not take the kind, or the method or those products are of no use to it.
        """
        if target.before(self.since):
            raise InputError(
                f"--kind {self.name} is for TensorRT {self.since} and newer, and TensorRT-RTX; the target is {target}",
                "Use --kind int8, or another --target.",
            )
        if method not in ("auto", *self.methods):
            usual = f"Use {' or '.join(self.methods)}" if self.methods else "It takes no ranges: leave it out"
            raise InputError(f"--method {method} is not for --kind {self.name}", f"{usual}.")
        if attention and not self.inputs:
            able = " or ".join(f"--kind {kind.name}" for kind in KINDS.values() if kind.inputs)
            raise InputError(
                f"--attention is not for --kind {self.name}: products of two computed matrices have no weights",
                f"Leave it out, or use {able}.",
            )

    def reason(self, node: onnx.NodeProto, shape: tuple[int | None, ...]) -> str:
        """Returns why a layer with a constant float32 weight stays in float; empty where it does not.

        Args:
            node: The layer.
            shape: Of its weight.
        """
        if node.op_type not in self.ops:
            return f"--kind {self.name} has no {node.op_type}"
        if self is not INT4_WEIGHTS:
            return ""
        if len(shape) != 2:
            return "blocks of int4 are for matrices"
        rows = shape[summed_axis(node)]
        return "" if rows and block_size(rows) else f"its {rows} rows are no multiple of {_BLOCKS[-1]}"


INT8 = QuantizationKind(
    "int8",
    by_channel,
    "int8",
    127,
    True,
    ("Conv", "ConvTranspose", *PRODUCTS),
    13,
    ("min-max", "percentile", "mse", "entropy"),
    8,
)
FLOAT8 = QuantizationKind(
    "fp8", as_float8, "float8_e4m3fn", _LARGEST_FLOAT8, True, ("Conv", *PRODUCTS), 19, ("min-max", "percentile"), 10
)
INT8_WEIGHTS = QuantizationKind("int8-weights", by_channel, "int8", 127, False, PRODUCTS, 13, (), 10)
INT4_WEIGHTS = QuantizationKind("int4-weights", in_blocks, "int4", _LARGEST_INT4, False, PRODUCTS, 21, (), 10)
KINDS: Mapping[str, QuantizationKind] = {kind.name: kind for kind in (INT8, FLOAT8, INT4_WEIGHTS, INT8_WEIGHTS)}
"""By name."""
