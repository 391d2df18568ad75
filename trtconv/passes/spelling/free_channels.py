"""Writes how many channels go into a convolution, where nothing before it says so."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.channel_counts import channels_by_weights, free_place
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class StateChannels(Spelling):
    """States the channels of what goes into a transposed convolution, where TensorRT would not know them.

    TensorRT refuses a transposed convolution of channels that are not known before the run, and a convolution of
    several groups too. They are not where an input is declared with free sizes, and where a Reshape works them out
    (view(b, -1, h, w)): the shapes that a file states for tensors between nodes TensorRT does not read. No others than
    those of the weights are right.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,4] x) => (float[n,1,3,3] y)
        <int64[4] s = {0, -1, 2, 2}, float[4,1,2,2] k = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>
        { v = Reshape (x, s)  y = ConvTranspose (v, k) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,4] x) => (float[n,1,3,3] y)
        <int64[4] s = {0, -1, 2, 2}, float[4,1,2,2] k = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
        int64[4] sizes = {0, 4, 0, 0}>
        { v = Reshape (x, s)  stated = Reshape (v, sizes)  y = ConvTranspose (stated, k) }
    """

    name = "state-channels"
    ops = frozenset({"Conv", "ConvTranspose"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        node = scope.columns.nodes[index]
        if node.op_type == "Conv" and attribute(node, "group", 1) == 1:
            return False
        return free_place(scope, node.input[0]) is not None

    def write(self, writer: Writer, target: Target) -> str | None:
        count = channels_by_weights(writer.scope, writer.index)
        if count is None or writer.opset < 5:
            raise Unwritable("")
        # 0 keeps a size.
        sizes = [0] * len(writer.shape(writer.input(1)))
        sizes[1] = count
        writer.again([writer.reshape(writer.input(0), sizes), *writer.node.input[1:]])
        return f"the {count} channels that its weights have stated for its input"
