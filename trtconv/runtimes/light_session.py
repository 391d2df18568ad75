"""Sessions of ONNX Runtime that take large weights where they lie: as inputs, and not as four copies of the file's.

A session copies what is in a model as it parses it, and again into tensors of its own, beside the serialized model and
the one that this was made of.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx.external_data_helper import uses_external_data

from trtconv.graph.external_data import lies_in
from trtconv.graph.model import OnnxModel

_LARGE_ELEMENTS = 1 << 13
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
"""Types of weights that no operator needs before it runs, as some do lists of sizes."""


def is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is large enough to be worth a thought, and nothing that an operator must know before it runs."""
    return tensor.data_type in _FLOATS and math.prod(tensor.dims) >= _LARGE_ELEMENTS


def large_weights(model: OnnxModel) -> dict[str, onnx.TensorProto]:
    """Returns the initializers of the main graph that may become inputs, by name; external data is not among them."""
    graph = model.proto.graph
    ends = {value.name for value in (*graph.input, *graph.output)}
    return {
        tensor.name: tensor
        for tensor in graph.initializer
        if is_large(tensor)
        and tensor.name not in ends
        and (not uses_external_data(tensor) or lies_in(tensor, model.path))
    }


def without_values(proto: onnx.ModelProto, large: Collection[str]) -> onnx.ModelProto:
    """Returns a copy of a model in which these initializers have shapes and types alone."""
    copy = onnx.ModelProto(ir_version=proto.ir_version)
    copy.opset_import.extend(proto.opset_import)
    copy.functions.extend(proto.functions)
    source, graph = proto.graph, copy.graph
    graph.name = source.name
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, field).extend(getattr(source, field))
    for tensor in source.initializer:
        if tensor.name in large:
            graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        else:
            graph.initializer.append(tensor)
    return copy


def make_inputs(proto: onnx.ModelProto, large: Collection[str]) -> None:
    """Makes inputs of initializers; the model is changed."""
    graph = proto.graph
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        if tensor.name in large:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
            del graph.initializer[index]


def give_values(tensor: onnx.TensorProto, values: NDArray[Any]) -> None:
    """Gives a tensor other values of its type and shape, without the copies that another tensor would be."""
    for field in ("float_data", "int32_data", "double_data", "external_data", "data_location"):
        tensor.ClearField(field)
    tensor.raw_data = values.tobytes()


class LightSession:
    """Runs a model as an InferenceSession would.

    Args:
        session: The session, of which weights are inputs.
        weights: Those weights by name.
    """

    def __init__(self, session: Any, weights: Mapping[str, NDArray[Any]]) -> None:
        self._session = session
        self._weights = weights

    def get_inputs(self) -> list[Any]:
        """Returns the inputs that are no weights."""
        return [entry for entry in self._session.get_inputs() if entry.name not in self._weights]

    def get_outputs(self) -> Sequence[Any]:
        """Returns the outputs."""
        outputs: Sequence[Any] = self._session.get_outputs()
        return outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Runs the model; raises whatever ONNX Runtime does.

        Args:
            names: Outputs that are wanted; None: all.
            feeds: Its inputs.
        """
        results: list[Any] = self._session.run(names, {**feeds, **self._weights})
        return results
