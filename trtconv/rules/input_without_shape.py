"""TC002."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding, Location
from trtconv.core.target import Target
from trtconv.rules.base import ModelView, Rule


class InputWithoutShape(Rule):
    """A graph input is no tensor, or does not say how many dimensions it has.

    What it checks:
        Every graph input that is no initializer is a tensor with a shape.
    Why TensorRT cares:
        The rank of every input must be known when a network is built; sequences, maps and optionals do not exist.
        An input without a shape is read as a scalar.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[] x) => (float[] y) { y = Relu(x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,3,h,w] x) => (float[n,3,h,w] y) { y = Relu(x) }
    Fix:
        Export the model with the input's rank; dynamic sizes get a name each.
    Source:
        TensorRT developer guide, working with dynamic shapes.
    """

    code = "TC002"
    name = "input-without-shape"
    fix = "Export the model with the rank of every input; give dynamic sizes a name each."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for value in view.model.proto.graph.input:
            if value.name in view.model.main.initializers or value.type.tensor_type.HasField("shape"):
                continue
            yield self.finding(f"input {value.name!r} is not a tensor with a shape", Location(tensor=value.name))
