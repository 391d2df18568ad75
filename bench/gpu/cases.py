"""The cases: every way to spell a transposed convolution, with and without Q/DQ, and the networks of models/."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from nets import NETWORK_SIZES, Layer, Quant, Sample, make_layer, make_network, make_random, make_static, random_node

EXACT, ROUNDED, HALF, NETWORK = 1e-5, 1e-2, 1e-2, 2e-2
"""Limits of the relative error: float32 without TF32, int8 layers, float16, whole int8 networks."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table.

    Args:
        name: Unique.
        section: "parser", "speed", "quantized", "random" or "networks".
        title: What is special about it, in words.
        make: Makes the sample.
        precision: "fp32" (TF32 off), "fp16" or "int8".
        limit: Largest relative error of the rewritten model.
        against: Whose result on ONNX Runtime the rewritten one is held to: "original", or "rewritten" where the
            rewrite moves weights by a quantisation step.
        target: What the passes rewrite for.
        max_ratio: Largest latency of the rewritten engine over that of the raw one; infinite where it is not timed.
        half_io: Whether inputs and outputs of the network are float16.
        refused_by: Code of the finding with which trtconv must refuse the model; "" where it must build it.
    """

    name: str
    section: str
    title: str
    make: Callable[[], Sample]
    precision: str = "fp32"
    limit: float = EXACT
    against: str = "original"
    target: str = "tensorrt-8.6"
    max_ratio: float = 1.05
    half_io: bool = False
    refused_by: str = ""


_RANKS: dict[int, dict[str, Any]] = {1: {"size": 512, "batch": 4}, 2: {}, 3: {"size": 12, "channels": (32, 24)}}
"""What makes layers of every rank about equally heavy."""


def layer_case(name: str, title: str, layer: Layer, **more: Any) -> Case:
    """Makes a float32 case of one layer."""
    return Case(name, "parser", title, functools.partial(make_layer, layer), **more)


def parser_cases() -> Iterator[Case]:
    """ConvTranspose as TensorRT's parser meets it, in float32."""
    yield from _padding_cases()
    yield from _automatic_cases()
    yield from _output_shape_cases()
    yield from _source_cases()
    yield from _rank_cases()


def _padding_cases() -> Iterator[Case]:
    within = "output_padding 1 <= end pad 1"
    beyond, computed = "output_padding 1 > end pad 0", Layer(pads=0, extra=1, bias="computed")
    for name, title, layer in (
        ("pads-1", "pads 1, no output_padding (nothing to do)", Layer(pads=1)),
        ("pads-1-op-1", within, Layer(pads=1, extra=1)),
        ("pads-1-op-1-dynamic", f"{within}, dynamic H/W", Layer(pads=1, extra=1, dynamic=True)),
        ("pads-0-op-1", beyond, Layer(pads=0, extra=1)),
        ("pads-0-op-1-dynamic", f"{beyond}, dynamic H/W", Layer(pads=0, extra=1, dynamic=True)),
        ("pads-0-op-1-k2", f"kernel 2, {beyond}", Layer(kernel=2, pads=0, extra=1)),
        ("pads-1-op-2-s3", "stride 3, output_padding 2 > end pad 1", Layer(stride=3, kernel=4, pads=1, extra=2)),
        ("pads-uneven-op-1", "pads (2, 0), output_padding 1", Layer(kernel=4, pads=(2, 0), extra=1)),
        ("kernel-1-op-1", "kernel 1, stride 2, pads 1, output_padding 1", Layer(kernel=1, pads=1, extra=1)),
        ("pads-0-op-1-no-bias", f"{beyond}, no bias", Layer(pads=0, extra=1, bias="none")),
        ("pads-0-op-1-bias-computed", f"{beyond}, bias computed in the graph", computed),
        ("pads-0-op-1-bias-input", f"{beyond}, bias a graph input", Layer(pads=0, extra=1, bias="input")),
        ("pads-negative", "pads -1", Layer(pads=-1)),
        ("dilation-2", "dilation 2, stride 1", Layer(stride=1, dilation=2, pads=1)),
        ("dilation-2-stride-2", "dilation 2, stride 2", Layer(dilation=2, pads=1)),
        ("dilation-2-stride-2-op-1", f"dilation 2, stride 2, {beyond}", Layer(dilation=2, pads=0, extra=1)),
    ):
        yield layer_case(name, title, layer)
    dilated, title = Layer(dilation=2, pads=1), "dilation 2, stride 2, rewritten as for RTX"
    yield layer_case("dilation-2-kernel", title, dilated, target="rtx", max_ratio=math.inf)
    title = "output_padding 2 = max(stride, dilation)"
    yield layer_case("op-too-large", title, Layer(pads=1, extra=2), refused_by="TC105")


