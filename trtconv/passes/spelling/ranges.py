"""Writes ranges of numbers whose count the model declares."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class RangeBySize(Spelling):
    """Writes Range of floats known only at run time as so many steps as its output is declared to have.

    Before:
        <ir_version: 8, opset_import: ["": 11]>
        g (float a, float b) => (float[1] y) <float one = {1}, float h = {0.5}>
        { c = Add (a, h)  y = Range (a, c, one) }
    After:
        <ir_version: 8, opset_import: ["": 11]>
        g (float a, float b) => (float[1] y) <float one = {1}, float[1] at = {0}> { s = Mul (at, one)  y = Add (a, s) }
    """

    name = "range-by-size"
    ops = frozenset({"Range"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        return (scope.dtype(inputs[0]) or "").startswith(("float", "bfloat", "double")) and any(
            scope.constant(name) is None for name in inputs
        )

    def write(self, writer: Writer, target: Target) -> str | None:
        if all(writer.resolve(name) is not None for name in writer.node.input):
            raise Unwritable
        (count,) = writer.sizes(writer.output())
        steps = np.arange(count).astype(writer.dtype(writer.input(0)))
        writer("Add", writer.input(0), writer("Mul", steps, writer.input(2)), to=writer.output())
        return None
