"""Hypothesis strategies for `models.Layer`."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from support.onnx_models import BIASES, Layer, full_sizes, window


def ints(rank: int, low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * rank)


@st.composite  # type: ignore[arg-type]
def layers(draw: st.DrawFn, negative: bool = False, **fixed: Any) -> Layer:
    """Layers that ONNX gives a meaning: extra elements fewer than stride or dilation, at least one element left."""
    rank = draw(st.integers(1, 3))
    size = {1: 6, 2: 5, 3: 3}[rank]
    kernel = draw(ints(rank, 1, 5 if rank < 3 else 3))
    strides, dilations = draw(ints(rank, 1, 3)), draw(ints(rank, 1, 3))
    reach = [max(s, d) for s, d in zip(strides, dilations, strict=True)]
    extra = draw(st.one_of(st.none(), st.tuples(*(st.integers(0, r - 1) for r in reach))))
    group, channels = draw(st.sampled_from([(1, (2, 3)), (1, (3, 1)), (2, (2, 2)), (3, (1, 1)), (3, (1, 2))]))
    layer = Layer(
        sizes=draw(ints(rank, 1, size)),
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        output_padding=extra,
        auto_pad=draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])),
        group=group,
        channels=channels,
        bias=draw(st.sampled_from(BIASES)),
        dynamic=draw(st.booleans()),
        spelled=draw(st.booleans()),
        opset=draw(st.sampled_from([13, 17, 21])),
    )
    if layer.auto_pad == "NOTSET":
        layer = dataclasses.replace(layer, pads=draw(st.none() | ints(2 * rank, -2 if negative else 0, 2)))
    if draw(st.integers(0, 2)) == 0:
        shape = tuple(full + draw(st.integers(-3, r - 1)) for full, r in zip(full_sizes(layer), reach, strict=True))
        layer = dataclasses.replace(layer, output_shape=shape, pads=None)
        assume(min(shape) >= 1)
    layer = dataclasses.replace(layer, **fixed)
    # At least one element is asked for, and one of them is the deconvolution's own.
    rows = zip(window(layer), full_sizes(layer), strict=True)
    assume(all(size >= 1 and begin < full and begin + size > 0 for (begin, size), full in rows))
    return layer
