"""Small ONNX models for tests, ways to run them, and an independent idea of what ConvTranspose means."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from support.session import Array
from support.tolerances import RELATIVE
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, Pass, PassResult, run_passes
from trtconv.runtimes.compare import relative_error

RTX = Target("rtx", (1, 7))
TENSORRT_8 = Target("tensorrt", (8, 6))

DECONV_PASSES = tuple(
    each for each in PASSES if each.name in ("inline-deconv-functions", "make-deconv-explicit", "dilate-deconv-kernel")
)
"""The passes about the arithmetic of ConvTranspose; those about quantisation have their own tests."""

WEIGHTS = (
    "initializer",
    "shared",
    "overridable",
    "constant",
    "identity",
    "cast",
    "reshape",
    "mul",
    "computed",
    "input",
)
"""Where a weight can come from, quantised ones aside."""
QUANTIZED = ("dq_int8", "dq_uint8", "qdq_int8", "qdq_uint8", "cast_q", "dq_plain")
BIASES = ("none", "initializer", "constant", "computed", "input", "empty")
PLACES = ("main", "if", "loop", "function", "nested")


@dataclasses.dataclass(frozen=True)
class Layer:
    """One ConvTranspose and its surroundings.

    Args:
        sizes: Spatial input sizes.
        kernel: Kernel sizes, one an axis; so are the others.
        pads: All begins, then all ends, as in ONNX.
        channels: Input channels and output channels of each group.
        weight: One of `WEIGHTS` or `QUANTIZED`.
        bias: One of `BIASES`.
        place: One of `PLACES`.
        axis: Quantisation axis, or None for one scale.
        dynamic: Whether the spatial sizes are declared dynamic.
        spelled: Whether kernel_shape is written.
    """

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None
    auto_pad: str = "NOTSET"
    group: int = 1
    channels: tuple[int, int] = (2, 3)
    weight: str = "initializer"
    bias: str = "none"
    place: str = "main"
    axis: int | None = None
    dtype: str = "float32"
    opset: int = 17
    dynamic: bool = False
    spelled: bool = True

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def attributes(self) -> dict[str, Any]:
        """Returns the node's attributes; defaults are left out."""
        found: dict[str, Any] = {"strides": self.strides, "group": self.group}
        for name in ("dilations", "pads", "output_padding", "output_shape"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.auto_pad != "NOTSET":
            found["auto_pad"] = self.auto_pad
        if self.spelled:
            found["kernel_shape"] = self.kernel
        return found

    def arrays(self) -> tuple[Array, Array, Array]:
        """Returns (x, weight, bias), the same ones for the same layer."""
        random = np.random.default_rng(7)
        c_in, c_out = self.channels[0] * self.group, self.channels[1]
        x = random.standard_normal((2, c_in, *self.sizes))
        # Channels of very different size, so that a wrong scale is seen.
        w = random.standard_normal((c_in, c_out, *self.kernel)) * 2.0 ** random.integers(
            -3, 3, (c_in, c_out, *[1] * self.rank)
        )
        b = random.standard_normal(c_out * self.group)
        return x.astype(self.dtype), w.astype(self.dtype), b.astype(self.dtype)


@dataclasses.dataclass
class _Parts:
    """A model in the making: what is in the main graph, and what is beside the deconvolution."""

    layer: Layer
    inputs: list[onnx.ValueInfoProto] = dataclasses.field(default_factory=list)
    initializers: list[TensorProto] = dataclasses.field(default_factory=list)
    outer: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    near: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = dataclasses.field(default_factory=list)
    feeds: dict[str, Array] = dataclasses.field(default_factory=dict)

    def initializer(self, name: str, values: Array) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def input(self, name: str, values: Array, dims: Sequence[int | str] | None = None) -> str:
        elem = helper.np_dtype_to_tensor_dtype(values.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, elem, dims or values.shape))
        self.feeds[name] = values
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attrs: Any) -> str:
        self.near.append(helper.make_node(op, inputs, [output], name=f"{output}_{op}", **attrs))
        return output


