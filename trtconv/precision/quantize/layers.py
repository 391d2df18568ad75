"""Which layers of a float network can be computed in int8, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from trtconv.core.frozen import frozen
from trtconv.graph.deconv import INT8_CHANNELS
from trtconv.graph.scope import Scope
from trtconv.precision.quantize.kinds import INT8, QuantizationKind
from trtconv.precision.quantize.operators import CONVOLUTIONS, PRODUCTS, WEIGHTED

_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "Elu", "HardSigmoid", "HardSwish", "PRelu"})
"""What TensorRT computes together with the layer in front of it."""
_NO_KERNEL = "TensorRT has no int8 deconvolution"
NEEDS_QUANTIZER = "TensorRT computes a 3-D deconvolution in int8 only if its result is quantised"
"""Why a layer stays in float behind which no quantiser stands."""


@frozen
class WeightedLayer:
    """A node with weights.

    Args:
        index: Its position in the main graph.
        node: The node.
        reason: Why it stays in float; empty where it can be quantised.
        lacks_kernel: Whether that is because TensorRT has no int8 kernel for it.
    """

    index: int
    node: onnx.NodeProto
    reason: str
    lacks_kernel: bool = False

    @property
    def name(self) -> str:
        """The node's name, which it must have."""
        return str(self.node.name)


def find_layers(scope: Scope, in_float: Iterable[str] = (), kind: QuantizationKind = INT8) -> tuple[WeightedLayer, ...]:
    """Returns the layers with weights of the main graph, in its order.

    Args:
        scope: The main graph of a float model.
        in_float: Names of nodes that the user wants to stay in float.
        kind: What layers are quantised to.
    """
    float_names = frozenset(in_float)
    indices = sorted(index for op in WEIGHTED for index in scope.by_op.get(op, ()))
    return tuple(_layer(scope, index, node, float_names, kind) for index in indices if (node := _at(scope, index)))


def _layer(
    scope: Scope, index: int, node: onnx.NodeProto, float_names: frozenset[str], kind: QuantizationKind
) -> WeightedLayer:
    reason = _reason(scope, node, float_names) or kind.reason(node, scope.shape(node.input[1]) or ())
    unsupported = _unsupported(scope, node) if node.op_type == "ConvTranspose" and not reason else ""
    return WeightedLayer(index, node, reason or unsupported, bool(unsupported))


def _at(scope: Scope, index: int) -> onnx.NodeProto:
    return scope.columns.nodes[index]


def _reason(scope: Scope, node: onnx.NodeProto, float_names: frozenset[str]) -> str:
    if node.name in float_names:
        return "asked for"
    if node.op_type not in (*CONVOLUTIONS, *PRODUCTS):
        return f"{node.op_type} is not quantised"
    weight = None if len(node.input) < 2 else scope.constant(node.input[1])
    if node.op_type in PRODUCTS and (weight is None or scope.constant(node.input[0]) is not None):
        return _computed_product(scope, node)
    if weight is None:
        return "its weight is computed at run time"
    kind = scope.dtype(node.input[1])
    if kind != "float32":
        return f"its weight is {kind}, not float32"
    if node.op_type in PRODUCTS and len(weight.dims) < 2:
        return "its weight is a vector, not a matrix"
    return ""


def _computed_product(scope: Scope, node: onnx.NodeProto) -> str:
    if scope.constant(node.input[0]) is None:
        return "both matrices are computed, as in attention, which stays in float"
    return "its first matrix is the constant one: only the second is quantised by channel"


def _unsupported(scope: Scope, node: onnx.NodeProto) -> str:
    """Returns why no TensorRT is known to compute a deconvolution in int8, or an empty string.

    Source: groups, runs on TensorRT 8.6 (docs/quantization.md), for newer ones nothing else is known; channels, what is
    documented of int8 kernels.
    """
    group = next((a.i for a in node.attribute if a.name == "group"), 1)
    if group > 1:
        return f"{_NO_KERNEL} with {group} groups"
    ins, outs = (scope.shape(node.input[1]) or (0, 0))[:2]
    if (ins or 0) % INT8_CHANNELS or (outs or 0) % INT8_CHANNELS:
        said = f"{_NO_KERNEL} from {ins} to {outs} channels"
        return f"{said}, which are not multiples of {INT8_CHANNELS}"
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
