"""Rounding and clipping as QuantizeLinear does them, in operators that every opset with quantisers has."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.graph.editor import Field

ROUND_OPSET = 11
"""ONNX has Round from here on, and Clip takes its limits as inputs."""
_TIE = 2.0**-23
"""Times a half: more than nothing, and no more than lies between a half and the float32 below it."""


def round_clipped(
    field: Field,
    name: str,
    source: gs.Tensor,
    limits: tuple[NDArray[np.float32], NDArray[np.float32]],
    output: gs.Tensor,
) -> list[gs.Node]:
    """Returns nodes that clip to integers and round to the nearest one, to the even one of two.

    For opset 10, which has no Round; the same float32 as Round and then Clip give, for limits below 2**22. It takes
    Floor and Ceil, since sums that round by what float32 cannot hold (x + 1.5 * 2**23 - 1.5 * 2**23) may be folded by
    a builder.

    Args:
        field: Where the nodes go.
        name: What their names begin with.
        source: The tensor.
        limits: The lowest and the highest result, scalars or shaped to broadcast.
        output: The tensor that they make.
    """
    nodes: list[gs.Node] = []

    def add(op: str, *inputs: gs.Tensor | float, into: gs.Tensor | None = None, **attrs: float) -> gs.Tensor:
        tensors = [
            value if isinstance(value, gs.Tensor) else field.constant(f"{name}.number", np.array(value, np.float32))
            for value in inputs
        ]
        label = f"{name}/{op}"
        nodes.append(field.node(op, label, tensors, f"{name}.{op.lower()}" if into is None else into, **attrs))
        return nodes[-1].outputs[0]

    low, high = limits
    if low.ndim == 0:
        clipped = add("Clip", source, min=float(low), max=float(high))
    else:
        capped = add("Min", source, field.constant(f"{name}.high", high))
        clipped = add("Max", capped, field.constant(f"{name}.low", low))
    floor = add("Floor", clipped)
    rest = add("Sub", clipped, floor)
    halved = add("Mul", floor, 0.5)
    # A half for odd numbers, which a tie lifts to the even one above.
    odd = add("Sub", halved, add("Floor", halved))
    lifted = add("Add", add("Sub", rest, 0.5), add("Mul", odd, _TIE))
    add("Add", floor, add("Ceil", lifted), into=output)
    return nodes
