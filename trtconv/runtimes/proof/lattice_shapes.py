"""The shapes of all tensors of a model at one size of its inputs, by the size lattice."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.dims import Shape
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import sizes_of
from trtconv.shapes.model_shapes import model_shapes


def shapes_by_lattice(model: OnnxModel, inputs: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """Returns what the size lattice knows: sizes that are computed and read by Expand, Tile and Reshape are beyond
    ONNX's inference, and a run of a large network at its own sizes costs too much."""
    sizes = sizes_of(model)
    point = {
        dim: size
        for spec in model.inputs
        for dim, size in zip(spec.dims, inputs.get(spec.name, ()), strict=False)
        if isinstance(dim, str)
    }
    if not set(sizes.names) <= set(point):
        return {}
    (shapes,) = model_shapes(sizes, [point])
    return shapes
