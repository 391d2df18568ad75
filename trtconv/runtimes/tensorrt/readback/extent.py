"""How large the results of a layer will be, asked before it is run: sizes that the network computes may be any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from trtconv.runtimes.tensorrt.readback.call import Call
from trtconv.runtimes.tensorrt.readback.records import NotProven

_BYTES = 8
"""Of an element, with what is made on the way."""


def require_room(call: Call, megabytes: float) -> None:
    """Checks that a layer's largest array fits.

    Args:
        call: The layer with its inputs.
        megabytes: How much memory there is for it.

    Raises:
        NotProven: It does not.
    """
    kind = call.layer.kind
    elements = _EXTENTS[kind](call) if kind in _EXTENTS else 0
    if elements * _BYTES / 1e6 > megabytes:
        raise NotProven(f"it alone would take more than {megabytes:.0f} MB of memory")


def _together(call: Call) -> int:
    return math.prod(np.broadcast_shapes(*[value.shape for value in call.inputs if value is not None]))


def _product(call: Call) -> int:
    a, b = call.input(0), call.input(1)
    common = (a.shape[-2] if call["op0"] == "TRANSPOSE" else a.shape[-1]) or 1
    batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2])) if min(a.ndim, b.ndim) > 2 else 1
    return batch * (math.prod(a.shape[-2:]) // common) * (math.prod(b.shape[-2:]) // common)


def _gathered(call: Call) -> int:
    data, indices = call.input(0), call.input(1)
    if call["mode"] == "ELEMENT":
        return int(indices.size)
    if call["mode"] == "ND":
        depth = indices.shape[-1] + call["num_elementwise_dims"]
        return int(math.prod(indices.shape[:-1]) * math.prod(data.shape[depth:]))
    return int(data.size // max(1, data.shape[call["axis"]]) * indices.size)


def _elements(position: int) -> Callable[[Call], int]:
    """Returns what reads sizes from an input, or else from the attribute."""

    def read(call: Call) -> int:
        sizes: Sequence[int] | None = call.ints(position)
        return abs(int(math.prod(sizes if sizes is not None else call.get("shape") or ())))

    return read


def _padded(call: Call) -> int:
    shape = call.input(0).shape
    low, high = (call.get(f"{which}_nd") or call.get(which) or () for which in ("pre_padding", "post_padding"))
    inner = shape[len(shape) - len(low) :]
    padded = (max(size + before + after, 0) for size, before, after in zip(inner, low, high, strict=False))
    return int(math.prod(shape[: len(shape) - len(low)]) * math.prod(padded))


_EXTENTS: dict[str, Callable[[Call], int]] = {
    **dict.fromkeys(("ELEMENTWISE", "SELECT", "PARAMETRIC_RELU"), _together),
    "MATRIX_MULTIPLY": _product,
    "GATHER": _gathered,
    "FILL": _elements(0),
    "SLICE": _elements(2),
    "RESIZE": _elements(1),
    "ONE_HOT": lambda call: call.input(0).size * abs(int(call.input(2).reshape(()))),
    **dict.fromkeys(("PADDING", "CONVOLUTION", "POOLING"), _padded),
}
