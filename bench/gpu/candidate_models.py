"""The models of candidates.py: exact ways to return output beyond the end of a deconvolution.

Weights are small integers that repeat along the input channels, so that the archive is small; all values are multiples
of powers of two, so that ONNX Runtime's float32 has to return the same bits for every way.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from candidates import feed
from nets import Net, run_onnx
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Shape:
    """One deconvolution; every spatial axis is the same.

    Args:
        pads: Begin and end.
        extra: output_padding.
    """

    channels: tuple[int, int]
    kernel: int
    stride: int
    pads: tuple[int, int]
    extra: int
    size: int
    batch: int
    rank: int = 2
    group: int = 1

    @property
    def missing(self) -> int:
        """Elements beyond the end of the full result."""
        return max(0, self.extra - self.pads[1])


SHAPES = {
    "128-64-k3-s2-96-b2": Shape((128, 64), 3, 2, (0, 0), 1, 96, 2),
    "320-160-k2-s2-48-b1": Shape((320, 160), 2, 2, (0, 0), 1, 48, 1),
    "512-512-k3-s2-16-b8": Shape((512, 512), 3, 2, (0, 0), 1, 16, 8),
    "48-20-k3-s2-64-b2": Shape((48, 20), 3, 2, (0, 0), 1, 64, 2),
    "64-64-k4-s2-p1+0-128-b1": Shape((64, 64), 4, 2, (1, 0), 1, 128, 1),
    "64-32-k4-s4-op2-40-b2": Shape((64, 32), 4, 4, (0, 0), 2, 40, 2),
    "256-128-k4-s2-1d-2048-b4": Shape((256, 128), 4, 2, (1, 0), 1, 2048, 4, 1),
    "64-32-k2-s2-3d-16-b1": Shape((64, 32), 2, 2, (0, 0), 1, 16, 1, 3),
}
KINDS = ("fp16", "int8")


class Sketch:
    """A layer in the making.

    Args:
        shape: The layer.
        quantized: Whether it stands between quantisers.
        between: Whether 1x1 convolutions from and to 16 channels stand around it.
    """

    def __init__(self, shape: Shape, quantized: bool, between: bool = False) -> None:
        self.net = Net()
        self.shape = shape
        self.rank = shape.rank
        self.quantized = quantized
        random = np.random.default_rng(3)
        c_in, c_out = shape.channels
        block = random.integers(-8, 9, (16, c_out // shape.group, *[shape.kernel] * shape.rank))
        self.weights = (np.resize(block, (c_in, *block.shape[1:])) / 8).astype(np.float32)
        self.bias = (random.integers(-64, 65, c_out) / 16).astype(np.float32)
        self.between = between
        dims = [shape.batch, 16 if between else c_in, *[shape.size] * shape.rank]
        self.x = self.requantized(self.net.input("x", feed(dims)), 1 / 16)
        if between:
            first = (random.integers(-8, 9, (c_in, 16, *self.full(1))) / 8).astype(np.float32)
            self.x = self.node("Conv", self.x, self.weight(first, 0), kernel_shape=self.full(1))
        # About four standard deviations of the result.
        self.out_scale = 2.0 ** round(
            math.log2(40 * math.sqrt(c_in * (shape.kernel / shape.stride) ** shape.rank) / 127)
        )

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node."""
        return self.net.node(op, inputs, **attrs)

    def ints(self, *values: int) -> str:
        """Adds an int64 constant."""
        return self.const(np.array(values, np.int64))

    def const(self, values: Any) -> str:
        """Adds a constant."""
        return self.net.constant(f"c{next(_NUMBERS)}", values)

    def requantized(self, tensor: str, scale: float) -> str:
        """Sends a tensor through a quantiser and back, in an int8 layer."""
        if not self.quantized:
            return tensor
        names = [self.const(np.float32(scale)), self.const(np.int8(0))]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", tensor, *names), *names)

    def weight(self, values: Array, axis: int = 1) -> str:
        """Adds a kernel, with a scale per channel in an int8 layer."""
        name = self.const(values)
        if not self.quantized:
            return name
        scales = self.const(np.full(values.shape[axis], 1 / 8, np.float32))
        zeros = self.const(np.zeros(values.shape[axis], np.int8))
        quantized = self.node("QuantizeLinear", name, scales, zeros, axis=axis)
        return self.node("DequantizeLinear", quantized, scales, zeros, axis=axis)

    def deconv(self, x: str, weights: Array, begin: list[int], end: list[int], bias: Array | None, **attrs: Any) -> str:
        """Adds a deconvolution."""
        attrs = {
            "kernel_shape": list(weights.shape[2:]),
            "strides": [self.shape.stride] * self.rank,
            "pads": [*begin, *end],
            "group": self.shape.group,
        } | attrs
        inputs = [x, self.weight(weights)] + ([] if bias is None else [self.const(bias)])
        return self.node("ConvTranspose", *inputs, **attrs)

    def finish(self, tensor: str) -> onnx.ModelProto:
        """Adds what follows the layer, and returns the model."""
        if not self.quantized and not self.between:
            return self.net.model(self.node("Relu", tensor))
        c_out = self.shape.channels[1]
        after = (np.random.default_rng(4).integers(-8, 9, (64, c_out, *[1] * self.rank)) / 8).astype(np.float32)
        tensor = self.requantized(tensor, self.out_scale)
        return self.net.model(self.node("Conv", tensor, self.weight(after, 0), kernel_shape=[1] * self.rank))

    def full(self, value: int) -> list[int]:
        """Returns one entry an axis."""
        return [value] * self.rank

    def wide(self, values: Array) -> Array:
        """Returns values a channel as (C, 1, ...)."""
        return values.reshape([-1] + [1] * self.rank)


