"""How much work a network is at some sizes: an estimate from its shapes, in bytes that a GPU moves in the same time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.shapes.lattice import Sizes, Tensor, Trial
from trtconv.shapes.lattice.trial import Node

_OPERATIONS_PER_BYTE = 100.0
"""Of a GPU with tensor cores: an A100 has 156 TFLOP/s of TF32 and 1.5 TB/s, an H100 495 and 3.35."""
_LEAST_BYTES = 2e6
"""What a kernel takes beside its work: about a microsecond of such a GPU."""
_POINTWISE = (
    "Relu LeakyRelu Sigmoid Tanh Clip Elu Selu Softplus HardSigmoid HardSwish Gelu Mish PRelu BatchNormalization Add "
    "Sub Mul Div Erf Cast QuantizeLinear DequantizeLinear"
)
_VIEWS = "Identity Dropout Constant Shape Reshape Flatten Squeeze Unsqueeze"
_FUSED = frozenset(f"{_POINTWISE} {_VIEWS}".split())
"""Operators that run as part of another kernel, or not at all."""

Amounts = NDArray[np.float64]


def work(sizes: Sizes, points: Sequence[Mapping[str, int]]) -> Amounts:
    """Estimates the work of one inference at some sizes.

    Args:
        sizes: The network.
        points: Sizes of every free dimension.

    Returns:
        Of each point what all kernels together take, above 0; nodes whose sizes are not known take the least.
    """
    trial = sizes.run(points, keep=True)
    total = np.full(len(points), _LEAST_BYTES)
    for node in sizes.runner.program.nodes:
        if node.op not in _FUSED:
            total = total + _LEAST_BYTES + _node(trial, node)
    return total


def _node(trial: Trial, node: Node) -> Amounts:
    moved = np.zeros(trial.rows)
    for name in (*node.inputs, *node.outputs):
        tensor = trial.tensors.get(name)
        moved = moved + (0 if tensor is None else _elements(trial, tensor) * _item_bytes(tensor))
    return np.maximum(moved, _operations(trial, node) / _OPERATIONS_PER_BYTE)


def _operations(trial: Trial, node: Node) -> Amounts:
    """Returns the multiplications and additions of operators with weights, and of products; 0 of others."""
    tensors = [trial.tensors.get(name) for name in node.inputs]
    shapes = [None if tensor is None or tensor.shape is None else tensor.shape for tensor in tensors]
    nothing = np.zeros(trial.rows)
    if len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return nothing
    if node.op in ("MatMul", "Gemm"):
        inner = shapes[0][0 if node.attrs.get("transA") else -1] if shapes[0] else None
        return (
            2 * _of(trial, node.outputs[0]) * (np.asarray(inner.value) if inner is not None and inner.is_known else 1)
        )
    if node.op in ("Conv", "ConvTranspose"):
        # Every element of the result, of a deconvolution's input, takes a product with each weight of its channel.
        weights = math.prod(int(n.value) if n.constant else 1 for n in shapes[1][1:])
        return 2.0 * _of(trial, node.inputs[0] if node.op == "ConvTranspose" else node.outputs[0]) * weights
    if node.op in ("LSTM", "GRU", "RNN"):
        weights = sum(math.prod(int(n.value) for n in s) for s in shapes[1:3] if s and all(n.constant for n in s))
        steps = [np.asarray(n.value, np.float64) for n in shapes[0][:2] if n.is_known]
        return 2.0 * weights * math.prod(steps, start=nothing + 1)
    return nothing


def _of(trial: Trial, name: str) -> Amounts:
    tensor = trial.tensors.get(name)
    return np.zeros(trial.rows) if tensor is None else _elements(trial, tensor)


def _elements(trial: Trial, tensor: Tensor) -> Amounts:
    count = tensor.elements
    return np.zeros(trial.rows) if count is None else np.ones(trial.rows) * count


def _item_bytes(tensor: Tensor) -> int:
    return 4 if tensor.dtype is None else tensor.dtype.itemsize
