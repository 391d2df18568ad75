"""Where a transposed convolution stands in its model, and its shapes as far as they are known."""

from __future__ import annotations

from trtconv.graph.views import Deconv

Shape = tuple[int | None, ...]


def place_of(node: Deconv) -> str:
    """Returns where a node stands, as "graph/node[3]"."""
    return f"{node.scope.path or 'graph'}/node[{node.index}]"


def spatial_shape(node: Deconv) -> Shape:
    """Returns the sizes of the input behind batch and channels; empty where they are not known."""
    shape = node.scope.shape(node.node.input[0])
    return () if shape is None else shape[2:]


def weight_shape(node: Deconv) -> Shape | None:
    """Returns the shape of the weight; None where it is not known."""
    return node.scope.shape(node.node.input[1]) if len(node.node.input) > 1 else None
