"""What a baked model becomes if it was traced at given sizes, and whether that is a whole repair.

A *reading* takes some sizes for the traced ones and replaces every constant that they explain. It is *whole* where the
result accepts multiples of these sizes and its outputs grow with the batch. A reading that is not whole proves that the
sizes are wrong, or that something is baked in that trtconv cannot repair; its repairs are not to be made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.shapes.lattice import Num, Sizes, Tensor, Trial
from trtconv.shapes.lattice.number import product, same
from trtconv.shapes.lattice.trial import Node
from trtconv.shapes.traced.repairs import (
    Entry,
    ReshapeTarget,
    Scaling,
    Shuffle,
    Unrepaired,
    asked_of,
    dims_of,
    freed,
    words,
)

Point = Mapping[str, int]
_GENERIC = (1, 8, 64, 120, 128, 256)
_TRACED = len(_GENERIC)
"""Where the sizes of an example stand among those that a reading is run at; its multiples follow."""


@frozen
class Example:
    """Sizes that a model may have been traced at.

    Args:
        point: The sizes of its free dimensions.
        sizes_of: Returns the sizes of a tensor of the original at them, None where they are not known.
        batch: Those of the dimensions that are a batch.
    """

    point: Point
    sizes_of: Callable[[str], list[int] | None]
    batch: Sequence[str]

    def multiples(self) -> list[Point]:
        """Returns the sizes at which a repaired model is tried: the batch, the other sizes, and both, enlarged."""
        others = [name for name in self.point if name not in self.batch]
        factors = [(2, 1), (3, 1)] if self.batch else []
        factors += [(1, 2), (1, 3)] if others else []
        factors += [(2, 2)] if self.batch and others else []
        return [self._times(*pair) for pair in factors]

    def parts(self) -> list[Point]:
        """Returns smaller sizes, where a repaired model is tried whose multiples take too much."""
        return [
            {name: size if name in self.batch else size // part for name, size in self.point.items()} for part in (2, 4)
        ]

    def _times(self, batch: int, other: int) -> Point:
        return {name: size * (batch if name in self.batch else other) for name, size in self.point.items()}


class Reading:
    """The repairs of a model that was traced at given sizes; each node sees what the repairs before it make.

    Args:
        sizes: The model's sizes.
        example: Sizes to take for the traced ones.
        shuffles: Pixel shuffles that are repaired as well.
        scale: Whether to repair the Resize at a position.
        outputs: Names of the model's outputs.

    Attributes:
        repairs: What there is to repair, but for shuffles.
        fixed: Resize nodes to constant sizes that stay.
        loosened: Whether one of these has a constant batch; it is taken for one that follows the batch.
        refusal: Why the reading is not whole, or None where it is.
        consistent: Whether the shuffles have these sizes.
    """

    def __init__(
        self,
        sizes: Sizes,
        example: Example,
        shuffles: Sequence[Shuffle],
        scale: Callable[[int], bool],
        outputs: Sequence[str],
    ) -> None:
        self.example = example
        self.repairs: list[Scaling | ReshapeTarget] = []
        self.fixed: list[Node] = []
        self.loosened = False
        self.refusal: Unrepaired | None = None
        self._scale = scale
        self._bits = sum(1 << bit for bit, name in enumerate(sizes.names) if name in example.batch)
        self._shuffled: dict[int, Sequence[Num] | None] = dict.fromkeys(n for s in shuffles for n in s.nodes)
        self._shuffles = {shuffle.nodes[0]: shuffle for shuffle in shuffles}
        self.consistent = all(self._fits(shuffle) for shuffle in shuffles)
        if self.consistent:
            grid = [example.point, *example.multiples()]
            trial = sizes.run([*generic(sizes.names), *grid], keep=True, revise=self._revise)
            self.refusal = self.refusal or self._stuck(trial) or self._astray(sizes, trial, outputs)

    @property
    def plan(self) -> tuple[Any, ...]:
        """What tells two readings with different repairs apart."""
        return tuple(
            (repair.index, repair.scales if isinstance(repair, Scaling) else repair.new) for repair in self.repairs
        )

    def _revise(self, index: int, node: Node, tensors: Mapping[str, Tensor]) -> Mapping[int, Tensor | None]:
        if node.op not in ("Reshape", "Resize"):
            return {}
        self._tensors = tensors
        if index in self._shuffles:
            self._shuffled.update(freed(self._shuffles[index], self._dims(node.inputs[0])))
        if index in self._shuffled:
            target = self._shuffled[index]
            return {} if target is None else {1: Tensor.of_nums(target)}
        repair = self._target(index, node) if node.op == "Reshape" else self._scaling(index, node)
        if repair is None:
            return self._loosened(node) if node in self.fixed else {}
        self.repairs.append(repair)
        if isinstance(repair, Scaling):
            return {2: Tensor.of_array(np.array(repair.scales, np.float32)), 3: None}
        old = self._tensors[node.inputs[1]].nums or []
        return {1: Tensor.of_nums([self._entry(entry, num) for entry, num in zip(repair.new, old, strict=True)])}

    def _loosened(self, node: Node) -> Mapping[int, Tensor | None]:
        """Returns the sizes of a Resize that may be meant so, but for the batch, which nobody means so."""
        sizes, dims = self._tensors[node.inputs[3]].nums or [], self._dims(node.inputs[0])
        if not (sizes[0].constant and self._is_batch(dims[0])):
            return {}
        self.loosened = True
        return {3: Tensor.of_nums([dims[0], *sizes[1:]])}

    def _refuse(self, node: Node, why: str) -> None:
        self.refusal = self.refusal or Unrepaired(node, why)

    def _fits(self, shuffle: Shuffle) -> bool:
        before, split = self._sizes_at(shuffle.node.inputs[0]), shuffle.split
        coarse = 1 if shuffle.op == "DepthToSpace" else shuffle.block
        sizes = [split[position] * coarse for position in shuffle.positions[3:]]
        return before is not None and sizes == before[2:] and split[0] in (-1, 0, before[0])

    def _stuck(self, trial: Trial) -> Unrepaired | None:
        """Tells of a node that still does not accept other sizes."""
        for check in trial.checks:
            failed = np.flatnonzero(~check.holds[_TRACED:])
            if len(failed):
                return Unrepaired(check.node, f"{check.evidence(_TRACED + int(failed[0]))} at larger sizes")
        return None

    def _astray(self, sizes: Sizes, trial: Trial, outputs: Sequence[str]) -> Unrepaired | None:
        """Tells of an output whose first axis does not grow with the batch, or that grows elsewhere."""
        if not self.example.batch:
            return None
        makers = {name: node for node in sizes.runner.program.nodes for name in node.outputs}
        for name in outputs:
            dims = dims_of(name, trial.tensors)
            if not dims or not all(num.is_known for num in dims) or name not in makers:
                continue
            once, twice = ([num.at(row) for num in dims] for row in (_TRACED, _TRACED + 1))
            if twice != [once[0] * 2, *once[1:]]:
                says = f"returns {twice} for twice the batch, where {once} was returned for the batch once"
                return Unrepaired(makers[name], says)
        return None

    def _entry(self, entry: Entry, old: Num) -> Num:
        if entry is None:
            return old
        if isinstance(entry, int):
            return Num(entry)
        shape = self._tensors[entry[0]].shape
        assert shape is not None
        return shape[entry[1]]

    def _dims(self, name: str) -> list[Num]:
        return dims_of(name, self._tensors)

    def _is_batch(self, dim: Num) -> bool:
        return bool(dim.mask) and not dim.mask & ~self._bits

    def _sizes_at(self, name: str) -> list[int] | None:
        return self.example.sizes_of(name)

    def _scaling(self, index: int, node: Node) -> Scaling | None:
        target, dims = asked_of(node, self._tensors), self._dims(node.inputs[0])
        before, sizes = self._sizes_at(node.inputs[0]), self._sizes_at(node.output)
        if target is None or before is None or sizes is None or "axes" in node.attrs:
            return None
        if not any(dim.mask and size is not None for dim, size in zip(dims, target, strict=False)):
            return None
        if not self._scale(index):
            self.fixed.append(node)
            return None
        scales = []
        for old, new, dim in zip(before, sizes, dims, strict=True):
            # Any other factor would be rounded, and with it the size at other inputs.
            halves = dim.mask and math.log2(old / new).is_integer()
            if new % old and not halves:
                self.fixed.append(node)
                return None
            scales.append(new / old)
        return Scaling(node, index, tuple(scales), tuple(sizes))

    def _target(self, index: int, node: Node) -> ReshapeTarget | None:
        entries, dims = asked_of(node, self._tensors), self._dims(node.inputs[0])
        before, after = self._sizes_at(node.inputs[0]), self._sizes_at(node.output)
        # Of an input whose rank is not known there are no dimensions.
        if entries is None or before is None or len(dims) != len(before) or node.attrs.get("allowzero", 0):
            return None
        atoms = [atom for dim, size in zip(dims, before, strict=True) for atom in self._split(dim, size)]
        if not any(atom.num.mask for atom in atoms):
            return None
        blocks = None if after is None or self._follows(node, dims) else _blocks(atoms, after)
        new = None if blocks is None else self._rewritten(dims, entries, atoms, blocks)
        changed = [axis for axis, old in enumerate(entries) if new and new[axis] != old]
        if -1 in entries:
            self._doubt(node, entries, dims, changed)
        return ReshapeTarget(node, index, tuple(entries), new) if new and changed else None

    def _follows(self, node: Node, dims: Sequence[Num]) -> bool:
        """Whether a target has as many elements as its input, at all sizes that are known."""
        before, after = product(dims), product(self._tensors[node.inputs[1]].nums or ())
        return not (before.is_known and after.is_known) or same(before, after)

    def _doubt(self, node: Node, entries: Sequence[int | None], dims: Sequence[Num], changed: Sequence[int]) -> None:
        """Refuses a target whose -1 takes up whatever its constants leave: these may be the network's own."""
        batched = self._is_batch(dims[0])
        others = [axis for axis in changed if axis or not batched]
        if others:
            size = entries[others[0]]
            self._refuse(node, f"asks for {words(entries)}: beside -1, {size} may as well be a constant of the network")
        elif batched and entries[0] not in (None, 0, -1) and 0 not in changed:
            self._refuse(node, f"asks for {words(entries)}: at another batch than {entries[0]}, -1 would take it up")

    def _split(self, dim: Num, size: int) -> list[_Atom]:
        """Splits a dimension that is a product of others, such as height * width, into them."""
        if not dim.factors or not all(map(self._place, dim.factors)):
            return [_Atom(dim, size)]
        return [_Atom(factor, factor.at(_TRACED)) for factor in dim.factors]

    def _place(self, atom: Num) -> tuple[str, int] | None:
        """Returns a tensor and an axis that has a size."""
        for name, tensor in self._tensors.items():
            for axis, dim in enumerate(tensor.shape or ()):
                if dim is atom and dim.mask:
                    return name, axis
        return None

    def _rewritten(
        self,
        dims: list[Num],
        entries: Sequence[int | None],
        atoms: Sequence[_Atom],
        blocks: Sequence[tuple[range, range]],
    ) -> tuple[Entry, ...] | None:
        new: list[Entry] = list(entries)
        free = -1 not in entries
        dynamic = [(sources, axes) for sources, axes in blocks if any(atoms[i].num.mask for i in sources)]
        # Where one entry of a block is computed, the block follows the sizes already.
        dynamic = [(sources, axes) for sources, axes in dynamic if all(entries[axis] is not None for axis in axes)]
        for sources, axes in dynamic:
            if len(axes) != 1:
                return None
            (position,), (num, *others) = axes, [atoms[i].num for i in sources]
            if entries[position] in (0, -1):
                continue
            is_last = sources is dynamic[-1][0]
            place = None if others or (free and is_last) else self._place(num)
            if [num, *others] == dims[position : position + 1]:
                new[position] = 0
            elif place is not None:
                new[position] = place
            elif free:
                new[position], free = -1, False
            else:
                return None
        return tuple(new)


