"""GridSample at places of another type than float32, which ONNX Runtime has no kernel for.

PyTorch's exporter makes them of float64 where it divides by sizes. As float32, which TensorRT takes them for, a place
is moved by a unit of rounding.

Source: ONNX operator GridSample.
"""

from __future__ import annotations

import onnx

from trtconv.graph.attributes import attributes_of
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing


def write_grid_sample(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a Cast of the places to float32, where the values are that."""
    node = scope.columns.nodes[index]
    values, places = node.input
    if scope.dtype(values) != "float32" or scope.dtype(places) not in ("float64", "float16"):
        return False
    grid = writing.compute("Cast", places, to=onnx.TensorProto.FLOAT)
    writing.compute("GridSample", values, grid, **attributes_of(node))
    writing.finish()
    return True
