"""Finds sizes that an exporter wrote into a model as constants, and what to write instead.

A model is *baked* where it accepts some sizes of its dynamic inputs, but neither twice nor three times those. The sizes
that were traced are found among the constants of its Reshape and Resize nodes. At these sizes a repaired node computes
exactly what it did; at others it does what the same PyTorch code, exported with dynamic shapes, would do.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.frozen import frozen
from trtconv.lattice import Num, Sizes, Tensor
from trtconv.lattice.trial import Node
from trtconv.model import OnnxModel
from trtconv.shapes import dynamic_dims

Point = Mapping[str, int]
_MOST_SIZES = 48
_FACTORS = (1, 2, 4, 8, 16)
_SHUFFLES = {
    # perm of the six dimensions: operator, mode, positions of (channels, first block, second block, height, width)
    (0, 1, 4, 2, 5, 3): ("DepthToSpace", "CRD", (1, 2, 3, 4, 5)),
    (0, 3, 4, 1, 5, 2): ("DepthToSpace", "DCR", (3, 1, 2, 4, 5)),
    (0, 3, 5, 1, 2, 4): ("SpaceToDepth", "", (1, 3, 5, 2, 4)),
    (0, 1, 3, 5, 2, 4): ("SpaceToDepth", "torch", (1, 3, 5, 2, 4)),
}


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
    """

    node: Node
    nodes: tuple[int, int, int]
    op: str
    mode: str
    block: int
    channels: int


@frozen
class Scaling:
    """A Resize to constant sizes that is a scaling by constant factors."""

    node: Node
    index: int
    scales: tuple[float, ...]
    sizes: tuple[int, ...]


@frozen
class Target:
    """A Reshape to a constant shape.

    Args:
        node: The Reshape.
        index: Its position.
        old: The constant.
        new: What to ask for instead: integers, 0 and -1 with ONNX's meaning, or tensor name and axis whose size it is.
    """

    node: Node
    index: int
    old: tuple[int, ...]
    new: tuple[int | tuple[str, int], ...]


