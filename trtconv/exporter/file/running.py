"""A file in ONNX Runtime, however that can be: as it is, with references, or in float32 where it lacks kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import uses_external_data

from trtconv.core.frozen import frozen
from trtconv.exporter.file.finish import custom_domains
from trtconv.exporter.file.write import ONE_PIECE_LIMIT
from trtconv.graph.external_data import raw_chunks
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import all_nodes, inner_graphs, tensors
from trtconv.runtimes.compare import same_network
from trtconv.runtimes.light_session import LightSession, is_large, make_inputs, without_values
from trtconv.runtimes.onnxruntime import session, session_of

Weights = Mapping[str, NDArray[Any]]


@frozen
class NotLoaded:
    """Why ONNX Runtime does not load a file.

    Args:
        why: In its words.
        foreign: Whether the file has operators that are not ONNX's, which may be the reason.
    """

    why: str
    foreign: bool


@frozen
class Running:
    """A file in ONNX Runtime.

    Args:
        session: What runs it.
        inputs: The inputs that it has.
        widened: Whether it is in float32 where the file is in float64 or bfloat16.
    """

    session: Any
    inputs: frozenset[str]
    widened: bool = False

    def limit(self, limit: float) -> float:
        """Returns a tolerance that float32 can keep."""
        return max(limit, same_network({"float32"}, False)) if self.widened else limit


_MAPPED = 256 << 20
"""Bytes of weights beyond which they are not copied: a comparison runs a file a few times."""


def _bytes_beside(path: Path) -> int:
    """Returns the size of a file's external data."""
    return sum(file.stat().st_size for file in path.parent.iterdir() if file != path and file.is_file())


def run_file(path: Path, weights: Callable[[], Weights] = dict) -> Running | NotLoaded:
    """Loads a file; references run operators that are not ONNX's.

    Args:
        path: The file.
        weights: Returns weights that are in memory anyway, by name. Large files' are not loaded a second time.
    """
    proto = onnx.load(path, load_external_data=False)
    foreign, wide = bool(custom_domains(proto)), None
    heavy = _bytes_beside(path) > _MAPPED
    loaded = _session_on(proto, path, weights()) if heavy else session_of(path, path.parent)
    if isinstance(loaded, str) and foreign:
        loaded = session(OnnxModel.load(path))
    elif isinstance(loaded, str) and (wide := in_float32(path)) is not None:
        loaded = session_of(wide, path.parent)
    if isinstance(loaded, str):
        return NotLoaded(f"ONNX Runtime does not load the file: {loaded}", foreign)
    return Running(loaded, frozenset(value.name for value in proto.graph.input), wide is not None)


def _session_on(proto: onnx.ModelProto, path: Path, weights: Weights) -> Any:
    """Returns a session that takes the file's weights where they are held, and maps the others from the file.

    Args:
        proto: What is in the file.
        path: The file; its external data lies beside it.
        weights: Weights by name; those that are not the file's, byte for byte, are left alone.
    """
    outputs = {value.name for value in proto.graph.output}
    values = {
        tensor.name: weights[tensor.name]
        for tensor in proto.graph.initializer
        if tensor.name in weights.keys() - outputs
        and is_large(tensor)
        and uses_external_data(tensor)
        and _are_values(tensor, path, weights[tensor.name])
    }
    if not values:
        return session_of(path, path.parent, mapped=True)
    light = without_values(proto, values)
    make_inputs(light, values)
    loaded = session_of(light.SerializeToString(), path.parent, mapped=True)
    return loaded if isinstance(loaded, str) else LightSession(loaded, values)


def _are_values(tensor: TensorProto, path: Path, values: NDArray[Any]) -> bool:
    """Whether values are those of a tensor in a file, byte for byte."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if values.dtype != dtype or values.shape != tuple(tensor.dims) or not values.flags.c_contiguous:
        return False
    own, at = values.reshape(-1).view(np.uint8), 0
    for chunk in raw_chunks(tensor, path):
        if own[at : at + len(chunk)].tobytes() != chunk:
            return False
        at += len(chunk)
    return at == own.size


_WIDENED = frozenset({TensorProto.DOUBLE, TensorProto.BFLOAT16})


def in_float32(path: Path) -> bytes | None:
    """Returns a model with float32 in place of float64 and bfloat16, serialized.

    None where it has neither, or is too large for one message.

    Args:
        path: The model; its external data lies beside it.
    """
    proto = onnx.load(path)
    if proto.ByteSize() > ONE_PIECE_LIMIT or not _WIDENED.intersection(_element_types(proto)):
        return None
    nodes = [node for function in proto.functions for node in function.node] + list(proto.graph.node)
    for graph in (proto.graph, *inner_graphs(nodes)):
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type in _WIDENED:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for tensor in graph.initializer:
            _widen(tensor)
    for function in proto.functions:
        del function.value_info[:]
    for node in all_nodes(nodes):
        for tensor in tensors(node.attribute):
            _widen(tensor)
        for attribute in _types(node):
            attribute.i = TensorProto.FLOAT
    data: bytes = proto.SerializeToString()
    return data


def _element_types(proto: onnx.ModelProto) -> Iterator[int]:
    """Yields the types of inputs, outputs and weights."""
    yield from (value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output))
    yield from (tensor.data_type for tensor in proto.graph.initializer)


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type in _WIDENED:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _types(node: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    """Yields the attributes that say of which type a result is, where it is one that is widened."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "stash_type") and attribute.i in _WIDENED:
            yield attribute