def _automatic_cases() -> Iterator[Case]:
    yield layer_case("valid-op-1", "auto_pad VALID, output_padding 1", Layer(auto_pad="VALID", extra=1))
    for mode in ("UPPER", "LOWER"):
        name, auto = f"same-{mode.lower()}", f"SAME_{mode}"
        yield layer_case(name, f"auto_pad {auto}", Layer(auto_pad=auto))
        title, layer = f"auto_pad {auto}, output_padding 1", Layer(auto_pad=auto, extra=1)
        yield layer_case(f"{name}-op-1", title, layer)
        dynamic = dataclasses.replace(layer, dynamic=True)
        yield layer_case(f"{name}-op-1-dynamic", f"{title}, dynamic H/W", dynamic)
    layer = Layer(auto_pad="SAME_UPPER", kernel=4, extra=1)
    yield layer_case("same-upper-k4-op-1", "auto_pad SAME_UPPER, kernel 4, output_padding 1", layer)


def _output_shape_cases() -> Iterator[Case]:
    for name, title, layer in (
        ("odd", "output_shape, total padding odd", Layer(out=64)),
        ("even", "output_shape, total padding even", Layer(out=63)),
        ("op-1", "output_shape and output_padding 1", Layer(out=64, extra=1)),
        ("larger", "output_shape beyond the full result", Layer(kernel=2, out=65)),
        ("same-upper", "output_shape and SAME_UPPER", Layer(out=64, auto_pad="SAME_UPPER")),
        ("same-lower", "output_shape and SAME_LOWER", Layer(out=64, auto_pad="SAME_LOWER")),
        ("dynamic", "output_shape, dynamic H/W", Layer(out=64, dynamic=True)),
    ):
        yield layer_case(f"output-shape-{name}", title, layer)


def _source_cases() -> Iterator[Case]:
    for weight, what in (("input", "a graph input"), ("computed", "computed at run time")):
        layer = Layer(pads=1, extra=1, weight=weight)
        yield layer_case(f"weight-{weight}", f"weight {what}, pads 1, output_padding 1", layer)
        layer, title = dataclasses.replace(layer, pads=0), f"weight {what}, output_padding 1 > end pad 0"
        yield layer_case(f"weight-{weight}-op-beyond", title, layer)
    for group, name, what in ((2, "groups-2", "2 groups"), (48, "depthwise", "depthwise")):
        for pads in (1, 0):
            layer = Layer(pads=pads, extra=1, group=group, channels=(48, 48) if group == 48 else (64, 48))
            yield layer_case(f"{name}-pads-{pads}-op-1", f"{what}, pads {pads}, output_padding 1", layer)


def _rank_cases() -> Iterator[Case]:
    for rank in (1, 3):
        make = functools.partial(Layer, rank=rank, **_RANKS[rank])
        size = int(_RANKS[rank]["size"])
        for name, title, layer in (
            ("pads-1-op-1", "pads 1, output_padding 1", make(pads=1, extra=1)),
            ("pads-0-op-1", "output_padding 1 > end pad 0", make(pads=0, extra=1)),
            ("pads-0-op-1-dynamic", "output_padding 1 > end pad 0, dynamic sizes", make(pads=0, extra=1, dynamic=True)),
            ("same-upper-op-1", "auto_pad SAME_UPPER, output_padding 1", make(auto_pad="SAME_UPPER", extra=1)),
            ("output-shape-odd", "output_shape, total padding odd", make(out=2 * size)),
        ):
            yield layer_case(f"{rank}d-{name}", f"{rank}-D: {title}", layer)


SPEED_LAYERS = (
    ("256-128-k3", Layer(size=64, batch=4, channels=(256, 128), pads=0, extra=1, relu=True)),
    ("64-64-k3", Layer(size=128, batch=4, channels=(64, 64), pads=0, extra=1, relu=True)),
    ("512-256-k2", Layer(size=32, batch=4, channels=(512, 256), kernel=2, pads=0, extra=1, relu=True)),
)
"""Layers with output_padding beyond the end pad, the first from pytorch/TensorRT issue 3352."""


