"""Finds deconvolutions that meet a skip connection at some sizes only, and could meet it at all.

A decoder that doubles gives even sizes; its skip has the size that was halved, which may be odd. PyTorch's answer is
`output_size=`: the output_padding, from 0 to stride - 1, with which the two agree. ONNX can say that as the largest
output_padding and a Slice to the skip's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.graph.deconv import geometry_of
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Tensor, sizes_of
from trtconv.shapes.lattice.trial import Node

_JOINS = ("Concat", "Add", "Sub", "Mul", "Sum", "Max", "Min")
_SMALLEST, _COUNT = 256, 256
"""Sizes that are tried: every remainder that up to eight halvings can leave."""


@frozen
class Unmatched:
    """A deconvolution that could match its skip.

    Args:
        node: The ConvTranspose.
        index: Its position in the main graph.
        skip: Tensor whose spatial sizes it is to have.
        join: The node that joins the two.
        output_padding: The largest one that is needed, one entry a spatial axis.
        refusal: Why it cannot match; empty where it can.
    """

    node: Node
    index: int
    skip: str
    join: Node
    output_padding: tuple[int, ...]
    refusal: str


def unmatched(model: OnnxModel) -> list[Unmatched]:
    """Returns the deconvolutions that meet their skips at some sizes only, in the order of the graph.

    Behind one that does not match, sizes are not known: mend the first, and ask again.
    """
    sizes = sizes_of(model)
    points = [{name: _SMALLEST + i + k for k, name in enumerate(sizes.names)} for i in range(_COUNT)]
    nodes = sizes.runner.program.nodes
    if not sizes.names or not any(node.op == "ConvTranspose" for node in nodes):
        return []
    trial = sizes.run(points, keep=True)
    if all(check.holds.all() for check in trial.checks):
        return []
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for name in node.inputs:
            readers.setdefault(name, []).append(index)
    mismatches = []
    for index, node in enumerate(nodes):
        if node.op == "ConvTranspose":
            joins = _joins(nodes, readers, trial.tensors, node)
            meetings = (_met(node, index, trial.tensors, join, mine, skip) for join, mine, skip in joins)
            mismatches += [mismatch for mismatch in meetings if mismatch is not None][:1]
    return mismatches


def _joins(
    nodes: Sequence[Node], readers: Mapping[str, list[int]], tensors: Mapping[str, Tensor], deconv: Node
) -> Iterator[tuple[Node, str, str]]:
    """Yields the nodes where a deconvolution's result meets another tensor, through nodes that keep its sizes."""
    reached = [deconv.outputs[0]]
    for name in reached:
        for node in (nodes[index] for index in readers.get(name, ())):
            others = [o for o in node.inputs if o and o not in reached and _spatial(tensors.get(o)) is not None]
            if node.op in _JOINS:
                yield from ((node, name, other) for other in others)
            if node.op != "ConvTranspose" and _same(tensors.get(name), tensors.get(node.outputs[0])):
                reached += [out for out in node.outputs[:1] if out not in reached]


def _met(node: Node, index: int, tensors: Mapping[str, Tensor], join: Node, mine: str, skip: str) -> Unmatched | None:
    """Returns what a deconvolution and a skip are to each other; None where they agree, or nothing can be told."""
    weight = tensors.get(node.inputs[1])
    kernel = None if weight is None or weight.shape is None else [int(n.value) for n in weight.shape if n.constant]
    geometry = geometry_of(node.attrs, kernel)
    ours, theirs = _spatial(tensors.get(mine)), _spatial(tensors.get(skip))
    if isinstance(geometry, str) or geometry.auto_pad != "NOTSET" or geometry.output_shape is not None:
        return None
    if ours is None or theirs is None or not len(ours) == len(theirs) == geometry.rank or _equal(ours, theirs):
        return None
    padding, refusal = [], ""
    for axis, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        needed = geometry.output_padding[axis] + other - own
        padding.append(int(needed.max()))
        if needed.min() < 0 or needed.max() >= geometry.strides[axis]:
            refusal = (
                f"to match {skip} at axis {axis + 2} it would need an output_padding from {needed.min()} to"
                f" {needed.max()}; with stride {geometry.strides[axis]} it can have 0 to {geometry.strides[axis] - 1}"
            )
    return Unmatched(node, index, skip, join, tuple(padding), refusal)


def _spatial(tensor: Tensor | None) -> list[NDArray[np.int64]] | None:
    """Returns the sizes behind batch and channels, one entry a candidate; None where they are not known."""
    dims = None if tensor is None else tensor.shape
    if dims is None or len(dims) < 3 or not all(num.is_known for num in dims[2:]):
        return None
    return [np.broadcast_to(np.asarray(num.value, np.int64), (_COUNT,)) for num in dims[2:]]


def _same(before: Tensor | None, after: Tensor | None) -> bool:
    old, new = _spatial(before), _spatial(after)
    return old is not None and new is not None and _equal(old, new)


def _equal(a: Sequence[NDArray[np.int64]], b: Sequence[NDArray[np.int64]]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
