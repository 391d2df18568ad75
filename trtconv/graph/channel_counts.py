"""How many channels convolutions take, and whether TensorRT knows that before the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import inner_graphs

CONVOLUTIONS = ("Conv", "ConvTranspose")
_MOST_NODES = 1 << 8
"""That lie between a convolution and what is soon seen to tell its channels; what is further is left to inference."""
_ALIKE = frozenset(
    (  # noqa: SIM905
        "Abs AveragePool BatchNormalization Cast Clip DequantizeLinear Dropout Elu Erf Exp Gelu HardSigmoid HardSwish"
        " Identity InstanceNormalization LeakyRelu MaxPool Mish Neg PRelu QuantizeLinear Relu Selu Sigmoid Softplus"
        " Sqrt Tanh"
    ).split()
)
"""Operators whose result has the channels of their first input."""


def channels_by_weights(scope: Scope, index: int) -> int | None:
    """Returns how many channels a Conv or a ConvTranspose takes; None where its weights' sizes are not known."""
    node = scope.columns.nodes[index]
    shape = scope.shape(node.input[1]) if len(node.input) > 1 else None
    if shape is None or len(shape) < 2:
        return None
    if node.op_type == "ConvTranspose":
        return shape[0]
    return None if shape[1] is None else shape[1] * int(attribute(node, "group", 1))


def are_made(scope: Scope, name: str) -> bool:
    """Whether the channels of a tensor are soon seen to be known: by a convolution, a Reshape, or an input."""
    for _ in range(_MOST_NODES):
        index, columns = scope.producers.get(name), scope.columns
        if index is None:
            return _has_channels(scope, name)
        inputs, is_standard = columns.inputs[index], columns.domains[index] in ONNX_DOMAINS
        if columns.ops[index] in CONVOLUTIONS and is_standard and len(inputs) > 1:
            return scope.initializer(inputs[1]) is not None
        if columns.ops[index] == "Reshape" and is_standard:
            sizes = _stated_sizes(scope, index)
            return sizes is not None and bool(sizes[1] > 0)
        if columns.ops[index] not in _ALIKE or not is_standard or not inputs:
            return False
        name = inputs[0]
    return False


def _has_channels(scope: Scope, name: str) -> bool:
    """Whether a graph states how many channels an input of it has."""
    stated = next((value.type.tensor_type for value in scope.graph.input if value.name == name), None)
    return stated is not None and len(stated.shape.dim) > 1 and stated.shape.dim[1].dim_value > 0


def _stated_sizes(scope: Scope, index: int) -> NDArray[Any] | None:
    """Returns the constant sizes that a Reshape is given, two or more; None where there are none."""
    inputs = scope.columns.inputs[index]
    sizes = scope.values(inputs[1]) if len(inputs) > 1 else None
    return sizes if sizes is not None and sizes.ndim == 1 and sizes.size > 1 else None


def are_known(model: OnnxModel, scope: Scope, name: str) -> bool:
    """Whether the channels of a tensor follow from inputs, weights and nodes.

    What a file states for tensors between nodes does not count: TensorRT reads none of it.
    """
    derived = model.whole.derived
    if "bare" not in derived:
        proto = model.skeleton()
        for graph in (proto.graph, *inner_graphs(proto.graph.node)):
            del graph.value_info[:]
            for value in graph.output:
                value.type.tensor_type.ClearField("shape")
        derived["bare"] = OnnxModel(proto, model.path)
    bare: OnnxModel = derived["bare"]
    shape = bare.scopes[scope.position].shape(name)
    return shape is not None and len(shape) > 1 and shape[1] is not None


def dims_by_weights(model: OnnxModel) -> dict[str, int]:
    """Returns the dynamic dimensions of inputs that are channels of convolutions, with the sizes that weights allow."""
    # Where the second axis of all is known, so are the channels, wherever they lie.
    is_free = any(len(spec.dims) > 2 and isinstance(spec.dims[1], str) for spec in model.inputs)
    counts = list(_counts(model.main)) if is_free else []
    if not counts:
        return {}
    declared = {spec.name: spec.dims for spec in model.inputs}
    inferred = {value.name: value.type.tensor_type.shape.dim for value in model.whole.inferred[0]}
    sizes: dict[str, set[int]] = {}
    for name, count in counts:
        dims = declared.get(name) or [dim.dim_param for dim in inferred.get(name, ())]
        dim = dims[1] if len(dims) > 1 else ""
        if isinstance(dim, str):
            sizes.setdefault(dim, set()).add(count)
    return {dim: allowed.pop() for dim, allowed in sizes.items() if dim and len(allowed) == 1}


def _counts(scope: Scope) -> Iterator[tuple[str, int]]:
    """Yields what goes into convolutions whose channels are not soon seen to be known, or into a Reshape to them."""
    columns = scope.columns
    for index in scope.positions(*CONVOLUTIONS):
        name, count = next(iter(columns.inputs[index]), ""), channels_by_weights(scope, index)
        if name and count is not None and not are_made(scope, name):
            yield name, count
    for index in scope.positions("Reshape"):
        sizes = _stated_sizes(scope, index)
        # As `state-channels` writes them: 0 keeps a size.
        if sizes is not None and sizes[1] > 0 and not sizes[0] | sizes[2:].any():
            yield columns.inputs[index][0], int(sizes[1])
