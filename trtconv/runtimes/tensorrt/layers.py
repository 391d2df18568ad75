"""Reads layers and tensors of a parsed network into plain values."""

from __future__ import annotations

import re
from typing import Any

from trtconv.core.documents.tensors import TensorInfo
from trtconv.runtimes.tensorrt.base import DeconvLayer

_DTYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "FP8": "float8", "FP4": "float4"}

# "[ONNX Layer: up | then (then_branch) | if (If)]"; fused layers carry several of these.
ONNX_LAYER = re.compile(r"\[ONNX Layer: (.*?)\](?=$|[^\]\w])", re.DOTALL)


_NAMES: dict[tuple[type, int], str] = {}


def enum_name(value: Any) -> str:
    """Returns the name of one of TensorRT's enumeration values, whose own `name` compares all of them each time."""
    try:
        key = type(value), int(value)
    except TypeError:
        return str(value.name)
    if key not in _NAMES:
        _NAMES[key] = str(value.name)
    return _NAMES[key]


def dtype_name(dtype: Any) -> str:
    """Names a DataType as numpy would: "float32", "int8", "bfloat16"."""
    return numpy_name(enum_name(dtype))


def numpy_name(name: str) -> str:
    """Returns what numpy would call the DataType of that name: "float32" for "FLOAT"."""
    return _DTYPES.get(name, name.lower())


def sizes_of(dims: Any) -> tuple[int, ...]:
    """Returns a `Dims` as a tuple; not by iterating over it, which ends in a C++ exception that takes longer than all.

    Raises:
        ValueError: Not even the rank is known: the length is -1.
    """
    return tuple(dims[: len(dims)])


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Returns a tensor's shape, -1 where dynamic; () also where not even the rank is known, or TensorRT fails at it, as
    of a constant of a type that it has not."""
    try:
        return sizes_of(tensor.shape)
    except (RuntimeError, ValueError):
        return ()


def tensor_info(tensor: Any, kind: str) -> TensorInfo:
    """Describes a network input or output; `kind` is "input" or "output"."""
    return TensorInfo(tensor.name, kind, dtype_name(tensor.dtype), shape_of(tensor))


def onnx_origin(metadata: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Finds the ONNX node that a layer came from.

    Args:
        metadata: The layer's metadata, possibly empty.
        name: The layer's name.

    Returns:
        The node's name, and what it sits in, outermost first, as the parser writes it: ("if (If)",
        "then (then_branch)") in a branch, ("call1 (Up)",) in a model-local function, () in the main graph and, since
        the parser does not say it there, in a Loop or Scan body.
    """
    match = ONNX_LAYER.search(metadata)
    if match is None:
        return name, ()
    node, *inside = match[1].split(" | ")
    return node or name, tuple(reversed(inside))


def read_deconvolution(trt: Any, layer: Any) -> DeconvLayer:
    """Reads an IDeconvolutionLayer.

    Args:
        layer: A layer of type DECONVOLUTION, as `get_layer` returned it.
    """
    # get_layer returns a plain ILayer; NVIDIA's own tools go down to the class of the layer in this way.
    layer.__class__ = trt.IDeconvolutionLayer
    node, inside = onnx_origin(layer.metadata, layer.name)
    output = layer.get_output(0)
    return DeconvLayer(
        name=layer.name,
        onnx_node=node,
        kernel=sizes_of(layer.kernel_size_nd),
        stride=sizes_of(layer.stride_nd),
        dilation=sizes_of(layer.dilation_nd),
        pre_padding=sizes_of(layer.pre_padding),
        post_padding=sizes_of(layer.post_padding),
        padding_mode=enum_name(layer.padding_mode),
        groups=layer.num_groups,
        out_channels=layer.num_output_maps,
        has_bias=_has_bias(layer),
        input_shape=shape_of(layer.get_input(0)),
        output_shape=shape_of(output),
        output=output.name,
        inside=inside,
    )


def _has_bias(layer: Any) -> bool:
    """A bias is a third input where it is computed, else weights; the weights are then empty."""
    if layer.num_inputs > 2 and layer.get_input(2) is not None:
        return True
    bias = layer.bias
    return bias is not None and bias.size > 0
