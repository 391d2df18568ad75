"""Pieces that are shown by their definition: what TensorRT parses is, and what is changed about it is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.onnx_models import parse
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.preparation import handed_over
from trtconv.runtimes import tensorrt
from trtconv.runtimes.proof.cut import Seams
from trtconv.runtimes.proof.terms.defined import Definitions
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadLayer, ReadNetwork, ReadTensor

IMAGE = "float[2,4,8,6] x"
WINDOW = "float[2,4,8,6] x, float[1,4,1,1] s"
STATIC: dict[str, tuple[str, str]] = {
    "relu": (IMAGE, "y = Relu (x)"),
    "activations": (
        IMAGE,
        """a = Sigmoid (x) b = Tanh (a) c = LeakyRelu <alpha = 0.3> (b) d = Elu <alpha = 0.7> (c) e = Softsign (d)
        f = HardSigmoid <alpha = 0.3, beta = 0.4> (e) g = HardSwish (f) y = ThresholdedRelu <alpha = 0.1> (g)""",
    ),
    "defaults": (IMAGE, "a = LeakyRelu (x) b = Elu (a) c = HardSigmoid (b) y = ThresholdedRelu (c)"),
    "gelu": (IMAGE, 'a = Gelu (x) y = Gelu <approximate = "tanh"> (a)'),
    "clip": (IMAGE, "y = Clip (x, low, high)"),
    "functions": (
        IMAGE,
        """a = Exp (x) b = Neg (a) c = Abs (b) d = Log (c) e = Sqrt (c) f = Sin (d) g = Cos (e) h = Ceil (f)
        i = Floor (g) j = Erf (h) k = Reciprocal (i) l = Sign (j) m = Round (k) n = Add (l, m) o = Atan (n)
        y = Sinh (o)""",
    ),
    "joined": (
        WINDOW,
        "a = Add (x, s) b = Sub (s, a) c = Mul (b, x) d = Div (c, s) e = Max (d, x) f = Min (e, s) y = Pow (f, x)",
    ),
    "constants": (IMAGE, "a = Add (x, w) b = Mul (w, a) c = Sub (b, w) d = Div (w, c) y = Max (d, v)"),
    "conv": (
        IMAGE,
        "y = Conv <strides = [2, 1], pads = [1, 0, 2, 1], dilations = [1, 2]> (x, k, b)",
    ),
    "conv in groups": (IMAGE, "y = Conv <group = 2> (x, kg)"),
    "deconv": (IMAGE, "y = ConvTranspose <strides = [2, 3], pads = [1, 0, 1, 1]> (x, kt, bt)"),
    "deconv in groups": (IMAGE, "y = ConvTranspose <group = 2, strides = [2, 2]> (x, ktg)"),
    "conv of a line": ("float[2,4,9] x", "y = Conv <strides = [2], pads = [1, 2], dilations = [2]> (x, k1, b)"),
    "deconv of a line": ("float[2,4,9] x", "y = ConvTranspose <strides = [3], pads = [1, 0]> (x, kt1)"),
    "conv of a volume": ("float[1,4,5,6,7] x", "y = Conv <strides = [1, 2, 1], pads = [1, 0, 1, 1, 0, 0]> (x, k3)"),
    "pools": (
        IMAGE,
        """a = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (x)
        b = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 0, 0]> (a)
        y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 0, 0], count_include_pad = 1> (b)""",
    ),
    "whole pools": (IMAGE, "a = GlobalAveragePool (x) b = Add (a, x) y = GlobalMaxPool (b)"),
    "reductions": (
        IMAGE,
        """a = ReduceMean <keepdims = 0> (x, axes) b = ReduceSum (a, first) c = ReduceMax (x, axes)
        d = Add (b, c) e = ReduceMin (d, first) y = ReduceProd (e, last)""",
    ),
    "matrices": ("float[2,3,4,5] x, float[5,6] m", "a = MatMul (x, m) b = MatMul (a, w6) y = Add (w3, b)"),
    "gemm": ("float[4,5] x", "a = Gemm <transB = 1> (x, g, c) y = Gemm <transA = 1> (a, h)"),
    "softmax": (IMAGE, "a = Softmax <axis = 1> (x) y = Softmax (a)"),
    "norms": (
        IMAGE,
        """a = LayerNormalization <axis = -1, epsilon = 0.01> (x, n6, o6) b = LayerNormalization <axis = 2> (a, n86)
        y = InstanceNormalization <epsilon = 0.1> (b, n4, o4)""",
    ),
    "norms of constants at work": (
        IMAGE,
        """s = Identity (n4) t = Identity (o4) m = Identity (m4) v = Identity (v4)
        y = BatchNormalization (x, s, t, m, v)""",
    ),
    "norms of what is computed": (
        "float[2,4,8,6] x, float[4] s, float[4] m",
        "v = Exp (m) y = BatchNormalization <epsilon = 0.001> (x, s, o4, m, v)",
    ),
    "pools that round nothing up": (
        IMAGE,
        """a = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)
        y = AveragePool <kernel_shape = [2, 3], strides = [2, 2], pads = [0, 1, 0, 1], ceil_mode = 1> (a)""",
    ),
    "norms of constants": (IMAGE, "a = BatchNormalization (x, n4, o4, m4, v4) y = Relu (a)"),
    "moves": (
        IMAGE,
        """a = Transpose <perm = [0, 2, 3, 1]> (x) b = Reshape (a, to) c = Unsqueeze (b, first) d = Squeeze (c, first)
        e = Flatten <axis = 2> (d) f = Transpose (e) g = Identity (f) y = Concat <axis = 0> (g, f)""",
    ),
    "copies of sizes": (IMAGE, "y = Reshape (x, copied)"),
    "zeros allowed": (IMAGE, "y = Reshape <allowzero = 1> (x, to)"),
    "parts": (
        IMAGE,
        """a, c = Split <axis = 2> (x, parts) b = Slice (a, starts, ends, faxes, steps)
        d = Slice (c, starts, ends, faxes)
        e = Flatten (d) f = Flatten (b) y = Concat <axis = 1> (e, f)""",
    ),
    "rows": (
        "float[7,5] x, int64[3] i",
        "a = Gather (x, i) b = Gather <axis = 1> (a, back) y = Gather <axis = 1> (b, i)",
    ),
    "elements": ("float[2,4] x", "r = GatherElements <axis = 1> (table, some) y = Add (x, r)"),
    "running sums": (IMAGE, "a = CumSum <exclusive = 1> (x, one) y = CumSum <reverse = 1> (a, minus0)"),
    "choice": (
        "float[3,1] x, float[4] z",
        "c = Greater (x, z) n = IsNaN (x) o = Or (c, n) p = Not (o) y = Where (p, x, z)",
    ),
    "bounds": (
        "float[3,1] x, float[4] z",
        "c = GreaterOrEqual (x, z) d = LessOrEqual (z, x) e = Xor (c, d) y = Where (e, x, z)",
    ),
    "prelu": (IMAGE, "y = PRelu (x, slope)"),
    "depth": (
        IMAGE,
        """a = DepthToSpace <blocksize = 2> (x) b = Concat <axis = 1> (a, a, a, a)
        y = DepthToSpace <blocksize = 2, mode = "CRD"> (b)""",
    ),
    "resize": (
        IMAGE,
        """a = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)
        b = Resize <mode = "linear"> (a, , , sizes)
        y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (b, , , sizes2)""",
    ),
    "sizes": (
        IMAGE,
        """s = Shape (x) n = Gather (s, one) m = Unsqueeze (n, first0) t = Concat <axis = 0> (two, m, minus)
        y = Reshape (x, t)""",
    ),
    "sizes at work": (
        IMAGE,
        """s = Shape <start = 2> (x) h = Div (s, two) c = Cast <to = 1> (h) r = Sqrt (c) i = Cast <to = 7> (c)
        t = Concat <axis = 0> (two, i, minus) z = Reshape (x, t) q = ReduceSum (z, first)
        p = Gather (r, one) y = Mul (q, p)""",
    ),
    "nothing padded": (IMAGE, "y = Pad (x, nopads)"),
    "pads": (
        IMAGE,
        """a = Pad (x, pads) b = Pad (a, pads, number) c = Pad <mode = "edge"> (b, pads)
        y = Pad <mode = "reflect"> (c, pads)""",
    ),
    "lengths": (IMAGE, "a = ReduceL2 (x, last) b = ReduceL1 (x, last) y = Add (a, b)"),
    "one limit": (IMAGE, "a = Clip (x, low) b = Clip (a, , high) y = Mish (b)"),
    "lines": (
        "float[2,4,9] x",
        """a = AveragePool <kernel_shape = [3], pads = [1, 1]> (x) b = MaxPool <kernel_shape = [3], strides = [2]> (a)
        y = Selu <alpha = 1.5, gamma = 0.5> (b)""",
    ),
    "sums of products": (
        "float[2,3,4] x, float[2,5,4] z",
        """a = Einsum <equation = "bij,bkj->bik"> (x, z) b = Softplus (a)
        y = Einsum <equation = "bik,bij->bjk"> (b, x)""",
    ),
    "constants that are computed": (IMAGE, "e = Exp (n6) m = Neg (e) a = Mul (x, m) p = Pow (n6, o6) y = Add (a, p)"),
    "copies along axes": (
        "float[1,1,6] x",
        "a = Expand (x, same) b = Relu (a) c = Unsqueeze (b, last) y = Expand (c, many)",
    ),
    "rows of several axes": (IMAGE, "a = GatherND (x, pairs) y = GatherND <batch_dims = 1> (a, ones2)"),
    "nothing copied": (IMAGE, "a = Expand (x, same) y = Relu (a)"),
    "half": ("float16[2,4,8,6] x", "a = Relu (x) b = Transpose (a) y = Softmax (b)"),
}
"""Inputs and nodes, of all of which words are known."""
FREE: dict[str, tuple[str, str]] = {
    "images": (
        "float[n,4,h,w] x",
        """a = Conv <pads = [1, 1, 1, 1]> (x, k33, b) r = Relu (a)
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)""",
    ),
    "deconv": ("float[n,4,h,w] x", "y = ConvTranspose <strides = [2, 3], pads = [1, 0, 1, 1]> (x, kt, bt)"),
    "tokens": (
        "float[n,t,8] x",
        "a = MatMul (x, w8) b = Reshape (a, heads) c = Transpose <perm = [0, 2, 1, 3]> (b) y = Softmax (c)",
    ),
    "line": ("float[n,4,t] x", "a = Conv (x, k1) y = LeakyRelu (a)"),
    "norms": ("float[n,4,h,w] x", "a = BatchNormalization (x, n4, o4, m4, v4) y = Sigmoid (a)"),
    "resize by scales": (
        "float[n,2,h,w] x",
        """a = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)
        b = Resize <mode = "linear"> (a, , twice)
        c = Resize <mode = "cubic", cubic_coeff_a = -0.5> (b, , twice)
        y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (c, , twice)""",
    ),
    "resize of one axis": (
        "float[2,4,h,1] x",
        """a = Resize <mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"> (x, , once)
        y = Resize <mode = "linear"> (a, , once)""",
    ),
    "the shape of another": (
        "float[n,4,h,w] x",
        "s = Shape (x) a = Reshape (x, pairs3) b = Reshape (a, s) c = Relu (b) y = Add (c, x)",
    ),
    "its own shape": ("float[n,4,h,w] x", "s = Shape (x) a = Softmax (x) b = Reshape (a, s) y = Reshape (b, s)"),
    "means": ("float[n,4,h,w] x", "a = GlobalAveragePool (x) y = Mul (a, x)"),
    "parts of free images": ("float[n,4,h,w] x", "a, c = Split <axis = 1> (x, ones) b = Relu (c) y = Sub (a, b)"),
    "a part of a shape": (
        "float[n,4,h,w] x",
        "s = Shape <start = 1> (x) t = Concat <axis = 0> (minus, s) a = Reshape (x, t) y = Sub (a, x)",
    ),
    "a shape in another order": ("float[n,4,h,w] x", "s = Shape (x) t = Gather (s, turned) y = Reshape (x, t)"),
    "sizes that are put together": (
        "float[n,4,h,w] x",
        """s = Shape (x) n = Gather (s, minus0) m = Unsqueeze (n, first0) f = Slice (s, first0, first)
        t = Concat <axis = 0> (f, m, minus) y = Reshape <allowzero = 1> (x, t)""",
    ),
    "sizes that are computed": (
        "float[n,4,h,w] x",
        """h = Shape <start = 2, end = 3> (x) a = Squeeze (h) w = Shape <start = 3> (x) p = Mul (a, w) d = Div (p, two)
        e = Add (d, one) f = Sub (e, one) r = Reshape (f, minus) t = Concat <axis = 0> (minus, two, r)
        y = Reshape (x, t)""",
    ),
}
"""Those whose sizes are free."""
UNKNOWN: dict[str, tuple[str, str]] = {
    # TensorRT-RTX 1.7 has rounded ones of its own, for which a pass writes the right ones down.
    "factors that are left out": (IMAGE, "y = Selu (x)"),
    "a pool that rounds up": (IMAGE, "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)"),
    "a pool that may round up": (
        "float[n,4,h,w] x",
        "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)",
    ),
    "factors": ("float[4,5] x", "y = Gemm <alpha = 2.0, transB = 1> (x, g, c)"),
    "sums of many": (IMAGE, "y = Sum (x, x, x)"),
    "sizes that are rounded": (IMAGE, 'y = Resize <mode = "linear"> (x, , odd)'),
    "sizes of choice that are rounded": ("float[n,4,h,w] x", 'y = Resize <mode = "linear"> (x, , odd)'),
    "sizes of choice to sizes": ("float[2,4,h,w] x", 'y = Resize <mode = "linear"> (x, , , sizes)'),
    "sizes of choice that become less": ("float[2,4,h,w] x", 'y = Resize <mode = "linear"> (x, , half)'),
    "a part that is computed": (
        "float[n,4,h,w] x",
        "s = Shape <start = 2, end = 3> (x) h = Div (s, two) y = Slice (x, first0, h, two)",
    ),
    "a softmax of several axes": (IMAGE, "y = LogSoftmax <axis = 1> (x)"),
}
"""What has no words, and is left to be run."""
RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RANDOM.uniform(0.2, 1.5, shape).astype(np.float32)


CONSTANTS = {
    "low": np.float32(-0.5), "high": np.float32(0.75), "w": floats(4, 1, 1), "v": floats(6), "k": floats(5, 4, 3, 2),
    "b": floats(5), "kg": floats(6, 2, 2, 2), "kt": floats(4, 3, 3, 4), "bt": floats(3), "ktg": floats(4, 2, 3, 2),
    "k1": floats(5, 4, 3), "kt1": floats(4, 2, 4), "k3": floats(2, 4, 2, 3, 2), "k33": floats(5, 4, 3, 3),
    "w6": floats(6, 5), "w3": floats(3, 1, 5), "w8": floats(8, 8), "g": floats(6, 5), "c": floats(6), "h": floats(4, 3),
    "n6": floats(6), "o6": floats(6), "n86": floats(8, 6), "n4": floats(4), "o4": floats(4), "m4": floats(4),
    "v4": floats(4), "slope": floats(4, 1, 1), "axes": np.array([2, 3]), "first": np.array([1]), "last": np.array([-1]),
    "first0": np.array([0]), "to": np.array([2, -1, 4]), "copied": np.array([0, -1, 6]), "parts": np.array([3, 5]),
    "starts": np.array([1, -4]), "ends": np.array([1000, 6]), "faxes": np.array([2, -1]), "steps": np.array([1, 2]),
    "back": np.array([[-1, 0]]), "twice": np.array([1, 1, 2, 3], np.float32), "sizes": np.array([2, 4, 32, 18]),
    "sizes2": np.array([2, 4, 40, 9]), "one": np.array(1), "two": np.array([2]), "minus": np.array([-1]),
    "nopads": np.zeros(8, np.int64), "pads": np.array([0, 0, 1, 2, 0, 0, 2, 0]), "number": np.float32(0.5),
    "table": floats(3, 9), "some": np.array([[8, 0, -1, 3], [1, 1, 2, 2]]), "minus0": np.array(-1),
    "same": np.array([4, 1, 6]), "heads": np.array([0, -1, 2, 4]),
    "many": np.array([3, 1, 4, 6, 5]),
    "pairs": np.array([[1, -1], [0, 2]]), "ones2": np.array([[-1], [4]]),
    "odd": np.array([1, 1, 1.3, 1.7], np.float32), "half": np.array([1, 1, 0.5, 0.5], np.float32),
    "once": np.array([1, 1, 1, 2], np.float32), "pairs3": np.array([0, 2, -1]), "turned": np.array([0, 1, 3, 2]),
    "ones": np.array([2, 2]),
}  # fmt: skip


@dataclasses.dataclass
class Scene:
    """A model, and the network that TensorRT made of it."""

    model: OnnxModel
    network: ReadNetwork
    seams: Seams

    def defined(self, network: ReadNetwork) -> dict[str, bool]:
        """Returns for each tensor whether its piece of a network is shown by its definition."""
        definitions = Definitions(network, self.model, self.seams.numbers)
        return {piece.target: definitions.show(piece) for piece in self.seams.pieces()}


def scene(ends: str, body: str, folder: Path) -> Scene:
    result = "float16 y" if ends.startswith("float16") else "float y"
    proto = parse(f'<ir_version: 10, opset_import: ["": 20]> g ({ends}) => ({result}) {{ {body} }}')
    read = {name for node in proto.graph.node for name in node.input}
    read -= {name for node in proto.graph.node for name in node.output} | {value.name for value in proto.graph.input}
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items() if name in read]
    proto.graph.initializer.extend(held)
    onnx.save(proto, folder / "m.onnx")
    model = OnnxModel.load(folder / "m.onnx")
    network = tensorrt.load(Target("rtx")).parse(handed_over(model), model.path)
    assert not isinstance(network, tuple), network
    back = network.read_back()
    return Scene(model, back, Seams(back, model))


@pytest.mark.parametrize("name", [*STATIC, *FREE])
def test_what_is_parsed_is_shown_by_its_definition(name: str, tmp_path: Path) -> None:
    found = scene(*{**STATIC, **FREE}[name], tmp_path)
    assert [target for target, is_shown in found.defined(found.network).items() if not is_shown] == []


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_words_is_left(name: str, tmp_path: Path) -> None:
    found = scene(*UNKNOWN[name], tmp_path)
    assert not found.defined(found.network)["y"]


NAMES = {
    "type": ("RELU", "TANH", "ELU", "SELU", "CLIP", "MAX", "AVERAGE", "MAX_AVERAGE_BLEND", "GELU_TANH"),
    "op": ("SUM", "SUB", "PROD", "MAX", "AVG", "DIV", "EXP", "ABS", "FLOOR_DIV", "EQUAL", "LESS"),
    "equation": ("bij,bkj->bki", "bij,bkj->bij", "bij,bkj->bik", "bik,bij->bjk", "bik,bij->bkj", "bik,bij->bij"),
    "mode": ("ND", "ELEMENT", "FILL", "CLAMP", "WRAP", "REFLECT"),
    "op0": ("TRANSPOSE", "NONE", "VECTOR"),
    "op1": ("TRANSPOSE", "NONE", "VECTOR"),
    "padding_mode": ("EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER"),
    "resize_mode": ("NEAREST", "LINEAR", "CUBIC"),
    "coordinate_transformation": ("HALF_PIXEL", "ASYMMETRIC", "ALIGN_CORNERS"),
    "nearest_rounding": ("FLOOR", "CEIL", "HALF_UP", "HALF_DOWN"),
    "selector_for_single_pixel": ("UPPER", "FORMULA"),
    "to_type": ("HALF", "INT64", "INT32"),
}
"""What attributes that are names may become."""


def others(name: str, value: Any) -> Iterator[Any]:
    """Yields other values of an attribute."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (value * 1.25 + 0.01, -value - 1)
    elif isinstance(value, str):
        yield from (other for other in NAMES[name] if other != value)
    elif isinstance(value, tuple):
        for at, entry in enumerate(value):
            yield from ((*value[:at], other, *value[at + 1 :]) for other in others(name, entry))
        yield value[::-1]
    elif isinstance(value, np.ndarray) and value.size:
        yield value[::-1].copy()
        last = value.copy()
        last[-1] = last[-1] + 1
        yield last


