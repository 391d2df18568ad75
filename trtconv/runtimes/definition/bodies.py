"""Results of loops and branches.

Where the body of a loop returns an input of its own, ONNX Runtime hands out memory that the next pass overwrites; and
it refuses bodies that return what is around them.
"""

from __future__ import annotations

import onnx
from onnx import helper


def copy_results(body: onnx.GraphProto) -> None:
    """Has the body of a node copy, by an Identity, each result that it does not compute."""
    computed = {name for node in body.node for name in node.output}
    for position, result in enumerate(body.output):
        if result.name not in computed:
            copy = f"{result.name}:{position}"
            body.node.append(helper.make_node("Identity", [result.name], [copy]))
            result.name = copy
