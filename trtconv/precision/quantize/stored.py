"""Weights that a graph computes of constants, such as a transposed one, stored as what they come to."""

from __future__ import annotations

from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.operators import CONVOLUTIONS, PRODUCTS


def store_weights(model: OnnxModel) -> None:
    """Makes a constant of every weight of the main graph that is computed of constants alone, in place.

    Quantised weights are stored as integers, with a scale for each channel of what the layer reads.
    """
    scope = model.main
    inputs = scope.columns.inputs

    def is_computed(index: int) -> bool:
        weight = inputs[index][1]
        return weight in scope.producers and scope.constant(weight) is None

    ops = (*CONVOLUTIONS, *PRODUCTS)
    if not any(map(is_computed, scope.positions(*ops))):
        return
    field = Field(model, scope, ops, is_computed, looks_around=False)
    for node in field.candidates:
        values = field.fold(node.inputs[1])
        if values is not None:
            node.inputs[1] = field.constant(f"{node.inputs[1].name}.stored", values)
            field.replace(node, [node])
    if field.close():
        model.touch()