def changed(layer: ReadLayer) -> Iterator[ReadLayer]:
    """Yields a layer with one thing about it changed."""
    for name, value in layer.values.items():
        for other in others(name, value):
            yield dataclasses.replace(layer, values={**layer.values, name: other})
    if len(layer.inputs) > 1:
        yield dataclasses.replace(layer, inputs=layer.inputs[::-1])
        yield dataclasses.replace(layer, inputs=layer.inputs[:-1])
    yield dataclasses.replace(layer, values={**layer.values, "never_heard_of": 1})


def feeds(network: ReadNetwork) -> dict[str, Any]:
    tensors = [network.tensors[number] for number in network.inputs]
    return {tensor.name: _feed(tensor) for tensor in tensors}


def _feed(tensor: ReadTensor) -> Any:
    shape = [n if n >= 0 else 5 + at for at, n in enumerate(tensor.shape or ())]
    if tensor.dtype == "int64":
        return np.array([4, 0, 2])
    return RANDOM.uniform(-1.5, 1.5, shape).astype(tensor.dtype)


def results(network: ReadNetwork, fed: dict[str, Any]) -> dict[str, Any] | None:
    """Returns all tensors that a network computes; None where it is not run."""
    seen: dict[str, Any] = {}

    def see(tensor: ReadTensor, value: Any, computed: bool) -> Any:
        seen[tensor.name] = value
        return value

    try:
        return seen if Run(network, fed, see=see).outputs() else None
    except NotProven:
        return None


@pytest.mark.parametrize("name", [*STATIC, *FREE])
def test_what_is_changed_is_shown_by_nothing(name: str, tmp_path: Path) -> None:
    """Whatever is changed about a layer, its piece is not shown any more, unless the network computes the same."""
    found = scene(*{**STATIC, **FREE}[name], tmp_path)
    network, fed = found.network, feeds(found.network)
    before = results(network, fed)
    assert before is not None
    for index, layer in enumerate(network.layers):
        for other in changed(layer):
            layers = (*network.layers[:index], other, *network.layers[index + 1 :])
            mutant = dataclasses.replace(network, layers=layers)
            if all(found.defined(mutant).values()):
                after = results(mutant, fed)
                assert "never_heard_of" not in other.values
                assert after is not None
                seen = [
                    name
                    for name in found.seams.numbers
                    if not np.array_equal(before[name], after[name], equal_nan=True)
                ]
                assert not seen, (layer, other)
