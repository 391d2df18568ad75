"""MeanVarianceNormalization in the form that keeps its digits."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer

_AXES = (0, 2, 3)
"""Over which it is taken where a node names none."""
_EPSILON = 1e-9


class CentreFirst(Spelling):
    """Writes MeanVarianceNormalization with the variance as the mean of the squares of what is off the mean.

    TensorRT's parser takes the mean of the squares less the square of the mean: of values far from zero, or of a few
    that are nearly the same, that leaves no digit of float32.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x) => (float[2,3,4] y) { y = MeanVarianceNormalization <axes = [2]> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x) => (float[2,3,4] y) <float epsilon = {1e-9}> {
          m = ReduceMean <axes = [2], keepdims = 1> (x)  c = Sub (x, m)  q = Mul (c, c)
          v = ReduceMean <axes = [2], keepdims = 1> (q)  d = Sqrt (v)  e = Add (d, epsilon)  y = Div (c, e)
        }
    """

    name = "centre-first"
    ops = frozenset({"MeanVarianceNormalization"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return scope.dtype(scope.columns.inputs[index][0]) == "float32"

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor, axes = writer.input(0), writer.attrs.get("axes", _AXES)
        centred = writer("Sub", tensor, writer.reduce("ReduceMean", tensor, axes))
        variance = writer.reduce("ReduceMean", writer("Mul", centred, centred), axes)
        deviation = writer("Add", writer("Sqrt", variance), np.array(_EPSILON, np.float32))
        writer("Div", centred, deviation, to=writer.output())
        return None
