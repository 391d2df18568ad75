"""What stands around a transposed convolution, and what is found and said about it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import Deconv
from trtconv.rules import run_rules

_PER_ELEMENT = ("QuantizeLinear", "DequantizeLinear", "Cast", "Identity")


def place_of(node: Deconv) -> str:
    """Returns where a node stands, as "graph/node[3]"."""
    return f"{node.scope.path or 'graph'}/node[{node.index}]"


def group_of(node: Deconv) -> set[int]:
    """Returns the positions of a node and of those that quantise, dequantise or cast its inputs and output."""
    return {node.index, *_around(node)}


def _around(node: Deconv) -> Iterator[int]:
    producers, columns = node.scope.producers, node.scope.columns
    queue = list(node.inputs)
    for name in queue:
        index = producers.get(name)
        if index is not None and columns.ops[index] in _PER_ELEMENT:
            yield index
            queue.append(columns.inputs[index][0])
    for user in node.scope.consumers.get(node.node.output[0], ()):
        if user.op_type == "QuantizeLinear":
            yield producers[user.output[0]]


def labels_of(node: Deconv) -> set[str]:
    """Returns the names under which passes report edits of a node and its quantisers."""
    labels = set()
    for index in group_of(node):
        member = node.scope.columns.nodes[index]
        labels |= {str(node.scope.location(index)), *([member.name] if member.name else ()), *member.output}
    return labels


def findings_at(model: OnnxModel, target: Target, node: Deconv, indices: Collection[int]) -> tuple[Finding, ...]:
    """Returns what the rules say of some nodes of the graph that a node is in."""
    return tuple(
        finding
        for finding in run_rules(model, target)
        if finding.location.graph == node.scope.path and finding.location.index in indices
    )


def attributes_of(geometry: Geometry) -> dict[str, object]:
    """Returns a node's attributes, those that say nothing left out."""
    attributes: dict[str, object] = {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.strides),
        "dilations": list(geometry.dilations),
        "pads": list(geometry.begin_pads + geometry.end_pads),
        "output_padding": list(geometry.output_padding),
        "group": geometry.group,
    }
    if geometry.auto_pad != "NOTSET":
        attributes["auto_pad"] = geometry.auto_pad
    if geometry.output_shape is not None:
        attributes["output_shape"] = list(geometry.output_shape)
    return attributes
