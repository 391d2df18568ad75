"""Sizes at which a model as it lies in its file means something else than what passes that freed sizes made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtconv.core.dims import Shape
from trtconv.core.documents.build import BuildPlan
from trtconv.engine.rebuilding import rewrite_of
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.inputs import Feeds
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.model_shapes import model_shapes

OTHERWISE = (
    "the file has sizes of its exporter's example, and takes these for others; the engine has them freed (TC213)"
)


def means_otherwise(
    model: OnnxModel, plan: BuildPlan, feeds: Feeds, actual: Mapping[str, Any], expected: Feeds
) -> bool:
    """Whether outputs have other shapes than those of the file because passes freed its sizes, and for nothing else.

    Args:
        model: The model as its file has it.
        plan: How it was built.
        feeds: What it was run with.
        actual: What was made of that.
        expected: What the file makes of it.
    """
    others = [name for name in expected if name in actual and actual[name].shape != expected[name].shape]
    if not others:
        return False
    shapes = _freed_shapes(model, plan, {name: array.shape for name, array in feeds.items()})
    return all(shapes.get(name) == actual[name].shape for name in others)


def _freed_shapes(model: OnnxModel, plan: BuildPlan, inputs: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """Returns the shapes of tensors of the model as passes made it; nothing where they freed none."""
    rewritten, promise = rewrite_of(model, plan)
    if not promise.frees_sizes:
        return {}
    point = {
        dim: inputs[spec.name][axis]
        for spec in model.inputs
        for axis, dim in enumerate(spec.dims)
        if isinstance(dim, str)
    }
    sizes = Sizes(rewritten)
    return model_shapes(sizes, [point])[0] if point.keys() >= set(sizes.names) else {}
