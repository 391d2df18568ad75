"""Which layers of a float network can be computed in int8, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from trtconv.core.frozen import frozen
from trtconv.graph.attributes import attribute
from trtconv.graph.deconv import INT8_CHANNELS
from trtconv.graph.scope import Scope
from trtconv.precision.quantize.kinds import INT8, QuantizationKind
from trtconv.precision.quantize.operators import CONVOLUTIONS, PRODUCTS, WEIGHTED

_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "Elu", "HardSigmoid", "HardSwish", "PRelu"})
"""What TensorRT computes together with the layer in front of it."""
_NO_KERNEL = "TensorRT has no int8 deconvolution"
NEEDS_QUANTIZER = "TensorRT computes a 3-D deconvolution in int8 only if its result is quantised"
"""Why a layer stays in float behind which no quantiser stands."""
_AS_IN_ATTENTION = "both matrices are computed, as in attention, which stays in float"


@frozen
class WeightedLayer:
    """A node with weights, or a product of two computed matrices.

    Args:
        index: Its position in the main graph.
        node: The node.
        reason: Why it stays in float; empty where it can be quantised.
        lacks_kernel: Whether that is because TensorRT has no int8 kernel for it.
        slots: Which of its inputs get a quantiser: the first, and of two computed matrices both.
    """

    index: int
    node: onnx.NodeProto
    reason: str
    lacks_kernel: bool = False
    slots: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        """The node's name, which it must have."""
        return str(self.node.name)

    @property
    def read(self) -> tuple[str, ...]:
        """The tensors that it reads quantised."""
        return tuple(self.node.input[slot] for slot in self.slots)

    @property
    def edges(self) -> tuple[tuple[str, tuple[int, int]], ...]:
        """Those tensors, each with where it is read: the node's position and the input's."""
        return tuple((self.node.input[slot], (self.index, slot)) for slot in self.slots)


def find_layers(
    scope: Scope, in_float: Iterable[str] = (), kind: QuantizationKind = INT8, attention: bool = False
) -> tuple[WeightedLayer, ...]:
    """Returns the layers with weights of the main graph, and products of two computed matrices, in its order.

    Args:
        scope: The main graph of a float model.
        in_float: Names of nodes that the user wants to stay in float.
        kind: What layers are quantised to.
        attention: Whether those products are too, where the kind quantises inputs.
    """
    float_names = frozenset(in_float)
    reason = _AS_IN_ATTENTION + (" without --attention" if kind.inputs else "")
    products = "" if attention and kind.inputs else reason
    return tuple(_layer(scope, index, float_names, kind, products) for index in scope.positions(*WEIGHTED))


def _layer(
    scope: Scope, index: int, float_names: frozenset[str], kind: QuantizationKind, products: str
) -> WeightedLayer:
    node = scope.columns.nodes[index]
    reason = _reason(scope, node, float_names, products) or kind.reason(node, scope.shape(node.input[1]) or ())
    unsupported = _unsupported(scope, node) if node.op_type == "ConvTranspose" and not reason else ""
    slots = (0,) if reason or scope.constant(node.input[1]) is not None else (0, 1)
    return WeightedLayer(index, node, reason or unsupported, bool(unsupported), slots)


def _reason(scope: Scope, node: onnx.NodeProto, float_names: frozenset[str], products: str) -> str:
    if node.name in float_names:
        return "asked for"
    if node.op_type not in (*CONVOLUTIONS, *PRODUCTS):
        return f"{node.op_type} is not quantised"
    weight = scope.constant(node.input[1])
    if node.op_type in PRODUCTS and (weight is None or scope.constant(node.input[0]) is not None):
        return _computed_product(scope, node, products)
    if weight is None:
        return "its weight is computed at run time"
    kind = scope.dtype(node.input[1])
    if kind != "float32":
        return f"its weight is {kind}, not float32"
    if node.op_type in PRODUCTS and len(weight.dims) < 2:
        return "its weight is a vector, not a matrix"
    return ""


def _computed_product(scope: Scope, node: onnx.NodeProto, products: str) -> str:
    if scope.constant(node.input[0]) is not None:
        return "its first matrix is the constant one: only the second is quantised by channel"
    if products:
        return products
    kinds = {scope.dtype(name) for name in node.input[:2]} - {"float32"}
    if kinds:
        return f"its matrices are {kinds.pop() or 'of an unknown type'}, not float32"
    first, second = (scope.shape(name) for name in node.input[:2])
    if any(shape is not None and len(shape) < 2 for shape in (first, second)):
        return "one of its matrices is a vector"
    summed = None if first is None else first[-2 if attribute(node, "transA") else -1]
    # As where positions are multiplied with frequencies, or coordinates with a turn: these need all their digits.
    if summed is not None and summed < INT8_CHANNELS:
        return f"it sums {summed} products, of {INT8_CHANNELS} at least in a vector of int8"
    return ""


def _unsupported(scope: Scope, node: onnx.NodeProto) -> str:
    """Returns why no TensorRT is known to compute a deconvolution in int8, or an empty string.

    Source: groups, runs on TensorRT 8.6 (docs/quantization.md), for newer ones nothing else is known; channels, what is
    documented of int8 kernels.
    """
    group = attribute(node, "group", 1)
    if group > 1:
        return f"{_NO_KERNEL} with {group} groups"
    ins, outs = (scope.shape(node.input[1]) or (0, 0))[:2]
    if (ins or 0) % INT8_CHANNELS or (outs or 0) % INT8_CHANNELS:
        reason = f"{_NO_KERNEL} from {ins} to {outs} channels"
        return f"{reason}, which are not multiples of {INT8_CHANNELS}"
    return ""


def slows_down(layers: Iterable[WeightedLayer]) -> tuple[str, ...]:
    """Returns in words what layers without an int8 kernel are to be watched for; nothing where there are none.

    Source: bench/results/gpu-quantize-8.6.json. The U-Net, whose layers all have a kernel, took 0.86 of float16's time.
    """
    names = [layer.name for layer in layers if layer.lacks_kernel]
    if not names:
        return ()
    return (
        f"int8 may not pay here: {names[0]} runs in float on what int8 layers return, and engines of such networks "
        "took 1.03 and 2.13 times as long as in float16 (TensorRT 8.6, H200); time both: trtconv bench A --vs B",
    )


def wants_quantizer_behind(scope: Scope, node: onnx.NodeProto) -> bool:
    """Whether TensorRT computes a layer in int8 only if its result is quantised: 3-D deconvolutions (8.6)."""
    shape = scope.shape(node.input[1])
    return node.op_type == "ConvTranspose" and shape is not None and len(shape) == 5


def behind(scope: Scope, tensor: str) -> str:
    """Returns the tensor that a result becomes behind the activations that are computed with its layer."""
    while True:
        users = scope.consumers.get(tensor, ())
        if scope.uses_of(tensor) != 1 or len(users) != 1 or users[0].op_type not in _ACTIVATIONS:
            return tensor
        tensor = users[0].output[0]