class Baked:
    """A model with the sizes that were baked into it.

    Args:
        model: The model; must not change while the object is in use.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    @functools.cached_property
    def _sizes(self) -> Sizes:
        return Sizes(self.model)

    @property
    def _nodes(self) -> list[Node]:
        return self._sizes.runner.program.nodes

    def shuffles(self) -> list[Shuffle]:
        """Finds pixel shuffles whose sizes are baked in."""
        if not self._may_have("Transpose"):
            return []
        readers: dict[str, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for name in node.inputs:
                readers.setdefault(name, []).append(index)
        found = (self._shuffle(i, node, readers) for i, node in enumerate(self._nodes) if node.op == "Reshape")
        return [shuffle for shuffle in found if shuffle is not None]

    def scalings(self) -> list[Scaling]:
        """Finds Resize nodes whose sizes are baked in."""
        return [each for each in self._found if isinstance(each, Scaling)] if self._may_have("Resize") else []

    def targets(self) -> list[Target]:
        """Finds Reshape nodes whose sizes are baked in."""
        return [each for each in self._found if isinstance(each, Target)] if self._may_have("Reshape") else []

    @functools.cached_property
    def _found(self) -> list[Scaling | Target]:
        """What there is to repair, but for shuffles; each node sees its inputs as the repairs before it leave them."""
        if self.point is None:
            return []
        shuffled = {index for shuffle in self.shuffles() for index in shuffle.nodes}
        found: list[Scaling | Target] = []

        def revise(index: int, node: Node, tensors: Mapping[str, Tensor]) -> Mapping[int, Tensor | None]:
            if node.op not in ("Reshape", "Resize") or index in shuffled:
                return {}
            self._seen = tensors
            repair = self._target(index, node) if node.op == "Reshape" else self._scaling(index, node)
            if repair is None:
                return {}
            found.append(repair)
            if isinstance(repair, Scaling):
                return {2: Tensor.of_array(np.array(repair.scales, np.float32)), 3: None}
            return {1: Tensor.of_nums([self._entry(entry) for entry in repair.new])}

        self._sizes.run(self._generic(), keep=True, revise=revise)
        return found

    def _entry(self, entry: int | tuple[str, int]) -> Num:
        if isinstance(entry, int):
            return Num(entry)
        shape = self._seen[entry[0]].shape
        assert shape is not None
        return shape[entry[1]]

    def _may_have(self, op: str) -> bool:
        """Asks without cost whether there can be anything: most models end here."""
        if self.model.proto.functions or not dynamic_dims(self.model.inputs):
            return False
        ops = self.model.main.by_op.keys()
        return op in ops and bool(ops & {"Reshape", "Resize"}) and bool(self._constants)

    @functools.cached_property
    def _constants(self) -> list[int]:
        """The constant sizes that Reshape and Resize nodes ask for."""
        found: set[int] = set()
        for node in self._nodes:
            found.update(n for n in self._asked(node) or () if n is not None and n > 1)
        return sorted(found)

    def _asked(self, node: Node) -> list[int | None] | None:
        """Returns the sizes that a Reshape or Resize asks for, None for those that are computed from the inputs'."""
        position = {"Reshape": 1, "Resize": 3}.get(node.op, 99)
        tensor = self._seen.get(node.inputs[position]) if position < len(node.inputs) else None
        if tensor is None or tensor.data is None:
            return None
        return [int(num.value) if num.constant and math.isfinite(num.value) else None for num in tensor.data.flat]

    def _ints(self, node: Node) -> list[int] | None:
        """Returns the sizes that a node asks for where all are constant."""
        asked = self._asked(node)
        return None if asked is None or None in asked else [n for n in asked if n is not None]

    @functools.cached_property
    def _seen(self) -> Mapping[str, Tensor]:
        """Every tensor at generic sizes: it shows which dimensions are dynamic, and which are the same.

        While repairs are looked for, the tensors before the node that is looked at.
        """
        return self._sizes.run(self._generic(), keep=True).tensors

    def _generic(self) -> list[dict[str, int]]:
        names = self._sizes.names
        return [{name: size + shift for shift, name in enumerate(names)} for size in (1, 8, 64, 120, 128, 256)]

    @functools.cached_property
    def point(self) -> Point | None:
        """The sizes at which the model was traced, or None where it is not baked."""
        names = self._sizes.names
        points = [] if self._scales(names) else list(self._candidates(names))
        if not points:
            return None
        good = [point for point, fine in zip(points, self._accepted(points), strict=True) if fine]
        batch = self._batch(names)

        def unlikely(point: Point) -> tuple[int, ...]:
            rest = [size for name, size in point.items() if name not in batch]
            return sum(point[name] for name in batch), len(set(rest)), sum(rest)

        for point in sorted(good, key=unlikely)[:64]:
            scaled = [{name: size * factor for name, size in point.items()} for factor in (2, 3)]
            if not any(self._accepted(scaled)):
                return point
        return None

    def _scales(self, names: Sequence[str]) -> bool:
        """Whether the model accepts some usual sizes, so that nothing is baked in; asked first, since it is cheap."""
        batch = self._batch(names)
        usual = [{n: 2 if n in batch else size for n in names} for size in (64, 128, 192, 256, 384, 512)]
        return sum(self._accepted(usual)) >= 2

    def _accepted(self, points: Sequence[Point]) -> list[bool]:
        accepted = np.ones(len(points), dtype=bool)
        for check in self._sizes.run(points).checks:
            accepted &= check.holds
        return [bool(fine) for fine in accepted]

    def _batch(self, names: Sequence[str]) -> list[str]:
        places = dynamic_dims(self.model.inputs)
        return [n for n in names if n in places and all(place.endswith(":0") for place in places[n])]

    def _candidates(self, names: Sequence[str]) -> Iterator[Point]:
        """Yields combinations of sizes that constants suggest; not 1, which broadcasts beside anything."""
        sizes = {n * f for n in self._constants for f in _FACTORS} | {
            n // f for n in self._constants for f in _FACTORS if n % f == 0
        }
        likely = sorted(size for size in sizes if 1 < size <= 8192)
        if len(likely) > _MOST_SIZES:
            likely = [n for n in self._constants if n <= 8192][:_MOST_SIZES]
        batch = self._batch(names)
        others = [n for n in names if n not in batch]
        if len(others) not in (1, 2) or not likely:
            pairs: list[tuple[int, ...]] = [(n,) * len(others) for n in likely]
        else:
            pairs = list(itertools.product(likely, repeat=len(others)))
        for count in (1, 2, 4, 8) if batch else (1,):
            for pair in pairs if others else [()]:
                yield {**dict.fromkeys(batch, count), **{n: int(s) for n, s in zip(others, pair, strict=True)}}

    @functools.cached_property
    def _traced(self) -> Mapping[str, Tensor]:
        """Every tensor at the traced sizes."""
        assert self.point is not None
        return self._sizes.run([self.point], keep=True).tensors

    def _dims(self, name: str) -> list[Num] | None:
        found = self._seen.get(name)
        return None if found is None else found.shape

    def _sizes_at(self, name: str) -> list[int] | None:
        found = self._traced.get(name)
        if found is None or found.shape is None or not all(n.known for n in found.shape):
            return None
        return [int(np.asarray(n.value).reshape(-1)[0]) for n in found.shape]

    def _shuffle(self, index: int, first: Node, readers: Mapping[str, list[int]]) -> Shuffle | None:
        split = self._ints(first)
        after = readers.get(first.outputs[0], [])
        if split is None or len(split) != 6 or len(after) != 1 or self._nodes[after[0]].op != "Transpose":
            return None
        turn = self._nodes[after[0]]
        last = readers.get(turn.outputs[0], [])
        known = _SHUFFLES.get(tuple(turn.attrs.get("perm", ())))
        outputs = {first.outputs[0], turn.outputs[0]} & set(self.model.outputs)
        if known is None or outputs or len(last) != 1 or self._nodes[last[0]].op != "Reshape":
            return None
        op, mode, positions = known
        channels, block, other, height, width = (split[n] for n in positions)
        dims = self._dims(first.inputs[0])
        joined = self._ints(self._nodes[last[0]])
        if dims is None or joined is None or len(joined) != 4 or block != other or block < 2:
            return None
        # Only sizes that are dynamic outside and constant here are baked.
        if not any(dims[axis].mask and n > 0 for axis, n in zip((0, 2, 3), (split[0], height, width), strict=True)):
            return None
        deep = block * block * channels
        fine = (channels, height * block, width * block) if op == "DepthToSpace" else (deep, height, width)
        whole = dims[1].value == (deep if op == "DepthToSpace" else channels)
        if not whole or min(height, width) < 1 or not _agrees(joined, (split[0], *fine)):
            return None
        return Shuffle(first, (index, after[0], last[0]), op, mode, block, channels)

    def _scaling(self, index: int, node: Node) -> Scaling | None:
        asked, dims = self._asked(node), self._dims(node.inputs[0])
        before, sizes = self._sizes_at(node.inputs[0]), self._sizes_at(node.outputs[0])
        if not asked or dims is None or before is None or sizes is None or "axes" in node.attrs:
            return None
        baked = any(dim.mask and size is not None for dim, size in zip(dims, asked, strict=False))
        if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" or len(asked) != len(dims) or not baked:
            return None
        scales = []
        for old, new, dim in zip(before, sizes, dims, strict=True):
            grows, shrinks = new % old == 0, old % new == 0 and (old // new).bit_count() == 1
            # Any other factor would be rounded, and with it the size at other inputs.
            if not (grows or shrinks) or (not dim.mask and old != new and not grows):
                return None
            scales.append(new / old)
        return Scaling(node, index, tuple(scales), tuple(sizes))

    def _target(self, index: int, node: Node) -> Target | None:
        asked, dims, before = self._ints(node), self._dims(node.inputs[0]), self._sizes_at(node.inputs[0])
        after = self._sizes_at(node.outputs[0])
        if asked is None or dims is None or before is None or after is None or node.attrs.get("allowzero", 0):
            return None
        atoms = [
            _Atom(atom, size, axis) for axis, dim in enumerate(dims) for atom, size in self._split(dim, before[axis])
        ]
        if len(after) != len(asked) or not any(a.num.mask for a in atoms):
            return None
        blocks = _blocks([atom.size for atom in atoms], after)
        if blocks is None:
            return None
        new = self._rewritten(node, asked, atoms, blocks)
        if new is None or not any(isinstance(n, tuple) or n != old for n, old in zip(new, asked, strict=True)):
            return None
        return Target(node, index, tuple(asked), new)

    def _split(self, dim: Num, size: int) -> list[tuple[Num, int]]:
        """Splits a dimension that is a product of others, such as height * width, into them."""
        parts = [self._place(atom) for atom in dim.factors if not atom.constant]
        if len(parts) < 2 or any(part is None for part in parts) or any(atom.constant for atom in dim.factors):
            return [(dim, size)]
        sizes = [(self._sizes_at(place[0]) or [0])[place[1]] for place in parts if place is not None]
        whole = int(np.prod(sizes)) == size
        return list(zip(dim.factors, sizes, strict=True)) if whole else [(dim, size)]

    def _place(self, atom: Num) -> tuple[str, int] | None:
        """Returns a tensor and an axis that has a size."""
        for name, tensor in self._seen.items():
            for axis, dim in enumerate(tensor.shape or ()):
                if dim is atom and dim.mask:
                    return name, axis
        return None

    def _rewritten(
        self, node: Node, asked: Sequence[int], atoms: Sequence[_Atom], blocks: Sequence[tuple[range, range]]
    ) -> tuple[int | tuple[str, int], ...] | None:
        new: list[int | tuple[str, int]] = list(asked)
        free = -1 not in asked
        dynamic = [(sources, made) for sources, made in blocks if any(atoms[i].num.mask for i in sources)]
        for sources, made in dynamic:
            if len(made) != 1:
                return None
            position, moving = made[0], [atoms[i] for i in sources]
            if asked[position] in (0, -1):
                continue
            if len(moving) == 1 and moving[0].axis == position and moving[0].num is self._dim(node, position):
                new[position] = 0
            elif len(moving) == 1 and not (free and sources is dynamic[-1][0]):
                place = self._place(moving[0].num)
                if place is None:
                    return None
                new[position] = place
            elif free:
                new[position], free = -1, False
            else:
                return None
        return tuple(new)

    def _dim(self, node: Node, axis: int) -> Num | None:
        dims = self._dims(node.inputs[0])
        return None if dims is None or axis >= len(dims) else dims[axis]


@frozen
class _Atom:
    """A dimension, or a factor of one: its number, its size at the traced sizes, and the axis."""

    num: Num
    size: int
    axis: int


def _agrees(asked: Sequence[int], sizes: Sequence[int]) -> bool:
    if not all(n in (0, -1, size) for n, size in zip(asked[1:], sizes[1:], strict=True)):
        return False
    # The batch may be spelled differently in the two.
    return asked[0] in (0, -1, sizes[0]) or sizes[0] in (0, -1)


def _blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[range, range]] | None:
    """Groups neighbouring dimensions so that both sides of each group have as many elements; smallest groups first."""
    blocks, i, j = [], 0, 0
    while i < len(before) and j < len(after):
        start = i, j
        left, right = before[i], after[j]
        while left != right:
            if left < right:
                i += 1
                if i == len(before):
                    return None
                left *= before[i]
            else:
                j += 1
                if j == len(after):
                    return None
                right *= after[j]
        i, j = i + 1, j + 1
        blocks.append((range(start[0], i), range(start[1], j)))
    rest = [*before[i:], *after[j:]]
    return blocks if all(n == 1 for n in rest) and i == len(before) and j == len(after) else None


def line_of(node: Node) -> str:
    """Returns " (unet.py:47)" where the exporter left the PyTorch line, else nothing."""
    return f" ({node.source})" if node.source else ""


def word(entry: Any) -> str:
    """Returns an entry of a rewritten target in words."""
    return f"size of {entry[0]} at axis {entry[1]}" if isinstance(entry, tuple) else str(entry)