def make(layer: Layer) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Returns a model around a layer, and its inputs. The last output is the deconvolution's."""
    parts = _Parts(layer)
    x, w, b = layer.arrays()
    dims = ["n", x.shape[1], *(f"d{axis}" for axis in range(layer.rank))] if layer.dynamic else None
    parts.input("x", x, dims)
    weight = _quantized(parts, w) if layer.weight in QUANTIZED else _weight(parts, w)
    bias = _bias(parts, b)
    inputs = ["x", weight] + ([bias] if layer.bias != "none" else [])
    if layer.place in ("function", "nested"):
        return _with_function(parts, inputs), parts.feeds
    y = "y" if layer.place == "main" else "inner"
    parts.near.append(
        helper.make_node("ConvTranspose", inputs, [y], name="up", doc_string="kept", **layer.attributes())
    )
    if layer.place == "if":
        _into_if(parts)
    elif layer.place == "loop":
        _into_loop(parts)
    return _model(parts, [*parts.outer, *parts.near]), parts.feeds


def _weight(parts: _Parts, w: Array) -> str:
    source = parts.layer.weight
    if source == "input":
        return parts.input("w", w)
    if source == "constant":
        return parts.node("Constant", [], "w", value=numpy_helper.from_array(w, "value"))
    if source == "computed":
        parts.input("scale", np.array(1.5, w.dtype), [])
        return parts.node("Mul", [parts.initializer("w0", w), "scale"], "w")
    if source == "identity":
        return parts.node("Identity", [parts.initializer("w0", w)], "w")
    if source == "cast":
        parts.initializer("w0", w.astype("float16" if w.dtype == np.float32 else "float32"))
        return parts.node("Cast", ["w0"], "w", to=helper.np_dtype_to_tensor_dtype(w.dtype))
    if source == "reshape":
        parts.initializer("w0", w.reshape(w.shape[0], -1))
        return parts.node("Reshape", ["w0", parts.initializer("shape", np.array(w.shape, np.int64))], "w")
    if source == "mul":
        parts.node("Identity", [parts.initializer("w0", w)], "w1")
        parts.initializer("gain", np.linspace(0.5, 2, w.shape[0]).astype(w.dtype).reshape(-1, *[1] * (w.ndim - 1)))
        return parts.node("Mul", ["w1", "gain"], "w")
    parts.initializer("w", w)
    if source == "overridable":
        parts.inputs.append(helper.make_tensor_value_info("w", helper.np_dtype_to_tensor_dtype(w.dtype), w.shape))
    if source == "shared":
        parts.outer.append(helper.make_node("Neg", ["w"], ["other"], name="other_Neg"))
        parts.outputs.append(helper.make_tensor_value_info("other", helper.np_dtype_to_tensor_dtype(w.dtype), w.shape))
    return "w"


def _quantized(parts: _Parts, w: Array) -> str:
    """Quantised weights: integers behind DequantizeLinear, or floats behind both."""
    source, axis = parts.layer.weight, parts.layer.axis
    dtype = np.uint8 if "uint8" in source else np.int8
    others = tuple(a for a in range(w.ndim) if a != axis)
    top = np.abs(w).max() if axis is None else np.abs(w).max(axis=others)
    scale = np.maximum(top / 100, 1e-3).astype(w.dtype)
    middle = np.full(np.shape(scale), 117 if dtype is np.uint8 else 0)
    zero = (middle + (np.arange(middle.size).reshape(middle.shape) if dtype is np.uint8 else 0)).astype(dtype)
    names = [parts.initializer("w_scale", scale)]
    if source != "dq_plain":
        names.append(parts.initializer("w_zero", zero))
    attrs = {} if axis is None else {"axis": axis}
    if source.startswith("dq"):
        wide = [1] * w.ndim
        if axis is not None:
            wide[axis] = -1
        limits = np.iinfo(dtype)
        q = np.clip(np.rint(w / scale.reshape(wide)) + zero.reshape(wide), limits.min, limits.max).astype(dtype)
        return parts.node("DequantizeLinear", [parts.initializer("w_q", q), *names], "w", **attrs)
    if source == "cast_q":
        parts.initializer("w0", np.rint(w * 4).astype(np.int32))
        start = parts.node("Cast", ["w0"], "w1", to=helper.np_dtype_to_tensor_dtype(w.dtype))
    else:
        start = parts.initializer("w0", w)
    parts.node("QuantizeLinear", [start, *names], "w_q", **attrs)
    return parts.node("DequantizeLinear", ["w_q", *names], "w", **attrs)