def speed_cases() -> Iterator[Case]:
    """What the zero-extended kernel gains over the parser's own way, in float16 and int8."""
    for precision, dynamic in itertools.product(("fp16", "int8"), (False, True)):
        for name, layer in SPEED_LAYERS:
            quant = Quant(then=32) if precision == "int8" else None
            full = dataclasses.replace(layer, dynamic=dynamic, quant=quant)
            c_in, c_out = layer.channels
            title = f"{c_in}->{c_out} k{layer.kernel} s2 p0 op1, {layer.size}x{layer.size}, batch 4"
            yield Case(
                f"speed-{precision}-{'dynamic' if dynamic else 'static'}-{name}",
                "speed",
                f"{title}{', dynamic H/W' if dynamic else ''}, {precision}",
                functools.partial(make_layer, full),
                precision,
                limit=HALF if precision == "fp16" else ROUNDED,
                max_ratio=1 / 1.3 if precision == "fp16" else 1 / 2,
                half_io=True,
            )


_QUANT_LAYER = Layer(channels=(64, 32), kernel=4, pads=1)


def quant_case(name: str, title: str, quant: Quant, layer: Layer = _QUANT_LAYER, **more: Any) -> Case:
    """Makes an int8 case of one layer."""
    against = "rewritten" if quant.scales == "axis 0" else "original"
    full = dataclasses.replace(layer, quant=quant)
    make = functools.partial(make_layer, full)
    return Case(name, "quantized", title, make, "int8", limit=ROUNDED, against=against, **more)


def quantized_cases() -> Iterator[Case]:
    """Q/DQ around ConvTranspose in every spelling, in int8."""
    yield from _axis_cases()
    yield from _group_cases()
    yield from _spelling_cases()
    yield from _quantized_padding_cases()


def _axis_cases() -> Iterator[Case]:
    for rank, scales, weights, output in itertools.product(
        (1, 2, 3), ("tensor", "axis 1", "axis 0"), ("QDQ", "DQ"), (True, False)
    ):
        if rank != 2 and (weights == "DQ" and not output):
            continue
        layer = dataclasses.replace(_QUANT_LAYER, rank=rank, **_RANKS[rank])
        layer = dataclasses.replace(layer, channels=(64, 32))
        name = f"q{rank}d-{scales.replace(' ', '-')}-{weights.lower()}{'' if output else '-float-out'}"
        title = f"{rank}-D, weight {_spelled(weights)}, scales per {scales}{'' if output else ', output not quantised'}"
        yield quant_case(name, title, Quant(scales, weights, output=output), layer)
    square = dataclasses.replace(_QUANT_LAYER, channels=(32, 32))
    for weights in ("QDQ", "DQ"):
        title = f"2-D, weight {_spelled(weights)}, scales per axis 0, C_in = C_out"
        yield quant_case(f"q2d-axis-0-{weights.lower()}-square", title, Quant("axis 0", weights), square)


def _spelled(weights: str) -> str:
    return "float -> Q -> DQ" if weights == "QDQ" else "int8 -> DQ"


def _group_cases() -> Iterator[Case]:
    for (name, group), scales, rank in itertools.product(
        (("groups-2", 2), ("depthwise", 32)), ("tensor", "axis 1", "axis 0"), (2, 1)
    ):
        if rank == 1 and scales == "tensor":
            continue
        channels = (32, 32) if group == 32 else (64, 32)
        layer = dataclasses.replace(_QUANT_LAYER, group=group, rank=rank, **_RANKS[rank])
        layer = dataclasses.replace(layer, channels=channels)
        title = f"{rank}-D, {name.replace('-', ' ')}, scales per {scales}"
        yield quant_case(f"q{rank}d-{name}-{scales.replace(' ', '-')}", title, Quant(scales), layer)