@frozen
class _Atom:
    """A dimension, or a factor of one: its number, and its size at the traced sizes."""

    num: Num
    size: int


def _blocks(atoms: Sequence[_Atom], after: Sequence[int]) -> list[tuple[range, range]] | None:
    """Groups dimensions of both sides of a Reshape; None where that cannot be told of all of them."""
    blocks, left = matched([atom.size for atom in atoms], after)
    # A 1 at the end may be a height that was scaled down, unless only the first axis can have another size.
    plain = not any(atom.num.mask for atom in atoms[1:])
    return blocks if not left or (plain and set(left) == {1}) else None


def matched(before: Sequence[int], after: Sequence[int]) -> tuple[list[tuple[range, range]], list[int]]:
    """Groups neighbouring sizes so that both sides of a group have the same product; smallest groups first.

    Returns:
        The places of each group on both sides, as long as there are any; the sizes of both that are left.
    """
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first, second, left, right = i, j, before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right and i < len(before):
                left, i = left * before[i], i + 1
            elif left > right and j < len(after):
                right, j = right * after[j], j + 1
            else:
                return groups, [*before[first:], *after[second:]]
        groups.append((range(first, i), range(second, j)))
    return groups, [*before[i:], *after[j:]]


def generic(names: Sequence[str]) -> list[dict[str, int]]:
    """Returns sizes that show which dimensions are dynamic, and which are the same."""
    return [{name: size + shift for shift, name in enumerate(names)} for size in _GENERIC]
