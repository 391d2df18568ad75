"""One run of a network's shapes at many candidate sizes: what holds at which of them, and which node says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.findings import Location
from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.number import Num, combine, identical, is_mixed, same
from trtconv.shapes.lattice.tensor import Tensor


class Opaque(Exception):
    """The shapes behind a node cannot be told; the message says why."""


@frozen
class Node:
    """One node of the network.

    Args:
        op: Operator type.
        domain: Its domain; "" for ONNX's own.
        inputs: Tensor names, "" for one left out.
        outputs: Likewise.
        attrs: Attributes with Python values; subgraphs as protos.
        location: Where it is.
        opset: Version of the operator set.
        source: The PyTorch line that it came from, or "".
    """

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    location: Location
    opset: int
    source: str = ""

    @property
    def line(self) -> str:
        """What is said of its source: " (unet.py:47)", or nothing."""
        return f" ({self.source})" if self.source else ""

    @property
    def output(self) -> str:
        """Its first output."""
        return self.outputs[0]

    @property
    def name(self) -> str:
        """Its name in the model; its label where it has none."""
        return self.location.node or self.label

    @property
    def label(self) -> str:
        """ "Concat /up1/cat", or "Concat (node 12)" for a node without a name."""
        place = self.location
        return f"{self.op} {place.node}" if place.node else f"{self.op} (node {place.index})"


@frozen
class Check:
    """A condition that a node imposes, and at which candidates it holds.

    Args:
        node: The node.
        mask: The free dimensions that it depends on.
        holds: One entry a candidate.
        says: What the node does, with "{0}" and "{1}" for the two sizes: "joins {0} and {1} at axis 2".
        left: The first size.
        right: The second one.
        ties: Whether the condition is that the two are equal.
        ones: Whether a size of 1 fits any other.
    """

    node: Node
    mask: int
    holds: NDArray[np.bool_]
    says: str
    left: Num
    right: Num
    ties: bool
    ones: bool = False

    def evidence(self, row: int) -> str:
        """Returns what happens at one candidate, in words."""
        return self.says.format(self.left.at(row), self.right.at(row))


class Trial:
    """Collects the conditions of one run.

    Args:
        rows: Number of candidates.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.checks: list[Check] = []
        self.compared = 0
        self.opaque: dict[str, str] = {}
        self.data_dependent: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.node: Node | None = None

    def repeated(self, rows: int) -> Trial:
        """Returns a run of one candidate as one of many that are the same."""
        if rows == self.rows:
            return self
        copy = Trial(rows)
        checks = [dataclasses.replace(check, holds=np.broadcast_to(check.holds, (rows,))) for check in self.checks]
        vars(copy).update(vars(self), rows=rows, checks=checks)
        return copy

    def equal(self, a: Num, b: Num, says: str) -> None:
        """Demands that two sizes are equal."""
        if not (a.is_known and b.is_known) or identical(a, b):
            return
        self._note(combine(np.equal, a, b), says, a, b, ties=True)

    def require(self, condition: Num, says: str, a: Num, b: Num | None = None) -> None:
        """Demands a condition; `a` and `b` are the sizes that `says` names."""
        self._note(condition, says, a, a if b is None else b, ties=False)

    def at_least(self, a: Num, least: int, says: str) -> None:
        """Demands a size of at least some number."""
        if a.is_known and not (a.constant and a.value >= least):
            self._note(combine(np.greater_equal, a, Num(least)), says, a, Num(least), ties=False)

    def fail(self, says: str) -> Opaque:
        """Notes that a node never works; returns what to raise."""
        self._note(Num(False), says, Num(0), Num(0), ties=False)
        return Opaque("it never works")

    def _note(self, condition: Num, says: str, a: Num, b: Num, *, ties: bool, ones: bool = False) -> None:
        mask = condition.mask or a.mask | b.mask
        self.compared += is_mixed(mask)
        if condition.value is None or np.all(condition.value):
            return
        assert self.node is not None
        holds = np.broadcast_to(np.asarray(condition.value, dtype=bool), (self.rows,))
        self.checks.append(Check(self.node, mask, holds, says, a, b, ties, ones))

    def broadcast(self, shapes: Sequence[Sequence[Num]]) -> list[Num]:
        """Returns the shape that tensors of these shapes broadcast to."""
        rank = max(len(shape) for shape in shapes)
        result: list[Num] = []
        for axis in range(-rank, 0):
            dims = [shape[axis] for shape in shapes if len(shape) >= -axis]
            joined = dims[0]
            for dim in dims[1:]:
                joined = self.meet(joined, dim, f"at axis {axis + rank}")
            result.append(joined)
        return result

    def meet(self, a: Num, b: Num, where: str) -> Num:
        """Returns the size that two broadcast to; `where` is the end of "meets sizes 3 and 4 at axis 2"."""
        if (b.constant and b.value == 1) or identical(a, b):
            return a
        if a.constant and a.value == 1:
            return b
        if not (a.is_known and b.is_known):
            sure = a if a.is_known else b
            return sure if sure.is_known and not np.any(np.equal(sure.value, 1)) else Num(None)
        if same(a, b):
            self.compared += is_mixed(a.mask | b.mask)
            return a if a.mask.bit_count() <= b.mask.bit_count() else b
        ones = [np.equal(num.value, 1) for num in (a, b)]
        fits = np.equal(a.value, b.value) | ones[0] | ones[1]
        condition = Num(fits if isinstance(fits, np.ndarray) and fits.ndim else bool(fits), a.mask | b.mask)
        self._note(condition, f"meets sizes {{0}} and {{1}} {where}", a, b, ties=True, ones=True)
        if not np.any(ones[0]):
            return a if np.any(ones[1]) or a.mask.bit_count() <= b.mask.bit_count() else b
        if not np.any(ones[1]):
            return b
        return Num(np.where(ones[0], b.value, a.value), a.mask | b.mask)
