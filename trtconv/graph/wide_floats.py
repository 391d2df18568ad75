"""A model with its narrow floats in float32: what it computes but for their rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import all_nodes, inner_graphs, tensors

_NARROW = {TensorProto.FLOAT16: (2.0**-10, 2.0**-24), TensorProto.BFLOAT16: (2.0**-7, 2.0**-133)}
"""By type, how far apart numbers are: relatively, and at the least."""
_ROUNDING = "trtconv.rounding:"
"""How the names of Casts begin that only round."""
_SUFFIXES = ("_fp16", "_bf16")
_TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type"}
)
"""Attributes of ONNX's operators that hold a type."""


def in_float32(model: OnnxModel, before: OnnxModel | None = None) -> OnnxModel:
    """Returns a copy of a model in which whatever is float16 or bfloat16 is float32, inputs and outputs too.

    Args:
        model: The model.
        before: What it is a cast of: a constant that is one of these, rounded, has its values; None: all constants have
            those that they have in the model.
    """
    wide = model.copy()
    _widen(wide, before)
    return wide


def emulation_in_float32(model: OnnxModel) -> OnnxModel:
    """Returns the same, with what nodes make rounded to the type that it has in the model: runs where that type lacks
    kernels."""
    wide = model.copy()
    _round(wide)
    _widen(wide, None)
    return wide


def _round(model: OnnxModel) -> None:
    """Puts two Casts behind whatever is narrow, to its type and to float32."""
    for scope in model.scopes:
        nodes: list[onnx.NodeProto] = []
        for node in scope.columns.nodes:
            nodes.append(node)
            for slot, name in enumerate(node.output):
                kind = scope.types.get(name, 0) if name else 0
                if kind in _NARROW:
                    exact, between = model.fresh_name(f"{name}_exact"), model.fresh_name(f"{name}_rounded")
                    node.output[slot] = exact
                    nodes.append(helper.make_node("Cast", [exact], [between], to=kind, name=f"{_ROUNDING}{between}"))
                    nodes.append(helper.make_node("Cast", [between], [name], to=TensorProto.FLOAT))
        del scope.graph.node[:]
        scope.graph.node.extend(nodes)
    model.touch()


def _widen(wide: OnnxModel, before: OnnxModel | None) -> None:
    for tensor in _tensors(wide.proto):
        if tensor.data_type in _NARROW:
            rounded = wide.array(tensor)
            exact = None if before is None else _exact(before, tensor.name, rounded, _NARROW[tensor.data_type])
            values = rounded.astype(np.float32) if exact is None else exact
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for graph in _graphs(wide.proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _NARROW:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in _nodes(wide.proto):
        if node.name.startswith(_ROUNDING):
            continue
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
                attribute.i = TensorProto.FLOAT
    wide.touch()


def _exact(before: OnnxModel, name: str, rounded: NDArray[Any], steps: tuple[float, float]) -> NDArray[Any] | None:
    """Returns the constant that a cast rounded, if it did: of its own name with the type behind it."""
    step, least = steps
    for suffix in _SUFFIXES:
        values = before.main.values(name.rpartition(suffix)[0]) if suffix in name else None
        if values is not None and values.dtype == np.float32 and values.shape == rounded.shape:
            with np.errstate(all="ignore"):
                gaps = np.abs(values - rounded.astype(np.float32))
                # What is too small to be told from zero became the smallest number.
                near = gaps <= step * np.abs(values) + least
            same = near | (values == rounded) | np.isnan(values) & np.isnan(rounded)
            return values if same.all() else None
    return None


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from all_nodes(proto.graph.node)
    for function in proto.functions:
        yield from all_nodes(function.node)


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield proto.graph
    yield from inner_graphs(proto.graph.node)
    for function in proto.functions:
        yield from inner_graphs(function.node)


def _tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    for graph in _graphs(proto):
        yield from graph.initializer
    for node in _nodes(proto):
        yield from tensors(node.attribute)