def _bias(parts: _Parts, b: Array) -> str:
    source = parts.layer.bias
    if source == "initializer":
        return parts.initializer("b", b)
    if source == "input":
        return parts.input("b", b)
    if source == "constant":
        return parts.node("Constant", [], "b", value=numpy_helper.from_array(b, "value"))
    if source == "computed":
        return parts.node("Add", [parts.input("b0", b), parts.initializer("b1", b)], "b")
    return ""


def _float_value(name: str, dtype: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)


def _into_if(parts: _Parts) -> None:
    """Moves what is near the deconvolution into a branch; inputs and initializers stay outside."""
    parts.input("flag", np.array(True), [])
    then = helper.make_graph(parts.near, "then", [], [_float_value("inner", parts.layer.dtype)])
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["negated"], name="Neg")],
        "else",
        [],
        [_float_value("negated", parts.layer.dtype)],
    )
    parts.near = [helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=then, else_branch=other)]


def _into_loop(parts: _Parts) -> None:
    """Moves what is near the deconvolution into the body of a loop that runs twice."""
    # Without a condition, TensorRT-RTX refuses a body that reads it.
    parts.initializer("always", np.array(True))
    parts.initializer("count", np.array(2, np.int64))
    state = [
        helper.make_tensor_value_info("step", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
    ]
    ends = [helper.make_tensor_value_info("still", TensorProto.BOOL, []), _float_value("inner", parts.layer.dtype)]
    nodes = [helper.make_node("Identity", ["goes_on"], ["still"], name="still_Identity"), *parts.near]
    body = helper.make_graph(nodes, "body", state, ends)
    parts.near = [helper.make_node("Loop", ["count", "always"], ["y"], name="repeat", body=body)]


def _with_function(parts: _Parts, inputs: Sequence[str]) -> onnx.ModelProto:
    """Puts the deconvolution into a model-local function (or a function in a function); strides come by reference."""
    opsets = [helper.make_opsetid("", parts.layer.opset)]
    attrs = parts.layer.attributes()
    formal = ["a", "k", "c"][: len(inputs)] if parts.layer.bias != "empty" else ["a", "k"]
    strides = attrs.pop("strides")
    node = helper.make_node("ConvTranspose", formal, ["r"], name="up", **attrs)
    node.attribute.append(onnx.AttributeProto(name="strides", ref_attr_name="strides", type=onnx.AttributeProto.INTS))
    functions = [helper.make_function("local", "Up", formal, ["r"], [node], opsets, attributes=["strides"])]
    called, actual = "Up", list(inputs[: len(formal)])
    if parts.layer.place == "nested":
        call = helper.make_node("Up", formal, ["r"], name="call", domain="local")
        call.attribute.append(onnx.AttributeProto(name="strides", ref_attr_name="pace", type=onnx.AttributeProto.INTS))
        more = [*opsets, helper.make_opsetid("local", 1)]
        functions.append(helper.make_function("local", "Outer", formal, ["r"], [call], more, attributes=["pace"]))
        called = "Outer"
    outer = helper.make_node(called, actual, ["y"], name="block", domain="local")
    outer.attribute.append(helper.make_attribute("pace" if called == "Outer" else "strides", strides))
    model = _model(parts, [*parts.outer, *parts.near, outer])
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.extend(functions)
    return model


def _model(parts: _Parts, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    outputs = [*parts.outputs, _float_value("y", parts.layer.dtype)]
    graph = helper.make_graph(nodes, "g", parts.inputs, outputs, parts.initializers)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", parts.layer.opset)],
        ir_version=10 if parts.layer.opset > 20 else 8,
    )


def parse(text: str) -> onnx.ModelProto:
    """Reads a model in ONNX's textual form."""
    return parser.parse_model(text)


def wrap(proto: onnx.ModelProto, folder: Path | None = None) -> OnnxModel:
    """Makes an `OnnxModel` of a copy of a model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return OnnxModel(copy, (folder or Path()) / "model.onnx")


def rewritten(
    proto: onnx.ModelProto, target: Target = RTX, passes: Sequence[Pass] = DECONV_PASSES, folder: Path | None = None
) -> tuple[OnnxModel, PassResult]:
    """Runs the passes on a copy of a model."""
    model = wrap(proto, folder)
    return model, run_passes(model, passes, target)


def assert_equal(expected: Sequence[Array], got: Sequence[Array]) -> None:
    """Holds every output to the limit of its type."""
    assert len(expected) == len(got)
    for a, b in zip(expected, got, strict=True):
        assert a.shape == b.shape
        assert relative_error(a, b) <= RELATIVE.get(str(a.dtype), 0.0)


def deconvs(model: OnnxModel) -> list[onnx.NodeProto]:
    """Returns every ConvTranspose, in every graph."""
    return [node for _, _, node in model.nodes("ConvTranspose")]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Returns a node's attributes with Python values."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def conv_transpose(layer: Layer) -> Array:
    """Computes a layer from the definition, element by element: every input element stamps the kernel on the output.

    Source: ONNX operator ConvTranspose. Written without a look at `trtconv.graph.deconv`, which it is there to prove.
    """
    x, w, b = (array.astype(np.float64) for array in layer.arrays())
    dilations = layer.dilations or (1,) * layer.rank
    c_in, c_out = layer.channels
    total = full_sizes(layer)
    room = [t + max(layer.strides) + max(dilations) for t in total]
    canvas = np.zeros((len(x), c_out * layer.group, *room))
    for tap in itertools.product(*(range(k) for k in layer.kernel)):
        places = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, layer.sizes, layer.strides, strict=True)
        )
        for g in range(layer.group):
            a, o = slice(g * c_in, (g + 1) * c_in), slice(g * c_out, (g + 1) * c_out)
            at: Any = (slice(None), o, *places)
            taps: Any = (a, slice(None), *tap)
            canvas[at] += np.einsum("ni...,io->no...", x[:, a], w[taps])
    for axis, (begin, size) in enumerate(window(layer)):
        before = max(0, -begin)
        after = max(0, begin + size - canvas.shape[axis + 2])
        widths = [(0, 0)] * canvas.ndim
        widths[axis + 2] = (before, after)
        canvas = np.pad(canvas, widths)
        canvas = canvas.take(range(begin + before, begin + before + size), axis + 2)
    if layer.bias not in ("none", "empty"):
        canvas += (2 * b if layer.bias == "computed" else b).reshape(-1, *[1] * layer.rank)
    return np.asarray(canvas.astype(layer.dtype))


def full_sizes(layer: Layer) -> list[int]:
    """Returns the spatial sizes of the result before anything is cut off or added."""
    dilations = layer.dilations or (1,) * layer.rank
    rows = zip(layer.sizes, layer.strides, layer.kernel, dilations, strict=True)
    return [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in rows]


def window(layer: Layer) -> list[tuple[int, int]]:
    """Returns where the output begins in the full result and how long it is, for each axis."""
    extra = layer.output_padding or (0,) * layer.rank
    pads = layer.pads or (0,) * 2 * layer.rank
    found = []
    for axis, full in enumerate(full_sizes(layer)):
        size = full + extra[axis] - pads[axis] - pads[axis + layer.rank]
        begin = pads[axis]
        asked = None
        if layer.output_shape is not None:
            asked = layer.output_shape[axis]
        elif layer.auto_pad.startswith("SAME"):
            asked = layer.sizes[axis] * layer.strides[axis]
        if asked is not None:
            cut = max(0, full + extra[axis] - asked)
            begin = cut // 2 if layer.auto_pad == "SAME_UPPER" else cut - cut // 2
            size = asked if layer.output_shape is not None else full + extra[axis] - cut
        found.append((begin, size))
    return found