_NUMBERS = itertools.count()
Way = Callable[[Sketch], "str | None"]


def raw(s: Sketch) -> str:
    begin, end = s.shape.pads
    return s.deconv(s.x, s.weights, s.full(begin), s.full(end), s.bias, output_padding=s.full(s.shape.extra))


def bound(s: Sketch) -> str:
    begin, end = s.shape.pads
    return s.deconv(s.x, s.weights, s.full(begin), s.full(end), s.bias)


def grown(
    taps: Callable[[Shape, int], tuple[int, int]] = lambda shape, axis: (0, shape.missing),
    zeros: Callable[[Shape, int], int] = lambda shape, axis: 0,
    by: str = "pad",
    channels: int = 1,
    channels_in: int = 1,
) -> Way:
    """Returns the way that puts zeros into the kernel (before and behind, by axis) and behind the input."""

    def way(s: Sketch) -> str | None:
        shape, axes = s.shape, range(s.rank)
        kernel, inputs = [taps(shape, a) for a in axes], [zeros(shape, a) for a in axes]
        begin = [shape.pads[0] + low for low, _ in kernel]
        end = [
            shape.pads[1] - shape.extra + high + n * shape.stride for (_, high), n in zip(kernel, inputs, strict=True)
        ]
        more = -shape.channels[1] % channels
        more_in = -shape.channels[0] % channels_in
        if min(begin) < 0 or min(end) < 0 or (channels > 1 and not more) or (channels_in > 1 and not more_in):
            return None
        weights = np.pad(s.weights, [(0, more_in), (0, more), *kernel])
        x = longer(s, inputs, by, more_in) if any(inputs) or more_in else s.x
        result = s.deconv(x, weights, begin, end, np.pad(s.bias, (0, more)))
        if more:
            result = s.requantized(result, s.out_scale)
            result = s.node("Slice", result, s.ints(0), s.ints(shape.channels[1]), s.ints(1))
        return result

    return way


