"""Writes how many channels go into a convolution, where nothing before it says so."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.channel_counts import are_known, are_made, channels_by_weights
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class StateChannels(Spelling):
    """States the channels of what goes into a transposed convolution, where TensorRT would not know them.

    TensorRT refuses a transposed convolution of channels that are not known before the run; and a convolution of
    several groups, 8.6 always and others where its weights are not constant. They are not known where an input is
    declared with free sizes, and where a Reshape works them out (view(b, -1, h, w)): the shapes that a file states for
    tensors between nodes TensorRT does not read. No others than those of the weights are right.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,4] x) => (float[n,1,3,3] y) <int64[3] rest = {-1, 2, 2},
        float[4,1,2,2] k = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>
        {
          n = Shape <start = 0, end = 1> (x)  s = Concat <axis = 0> (n, rest)  v = Reshape (x, s)
          y = ConvTranspose (v, k)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,4] x) => (float[n,1,3,3] y) <int64[3] rest = {-1, 2, 2},
        float[4,1,2,2] k = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, int64[4] sizes = {0, 4, 0, 0}>
        {
          n = Shape <start = 0, end = 1> (x)  s = Concat <axis = 0> (n, rest)  v = Reshape (x, s)
          u = Reshape (v, sizes)  y = ConvTranspose (u, k)
        }
    """

    name = "state-channels"
    ops = frozenset({"Conv", "ConvTranspose"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        name, weights = (*scope.columns.inputs[index][:2], "", "")[:2]
        if scope.columns.ops[index] == "Conv":
            # Newer parsers take all with constant weights, which are most; those of one group are taken by all.
            if not target.before(9) and scope.constant(weights) is not None:
                return False
            if attribute(scope.columns.nodes[index], "group", 1) == 1:
                return False
        return bool(weights) and not are_made(scope, name)

    def write(self, writer: Writer, target: Target) -> str | None:
        count = channels_by_weights(writer.scope, writer.index)
        if count is None or are_known(writer.model, writer.scope, writer.input(0)):
            raise Unwritable("")
        # 0 keeps a size.
        sizes = [0] * len(writer.shape(writer.input(1)))
        sizes[1] = count
        writer.again([writer.reshape(writer.input(0), sizes), *writer.node.input[1:]])
        return f"the {count} channels that its weights have written before it"
