"""Writes normalizations and dropouts of training as what they compute."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MASKS_SINCE = 12
"""Opset from which on ONNX says what the mask of a Dropout holds that drops nothing."""


class NormalizeByBatch(Spelling):
    """Writes BatchNormalization in training mode as the mean and variance of the batch.

    Before:
        <ir_version: 8, opset_import: ["": 15]>
        g (float[4,1,2] x) => (float[4,1,2] y, float[1] m, float[1] v)
        <float[1] s = {1}, float[1] b = {0}, float[1] n = {0}, float[1] w = {1}>
        { y, m, v = BatchNormalization <training_mode = 1, momentum = 1.0, epsilon = 1.0> (x, s, b, n, w) }
    After:
        <ir_version: 8, opset_import: ["": 15]>
        g (float[4,1,2] x) => (float[4,1,2] y, float[1] m, float[1] v) <float[1] n = {0}, float[1] one = {1}>
        {
          a = ReduceMean <axes = [0, 2]> (x)  d = Sub (x, a)  q = Mul (d, d)  r = ReduceMean <axes = [0, 2]> (q)
          e = Add (r, one)  t = Sqrt (e)  y = Div (d, t)  m = Identity (n)  v = Identity (one)
        }
    """

    name = "normalize-by-batch"
    ops = frozenset({"BatchNormalization"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return bool(attribute(scope.columns.nodes[index], "training_mode"))

    def write(self, writer: Writer, target: Target) -> str | None:
        x, scale, shift = (writer.input(slot) for slot in range(3))
        rank, dtype = len(writer.shape(x)), writer.dtype(x)
        axes = [axis for axis in range(rank) if axis != 1]
        mean = writer.reduce("ReduceMean", x, axes)
        centred = writer("Sub", x, mean)
        variance = writer.reduce("ReduceMean", writer("Mul", centred, centred), axes)
        spread = writer("Sqrt", writer("Add", variance, np.array(writer.attrs.get("epsilon", 1e-5), dtype)))
        columns = [-1, *[1] * (rank - 2)]
        scaled = writer("Mul", writer("Div", centred, spread), writer.reshape(scale, columns))
        writer("Add", scaled, writer.reshape(shift, columns), to=writer.output())
        share = float(writer.attrs.get("momentum", 0.9))
        for slot, own in ((1, mean), (2, variance)):
            if writer.output(slot):
                past = writer("Mul", writer.input(slot + 2), np.array(share, dtype))
                fresh = writer("Mul", writer.reshape(own, [-1]), np.array(1 - share, dtype))
                writer("Add", past, fresh, to=writer.output(slot))
        return None


class DropNothing(Spelling):
    """Writes Dropout in training mode that drops nothing as its input, and for TensorRT 8 each whose mask is wanted.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[4] x) => (float[4] y) <float r = {0}, bool t = {1}> { y = Dropout (x, r, t) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[4] x) => (float[4] y) { y = Identity (x) }
    """

    name = "drop-nothing"
    ops = frozenset({"Dropout"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        # TensorRT 8 makes an input of the network of a mask.
        return bool("".join(columns.inputs[index][2:])) or (target.before(9) and any(columns.outputs[index][1:]))

    def write(self, writer: Writer, target: Target) -> str | None:
        ratio, training = (writer.resolve(writer.input(slot)) for slot in (1, 2))
        drops = training is None or training.any() if writer.input(2) else False
        if not drops and not (target.before(9) and writer.output(1) and writer.opset >= _MASKS_SINCE):
            raise Unwritable
        if drops and (ratio is None or ratio.any()):
            raise Unwritable("what it drops is random")
        x = writer.input(0)
        writer("Identity", x, to=writer.output())
        if writer.output(1):
            ones = np.ones((), writer.dtype(writer.output(1)))
            writer("Expand", ones, writer("Shape", x), to=writer.output(1))
        return None