def longer(s: Sketch, zeros: list[int], by: str, more_in: int = 0) -> str:
    """Returns the input with zeros behind."""
    if by == "pad":
        result = s.node("Pad", s.x, s.ints(*[0] * (s.rank + 3), more_in, *zeros))
    elif by == "conv":
        ones = np.ones((s.shape.channels[0], 1, *s.full(1)), np.float32)
        attrs: dict[str, Any] = {"kernel_shape": s.full(1), "pads": [*s.full(0), *zeros]}
        result = s.node("Conv", s.x, s.weight(ones, 0), group=s.shape.channels[0], **attrs)
    else:
        result, dims = s.x, [s.shape.batch, s.shape.channels[0], *s.full(s.shape.size)]
        for axis, count in reversed(list(enumerate(zeros, 2))):
            block = np.zeros([*dims[:axis], count, *dims[axis + 1 :]], np.float32)
            result = s.node("Concat", result, s.const(block), axis=axis)
            dims[axis] += count
    return s.requantized(result, 1 / 16)


def behind(by: str, inside: Callable[[Shape, int], int] = lambda shape, axis: 0) -> Way:
    """Returns the way that puts what is missing behind the result; `inside` says how much the kernel gives instead."""

    def way(s: Sketch) -> str | None:
        shape = s.shape
        taps = [inside(shape, axis) for axis in range(s.rank)]
        zeros = [shape.missing - t for t in taps]
        end = s.full(max(0, shape.pads[1] - shape.extra))
        weights = np.pad(s.weights, [(0, 0), (0, 0), *((0, t) for t in taps)])
        result = s.deconv(s.x, weights, s.full(shape.pads[0]), end, s.bias if by.startswith("concat") else None)
        if by == "pad":
            result = s.node("Pad", result, s.ints(*[0] * (s.rank + 4), *zeros))
            return s.node("Add", result, s.const(s.wide(s.bias)))
        c_out = shape.channels[1]
        if by == "conv":
            ones = s.const(np.ones((c_out, 1, *s.full(1)), np.float32))
            attrs = {"kernel_shape": s.full(1), "pads": [*s.full(0), *zeros], "group": c_out}
            return s.node("Conv", result, ones, s.const(s.bias), **attrs)
        if by == "concat8":
            if not s.quantized:
                return None
            result = s.requantized(result, s.out_scale)
        sizes = [
            (shape.size - 1) * shape.stride + shape.kernel + t - shape.pads[0] - e
            for t, e in zip(taps, end, strict=True)
        ]
        dims = [shape.batch, c_out, *sizes]
        for axis, count in reversed(list(enumerate(zeros, 2))):
            if count:
                block = np.broadcast_to(s.wide(s.bias), [*dims[:axis], count, *dims[axis + 1 :]])
                constant = s.const(np.ascontiguousarray(block))
                result = s.node(
                    "Concat", result, s.requantized(constant, s.out_scale) if by == "concat8" else constant, axis=axis
                )
                dims[axis] += count
        return result

    return way


def matmul(s: Sketch) -> str | None:
    """A kernel of one stride: every element makes a block of its own."""
    shape, (c_in, c_out) = s.shape, s.shape.channels
    if s.quantized or shape.kernel != shape.stride or any(shape.pads):
        return None
    pixels, taps = shape.size**s.rank, shape.kernel**s.rank
    flat = s.node("Reshape", s.x, s.ints(shape.batch, c_in, pixels))
    rows = s.node("Transpose", flat, perm=[0, 2, 1])
    w = np.moveaxis(s.weights, 1, -1).reshape(c_in, taps * c_out)
    product = s.node("MatMul", rows, s.const(w))
    split = s.node("Reshape", product, s.ints(shape.batch, *s.full(shape.size), *s.full(shape.kernel), c_out))
    pairs = [axis for a in range(s.rank) for axis in (1 + a, 1 + s.rank + a)]
    mixed = s.node("Transpose", split, perm=[0, 1 + 2 * s.rank, *pairs])
    joined = s.node("Reshape", mixed, s.ints(shape.batch, c_out, *s.full(shape.size * shape.kernel)))
    padded = s.node("Pad", joined, s.ints(*[0] * (s.rank + 4), *s.full(shape.missing)))
    return s.node("Add", padded, s.const(s.wide(s.bias)))


