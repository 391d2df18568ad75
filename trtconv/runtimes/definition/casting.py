"""Cast to bool of what another Cast made.

ONNX Runtime 1.23 makes one Cast of both, whatever optimizations it was told to leave: 0.5, which is 0 as an integer,
is true there.

Source: ONNX operator Cast.
"""

from __future__ import annotations

import onnx

from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing


def write_cast(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an Identity between the two."""
    node = scope.columns.nodes[index]
    goal = attribute(node, "to", 0)
    before = scope.producer(node.input[0])
    if goal != onnx.TensorProto.BOOL or before is None or before.op_type != "Cast":
        return False
    writing.compute("Cast", writing.compute("Identity", node.input[0]), to=goal)
    writing.finish()
    return True
