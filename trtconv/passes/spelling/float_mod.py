"""Writes the remainder of floats that has the sign of its divisor."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer


class FloatMod(Spelling):
    """Writes Mod of floats that has the sign of its divisor, which TensorRT has of integers alone.

    Before:
        <ir_version: 11, opset_import: ["": 28]>
        g (float[4] x, float[4] z) => (float[4] y) { y = Mod (x, z) }
    After:
        <ir_version: 11, opset_import: ["": 28]>
        g (float[4] x, float[4] z) => (float[4] y) <float zero = {0}>
        {
          r = Mod <fmod = 1> (x, z)  s = Sign (r)  t = Sign (z)  p = Mul (s, t)  o = Less (p, zero)
          w = Add (r, z)  y = Where (o, w, r)
        }
    """

    name = "float-mod"
    ops = frozenset({"Mod"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        # 8.6 has another remainder of infinities, and was seen to be wrong.
        if target.before(9) or attribute(columns.nodes[index], "fmod"):
            return False
        return (scope.dtype(columns.inputs[index][0]) or "").startswith(("float", "bfloat", "double"))

    def write(self, writer: Writer, target: Target) -> str | None:
        dtype = writer.dtype(writer.input(0))
        by = writer.input(1)
        rest = writer.model.fresh_name(f"{writer.output()}_rest")
        writer.again(list(writer.node.input), [rest], fmod=1)
        # TensorRT has no remainder of a division by an infinity; it is the number itself.
        endless = writer("Equal", writer("Abs", by), np.array(np.inf, dtype))
        rest = writer("Where", endless, writer.input(0), rest)
        zero = np.zeros((), dtype)
        other = writer("Less", writer("Mul", writer("Sign", rest), writer("Sign", by)), zero)
        writer("Where", other, writer("Add", rest, by), rest, to=writer.output())
        return None
