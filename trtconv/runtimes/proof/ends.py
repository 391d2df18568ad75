"""What a network takes and returns, beside what its model does: names, types and sizes, which no piece compares."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trtconv.graph.model import OnnxModel
from trtconv.graph.output_types import misdeclared_types
from trtconv.graph.types import known_dtype_name
from trtconv.runtimes.proof.result import Divergence
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork, ReadTensor
from trtconv.runtimes.tensorrt.readback.types import numpy_name

_NARROWED = {("int64", "int32"), ("float64", "float32"), ("uint64", "int64")}
"""Types that TensorRT has no room for, and what it takes instead."""


def ends_that_differ(network: ReadNetwork, model: OnnxModel) -> Iterator[Divergence]:
    """Yields the inputs and outputs that have another type than the model's of their name.

    Args:
        network: The network.
        model: The model as the parser was given it.
    """
    own = {name: known_dtype_name(kind) for name, (_, kind) in misdeclared_types(model).items()}
    for number in (*network.inputs, *network.outputs):
        tensor = network.tensors[number]
        # What a file declares of an output is not what the model means where its own node makes another type.
        declared = own.get(tensor.name) or model.main.dtype(tensor.name)
        if declared not in (None, numpy_name(tensor.dtype)) and (declared, tensor.dtype) not in _NARROWED:
            yield _divergence(network, tensor, f"its type is {tensor.dtype} instead of {declared}")


def are_made(network: ReadNetwork, model: OnnxModel, targets: Collection[int]) -> bool:
    """Whether a network takes what its model takes, and returns what the model returns, all of it made by pieces.

    No piece makes what follows from sizes alone. Nor does one say that a tensor from which others start became an
    input, or that an input became a constant, or has other sizes.

    Args:
        network: The network.
        model: The model as the parser was given it.
        targets: Numbers of the tensors that pieces make.
    """
    inputs = {network.tensors[number].name: network.tensors[number].shape for number in network.inputs}
    declared = {spec.name: tuple(-1 if isinstance(size, str) else size for size in spec.dims) for spec in model.inputs}
    returned = {network.tensors[number].name for number in network.outputs}
    is_made = set(network.outputs) <= {*network.inputs, *targets}
    return inputs == declared and returned == set(model.outputs) and is_made


def _divergence(network: ReadNetwork, tensor: ReadTensor, why: str) -> Divergence:
    layer = next((candidate for candidate in network.layers if tensor.index in candidate.outputs), None)
    if layer is None:
        return Divergence(tensor.name, "", "", "", why, {})
    return Divergence(tensor.name, layer.onnx_node, layer.name, layer.kind, why, {})
