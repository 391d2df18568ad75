"""Names of dynamic dimensions: which of those in a file say something."""

from __future__ import annotations

import itertools

import onnx

from trtconv.core.dims import InputSpec
from trtconv.graph.types import dtype_name

_MEANINGLESS = frozenset(("", "?", "-1", "None", "unk"))
"""What exporters write for any unknown axis. Taken for names, as TensorRT takes them, they would say "equal sizes"."""


def forget_meaningless(graph: onnx.GraphProto) -> None:
    """Clears the names of a graph's dimensions that are none; the dimensions stay dynamic."""
    if _cleared(graph.input) + _cleared(graph.output):
        _cleared(graph.value_info)


def input_spec(value: onnx.ValueInfoProto) -> InputSpec:
    """Describes an input; a dimension without a name is called INPUT:AXIS."""
    tensor = value.type.tensor_type
    dims: list[int | str] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param if dim.dim_param not in _MEANINGLESS else f"{value.name}:{axis}")
    return InputSpec(value.name, dtype_name(tensor.elem_type), tuple(dims))


def _cleared(values: object) -> int:
    shapes = (value.type.tensor_type.shape.dim for value in values)  # type: ignore[attr-defined]
    dims = [dim for dim in itertools.chain.from_iterable(shapes) if dim.dim_param in _MEANINGLESS - {""}]
    for dim in dims:
        dim.ClearField("dim_param")
    return len(dims)
