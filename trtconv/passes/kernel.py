"""Where a deconvolution's kernel comes from, and how to put a changed one in its place.

A kernel is an initializer, a Constant, something computed from constants, or a constant behind QuantizeLinear,
DequantizeLinear or Cast nodes. Those act on each element by itself, so spatial zeros may be added to the constant
behind them - as the zero point where the constant is an integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.graph.editor import Field
from trtconv.graph.quantization import along
from trtconv.passes.quantized import read_linear

_PER_ELEMENT = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast", "Identity"})

Grow = Callable[[NDArray[Any], "NDArray[Any] | int"], NDArray[Any]]
"""(weights, what stands for zero) -> larger weights."""


@frozen
class Kernel:
    """A constant kernel.

    Args:
        values: The constant at the root, (C_in, C_out/group, k...).
        zero: What stands for zero in it: 0, or the zero point broadcastable to `values`.
        chain: Nodes from the root to the deconvolution, in order; empty for a plain weight.
    """

    values: NDArray[Any]
    zero: NDArray[Any] | int
    chain: tuple[gs.Node, ...]


def find_kernel(field: Field, tensor: gs.Tensor) -> Kernel | str:
    """Finds the constant behind a deconvolution's weight.

    Returns:
        The kernel, or the reason why it has no constant that zeros could be added to.
    """
    chain: list[gs.Node] = []
    current = tensor
    while current.inputs and _acts_per_element(current.inputs[0]) and field.values(current) is None:
        chain.insert(0, current.inputs[0])
        if not current.inputs[0].inputs:
            break
        current = current.inputs[0].inputs[0]
    values = field.fold(current)
    if values is None:
        return f"its weight {tensor.name!r} is computed at run time"
    if values.ndim < 3:
        return f"its weight {tensor.name!r} has rank {values.ndim}"
    zero = _zero(field, chain, values)
    return zero if isinstance(zero, str) else Kernel(values, zero, tuple(chain))


def _acts_per_element(node: gs.Node) -> bool:
    return node.op in _PER_ELEMENT and (node.domain or "") in ("", "ai.onnx")


def _zero(field: Field, chain: list[gs.Node], values: NDArray[Any]) -> NDArray[Any] | int | str:
    """Returns what stands for zero in the root constant, or why that cannot be said."""
    linears = []
    for node in (n for n in chain if "Linear" in n.op):
        linear = read_linear(field, node)
        if isinstance(linear, str):
            return f"its weight goes through {node.name!r}, and {linear}"
        if linear.scale.size > 1 and linear.axis % values.ndim > 1:
            return f"its weight is quantised along the kernel by {node.name!r}"
        linears.append(linear)
    # In front of a QuantizeLinear stands a real number, behind it (casts aside) what DequantizeLinear reads.
    if not linears or linears[0].quantizes or linears[0].zero_point is None:
        return 0
    return along(linears[0].zero_point, linears[0].axis, values.ndim).astype(values.dtype)


def replace_kernel(field: Field, name: str, kernel: Kernel, grow: Grow) -> tuple[list[gs.Node], gs.Tensor]:
    """Makes a grown kernel beside the old one, which other nodes may share.

    Args:
        field: The field.
        name: Name of the deconvolution; the new tensors are named after it.
        kernel: The old kernel.
        grow: Makes the new values from the old.

    Returns:
        New nodes in order (a copy of the chain), and the tensor that is the new weight.
    """
    tensor: gs.Tensor = field.constant(f"{name}.weight", np.ascontiguousarray(grow(kernel.values, kernel.zero)))
    nodes = []
    for link in kernel.chain:
        node = field.node(link.op, f"{name}/{link.op}", [tensor, *link.inputs[1:]], f"{name}.{link.op}", **link.attrs)
        nodes.append(node)
        tensor = node.outputs[0]
    return nodes, tensor
