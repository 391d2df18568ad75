"""What may be baked into a model, what each becomes, and the nodes that are left alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtconv.core.frozen import frozen
from trtconv.shapes.lattice import Num, Tensor
from trtconv.shapes.lattice.trial import Node

Entry = int | tuple[str, int] | None
"""An entry of a target: an integer, 0 and -1 with ONNX's meaning; the tensor and the axis whose size it is; or None,
what the model computes for it."""


@frozen
class Unrepaired:
    """Why the sizes that are baked into a model are left alone: what a node does."""

    node: Node
    why: str


@frozen
class Shuffle:
    """A pixel shuffle spelled as Reshape, Transpose, Reshape.

    Args:
        node: The first Reshape.
        nodes: Positions of the three nodes.
        op: "DepthToSpace" or "SpaceToDepth".
        mode: DepthToSpace's mode; for SpaceToDepth "torch" where the channels come before the block.
        block: Block size.
        channels: Channels at full resolution.
        split: What the first Reshape asks for.
        positions: Where channels, first block, second block, height and width are in it.
    """

    node: Node
    nodes: tuple[int, int, int]
    op: str
    mode: str
    block: int
    channels: int
    split: tuple[int, ...]
    positions: tuple[int, int, int, int, int]


@frozen
class Scaling:
    """A Resize to constant sizes that is a scaling by constant factors."""

    node: Node
    index: int
    scales: tuple[float, ...]
    sizes: tuple[int, ...]


@frozen
class ReshapeTarget:
    """A Reshape to a shape that is constant, wholly or in part.

    Args:
        node: The Reshape.
        index: Its position.
        old: What it asks for; None for an entry that the model computes.
        new: What to ask for instead, entry by entry.
    """

    node: Node
    index: int
    old: tuple[int | None, ...]
    new: tuple[Entry, ...]

    @property
    def texts(self) -> tuple[str, str]:
        """What it asks for in words, and what to ask for instead."""
        return words(self.old), words(self.new)


def asked_of(node: Node, tensors: Mapping[str, Tensor]) -> list[int | None] | None:
    """Returns the sizes that a Reshape or Resize asks for, None for those that are computed from the inputs'."""
    position = {"Reshape": 1, "Resize": 3}.get(node.op, 99)
    tensor = tensors.get(node.inputs[position]) if position < len(node.inputs) else None
    if tensor is None or tensor.data is None:
        return None
    return [int(num.value) if num.constant and math.isfinite(num.value) else None for num in tensor.data.flat]


def dims_of(name: str, tensors: Mapping[str, Tensor]) -> list[Num]:
    """Returns the dimensions of a tensor; none where not even its rank is known."""
    tensor = tensors.get(name)
    return (tensor.shape if tensor is not None else None) or []


def ints_of(node: Node, tensors: Mapping[str, Tensor]) -> list[int] | None:
    """Returns the sizes that a node asks for where all are constant."""
    sizes = asked_of(node, tensors)
    return None if sizes is None or None in sizes else [n for n in sizes if n is not None]


def freed(shuffle: Shuffle, dims: Sequence[Num]) -> dict[int, Sequence[Num]]:
    """Returns what the Reshape nodes of a pixel shuffle ask for when no size is baked in, by their positions."""
    if not dims:
        return {}
    block, deep = shuffle.block, shuffle.op == "DepthToSpace"
    height, width = (dims[2], dims[3]) if deep else (dims[2] // block, dims[3] // block)
    split = [Num(n) for n in shuffle.split]
    for position, num in zip((0, *shuffle.positions[3:]), (dims[0], height, width), strict=True):
        split[position] = num
    channels = shuffle.channels if deep else shuffle.channels * block * block
    spatial = [height * block, width * block] if deep else [height, width]
    return {shuffle.nodes[0]: split, shuffle.nodes[2]: [dims[0], Num(channels), *spatial]}


def words(entries: Sequence[Entry]) -> str:
    """Returns a target in words."""
    return f"[{', '.join(map(_word, entries))}]"


def _word(entry: Entry) -> str:
    if entry is None:
        return "computed"
    return f"size of {entry[0]} at axis {entry[1]}" if isinstance(entry, tuple) else str(entry)