def subpixel(s: Sketch) -> str | None:
    """A convolution that makes the elements of one stride as channels, and a shuffle."""
    shape, (c_in, c_out) = s.shape, s.shape.channels
    if s.quantized:
        return None
    out = (shape.size - 1) * shape.stride + shape.kernel - sum(shape.pads) + shape.extra
    taps = max(-(-shape.kernel // shape.stride), -(-(out + shape.pads[0]) // shape.stride) - shape.size + 1)
    w = np.pad(s.weights, [(0, 0), (0, 0), *[(0, taps * shape.stride - shape.kernel)] * s.rank])
    split = w.reshape(c_in, c_out, *[n for _ in range(s.rank) for n in (taps, shape.stride)])
    flipped = np.flip(split, tuple(2 + 2 * a for a in range(s.rank)))
    order = [1, *(3 + 2 * a for a in range(s.rank)), 0, *(2 + 2 * a for a in range(s.rank))]
    kernel = np.ascontiguousarray(flipped.transpose(order)).reshape(-1, c_in, *s.full(taps))
    bias = np.repeat(s.bias, shape.stride**s.rank)
    attrs = {"kernel_shape": s.full(taps), "pads": s.full(taps - 1) * 2}
    blocks = s.node("Conv", s.x, s.const(kernel), s.const(bias), **attrs)
    size = shape.size + taps - 1
    parts = s.node("Reshape", blocks, s.ints(shape.batch, c_out, *s.full(shape.stride), *s.full(size)))
    pairs = [axis for a in range(s.rank) for axis in (2 + s.rank + a, 2 + a)]
    mixed = s.node("Transpose", parts, perm=[0, 1, *pairs])
    joined = s.node("Reshape", mixed, s.ints(shape.batch, c_out, *s.full(size * shape.stride)))
    first = shape.pads[0]
    axes = s.ints(*range(2, 2 + s.rank))
    return s.node("Slice", joined, s.ints(*s.full(first)), s.ints(*s.full(first + out)), axes)


def upsampled(s: Sketch) -> str | None:
    """Zeros between the elements of the input, then a convolution whose pads give what is missing."""
    shape, (c_in, _) = s.shape, s.shape.channels
    if s.quantized or s.rank == 3:
        return None
    ones = s.const(np.ones((c_in, 1, *s.full(1)), np.float32))
    attrs: dict[str, Any] = {"kernel_shape": s.full(1), "strides": s.full(shape.stride), "group": c_in}
    sparse = s.node("ConvTranspose", s.x, ones, **attrs)
    flipped = np.flip(s.weights, tuple(range(2, 2 + s.rank))).swapaxes(0, 1)
    begin = shape.kernel - 1 - shape.pads[0]
    pads = [*s.full(begin), *s.full(shape.kernel - 1 - shape.pads[1] + shape.extra)]
    return s.node("Conv", sparse, s.const(flipped), s.const(s.bias), kernel_shape=s.full(shape.kernel), pads=pads)


def _no(shape: Shape, axis: int) -> int:
    return 0


def _one(shape: Shape, axis: int) -> int:
    return -(-shape.missing // shape.stride)


def _none(shape: Shape, axis: int) -> tuple[int, int]:
    return (0, 0)


WAYS: dict[str, Way] = {
    "raw": raw,
    "bound": bound,
    "kernel": grown(),
    "input": grown(_none, _one),
    "behind": behind("pad"),
    "behind-conv": behind("conv"),
    "behind-concat": behind("concat"),
    "behind-concat-int8": behind("concat8"),
    "input-conv": grown(_none, _one, by="conv"),
    "input-concat": grown(_none, _one, by="concat"),
    "kernel+1": grown(lambda s, a: (0, s.missing + 1)),
    "kernel-centred": grown(lambda s, a: (1, s.missing + 1)),
    "kernel-low": grown(lambda s, a: (1, s.missing)),
    "kernel-strides": grown(lambda s, a: (0, s.missing + -(s.kernel + s.missing) % s.stride)),
    "kernel+stride": grown(lambda s, a: (0, s.stride)),
    "input-first,kernel-rest": grown(lambda s, a: (0, s.missing if a else 0), lambda s, a: 0 if a else _one(s, a)),
    "kernel-first,input-rest": grown(lambda s, a: (0, 0 if a else s.missing), lambda s, a: _one(s, a) if a else 0),
    "concat-first,kernel-rest": behind("concat", lambda s, a: s.missing if a else 0),
    "conv-first,kernel-rest": behind("conv", lambda s, a: s.missing if a else 0),
    "kernel,channels-8": grown(channels=8),
    "kernel,channels-32": grown(channels=32),
    "kernel,channels-in-32": grown(channels=32, channels_in=32),
    "input,channels-32": grown(_none, _one, channels=32),
    "matmul": matmul,
    "sub-pixel": subpixel,
    "upsampled": upsampled,
}
_ALL_AXES = {"input-first,kernel-rest", "kernel-first,input-rest", "concat-first,kernel-rest", "conv-first,kernel-rest"}
_SAME_AS_KERNEL = {
    "kernel-strides": lambda s: (s.kernel + s.missing) % s.stride == 0,
    "kernel+stride": lambda s: s.stride == s.missing,
    "kernel+1": lambda s: False,
}


def build(shape: Shape, kind: str, way: str, *, between: bool = False) -> onnx.ModelProto | None:
    """Returns the model of a way, or None where the way is not one for the layer."""
    if (shape.rank == 1 and way in _ALL_AXES) or _SAME_AS_KERNEL.get(way, lambda s: False)(shape):
        return None
    sketch = Sketch(shape, kind == "int8", between)
    end = WAYS[way](sketch)
    return None if end is None else sketch.finish(end)


def check(shape: Shape) -> None:
    """Compares every way with raw on ONNX Runtime, and raw with the definition, bit for bit, at a small size."""
    small = dataclasses.replace(shape, size=5 if shape.rank < 3 else 3, batch=2)
    x = feed([small.batch, small.channels[0], *[small.size] * small.rank])
    for kind in KINDS:
        wanted = None
        for way in WAYS:
            model = build(small, kind, way)
            if model is None or way == "bound":
                continue
            (got,) = run_onnx(model, {"x": x})
            if wanted is None:
                wanted = got
                if kind == "fp16":
                    assert np.array_equal(got, definition(small, x)), shape
            assert np.array_equal(got, wanted), (shape, kind, way)


def definition(shape: Shape, x: Array) -> Array:
    """Returns Relu of the deconvolution, tap by tap."""
    s = Sketch(shape, quantized=False)
    spatial = (shape.size - 1) * shape.stride + shape.kernel
    room = spatial + shape.missing
    full = np.zeros((shape.batch, shape.channels[1], *[room] * shape.rank))
    for tap in itertools.product(range(shape.kernel), repeat=shape.rank):
        where = tuple(slice(t, t + (shape.size - 1) * shape.stride + 1, shape.stride) for t in tap)
        full[(..., *where)] += np.einsum("nc...,co->no...", x, s.weights[(..., *tap)].astype(np.float64))
    end = spatial - shape.pads[1] + shape.extra
    full = full[(..., *[slice(shape.pads[0], end)] * shape.rank)]
    return np.maximum(full + s.wide(s.bias), 0).astype(np.float32)


def prepare(path: Path) -> int:
    """Checks all ways and writes their models in one archive, those of the first three shapes first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in SHAPES.items():
            check(shape)
            for kind in KINDS:
                ways = {way: model for way in WAYS if (model := build(shape, kind, way)) is not None}
                for way, model in ways.items():
                    onnx.save_model(model, Path(folder) / f"{name}@{kind}.{way}.onnx")
                dims = [shape.batch, shape.channels[0], *[shape.size] * shape.rank]
                rows.append({"name": f"{name}@{kind}", "kind": kind, "shape": dims, "ways": {way: {} for way in ways}})
                print(f"{name} {kind}: {len(ways)} ways", flush=True)
        (Path(folder) / "rows.json").write_text(json.dumps(rows))
        with tarfile.open(path, "w:xz") as packed:
            for each in sorted(Path(folder).iterdir()):
                packed.add(each, each.name)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit("run candidates.py --prepare")