def _spelling_cases() -> Iterator[Case]:
    for name, title, quant in (
        ("uint8-128-input", "activations uint8 around 128", Quant(input_zero="uint8 128")),
        ("uint8-128-weight", "weights uint8 around 128", Quant(weights="DQ", weight_zero="uint8 128")),
        (
            "uint8-128-both",
            "activations and weights uint8 around 128",
            Quant("tensor", "DQ", "uint8 128", "uint8 128"),
        ),
        ("asymmetric-3", "activations int8 around 3", Quant(input_zero="int8 3")),
        ("no-zero-weight", "weight DequantizeLinear without a zero point", Quant(weights="DQ", weight_zero="int8")),
        ("no-zero-input", "activations without a zero point, which means uint8", Quant(input_zero="uint8")),
        ("no-axis-qdq", "float -> Q -> DQ weights, no axis attribute", Quant(axis_written=False)),
        ("no-axis-dq", "int8 -> DQ weights, no axis attribute", Quant(weights="DQ", axis_written=False)),
        ("computed-scale", "weight scale out of a Mul", Quant(scale_computed=True)),
    ):
        yield quant_case(f"q2d-{name}", title, quant)
    bias = dataclasses.replace(_QUANT_LAYER, bias="int32")
    for weights in ("QDQ", "DQ"):
        title = f"bias int32 -> DQ, weight {_spelled(weights)}"
        yield quant_case(f"q2d-int32-bias-{weights.lower()}", title, Quant(weights=weights), bias)


def _quantized_padding_cases() -> Iterator[Case]:
    beyond = Layer(channels=(64, 32), pads=0, extra=1)
    for weights in ("QDQ", "DQ"):
        for scales in ("tensor", "axis 1", "axis 0"):
            name = f"q2d-op-beyond-{scales.replace(' ', '-')}-{weights.lower()}"
            title = f"output_padding 1 > end pad 0, weight {_spelled(weights)}, scales per {scales}"
            yield quant_case(name, title, Quant(scales, weights), beyond)
    title = "output_padding 1 > end pad 0, weights uint8 around 128"
    yield quant_case("q2d-op-beyond-uint8-128", title, Quant(weights="DQ", weight_zero="uint8 128"), beyond)
    same = Layer(channels=(64, 32), auto_pad="SAME_UPPER", extra=1)
    yield quant_case("q2d-same-upper-op-1", "auto_pad SAME_UPPER, output_padding 1, int8", Quant(), same)
    dilated = Layer(channels=(64, 32), dilation=2, pads=1)
    yield quant_case("q2d-dilation-2-stride-2", "dilation 2, stride 2, int8", Quant(), dilated)


RANDOM_CASES = 80


def random_cases() -> Iterator[Case]:
    """Nodes that nobody chose: every axis has a kernel, stride, dilation and pads of its own."""
    for seed in range(RANDOM_CASES):
        shape, weight, attrs = random_node(Random(seed))
        said = ", ".join(f"{name} {value}" for name, value in attrs.items())
        title = f"input {'x'.join(map(str, shape))}, weight {'x'.join(map(str, weight))}, {said}"
        make = functools.partial(make_random, seed)
        yield Case(f"random-{seed:02}", "random", title, make, max_ratio=math.inf)


def network_cases() -> Iterator[Case]:
    """The networks of models/, and what ONNX Runtime's quantizer makes of the U-Net."""
    for name, (_, precisions) in NETWORK_SIZES.items():
        for precision in precisions:
            quantized = name.startswith("quantized")
            what = "int8 and fp16" if quantized and precision == "fp16" else precision
            limit = NETWORK if quantized else {"fp32": EXACT, "fp16": HALF}[precision]
            make = functools.partial(make_network, name)
            yield Case(
                f"{name}-{precision}",
                "networks",
                f"models/{name}.onnx, {what}",
                make,
                precision,
                limit,
                max_ratio=1.05,
            )
    for name, title, options in (
        ("default", "the quantizer's defaults", {}),
        ("per-channel", "per channel", {"per_channel": True}),
        ("symmetric", "symmetric", {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}),
        (
            "symmetric-per-channel",
            "symmetric, per channel",
            {"per_channel": True, "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}},
        ),
    ):
        make = functools.partial(make_static, options)
        full = f"models/unet.onnx through quantize_static, {title}"
        yield Case(f"unet-static-{name}", "networks", full, make, "int8", NETWORK)


def all_cases() -> dict[str, Case]:
    """Returns every case by name, in the order of the table."""
    everything = itertools.chain(speed_cases(), network_cases(), parser_cases(), quantized_cases(), random_cases())
    cases: dict[str, Case] = {}
    for case in everything:
        assert case.name not in cases, case.name
        cases[case.name] = case
    return cases
