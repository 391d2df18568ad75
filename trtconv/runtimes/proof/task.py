"""What is asked of ONNX Runtime about a piece of a model."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping

import onnx

from trtconv.core.frozen import frozen
from trtconv.graph.scope import Scope
from trtconv.graph.walk import all_nodes
from trtconv.runtimes.proof.feeds import InputKind, Role, Shape, Source

_SUMS = frozenset(
    (  # noqa: SIM905
        "Conv ConvTranspose Gemm MatMul Einsum Add Sub Sum Mean AveragePool GlobalAveragePool ReduceSum ReduceMean "
        "CumSum BatchNormalization Resize Upsample GridSample Mul Div DequantizeLinear MatMulInteger Dropout "
        "LpPool GlobalLpPool ReduceL1 ReduceL2 ReduceSumSquare RoiAlign ImageScaler ScatterND ScatterElements "
        "Softmax DeformConv LRN Mod"
    ).split()
)
"""Operators that add products: their condition is what they compute of magnitudes."""
_WEIGHED = frozenset("Conv ConvTranspose Gemm DeformConv".split())  # noqa: SIM905
_SUMMED = frozenset("GlobalAveragePool ReduceMean ReduceSum".split())  # noqa: SIM905
_SIZE_ALONE = frozenset({"Shape", "Size"})
_DRAWN_ALONE = 8
_FEW_TERMS = 32
"""Up to so many both sides mostly add alike; of more, each adds in an order of its own."""


class Look(enum.IntEnum):
    """How closely a piece is looked at: what else is computed of it, to say how far rounding may take it."""

    VALUES = 0
    TERMS = 1
    """Also what its terms add up to without their signs, where it is a sum of products."""
    MOVED = 2
    """Also on inputs that are moved a little."""


@frozen
class Task:
    """A piece of the model to be run.

    Args:
        number: Of the piece.
        nodes: Positions of its nodes.
        sources: What it starts from.
        target: What it computes.
        shapes: Of each source.
        limits: Values around which it may behave otherwise.
        largest: The scale of large inputs.
        kinds: Kinds of inputs.
        eps: Its unit of rounding.
        narrow: Whether its type is one that NumPy alone has not.
        result: The shape that the target is known to have, -1 where a size is not; None: not known.
        look: How closely it is looked at.
        calms: How calm inputs of a kind are to be, where the piece ran on them before.
    """

    number: int
    nodes: tuple[int, ...]
    sources: tuple[Source, ...]
    target: str
    shapes: Mapping[str, Shape]
    limits: tuple[float, ...]
    largest: float
    kinds: tuple[InputKind, ...]
    eps: float
    narrow: bool
    result: tuple[int, ...] | None = None
    look: Look = Look.VALUES
    calms: Mapping[InputKind, int] = dataclasses.field(default_factory=dict)

    @property
    def elements(self) -> int:
        """How many elements its sources have together."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def sizing(self) -> bool:
        """Whether integers that it starts from decide shapes."""
        return any(source.role is Role.SIZES for source in self.sources)


def adds(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether nodes, or those of graphs in them, add products: then they have terms."""
    return any(node.op_type in _SUMS for node in all_nodes(nodes))


def elements_read(nodes: Iterable[onnx.NodeProto], shapes: Mapping[str, Shape]) -> int:
    """Returns how many elements nodes read of tensors of these shapes; those whose size alone they ask for, which are
    drawn too, count less."""
    read = {name for node in all_nodes(nodes) if node.op_type not in _SIZE_ALONE for name in node.input}
    return sum(math.prod(shape) // (1 if name in read else _DRAWN_ALONE) for name, shape in shapes.items())


def first_look(nodes: Iterable[onnx.NodeProto], scope: Scope) -> Look:
    """Returns how closely to look at a piece at first: a second look at it costs as much as the first.

    Args:
        nodes: Those of the piece.
        scope: Their graph.
    """
    return Look.TERMS if any(_adds_many(node, scope) for node in nodes) else Look.VALUES


def _adds_many(node: onnx.NodeProto, scope: Scope) -> bool:
    if node.op_type not in _WEIGHED:
        return node.op_type in _SUMMED
    weight = scope.initializer(node.input[1])
    return weight is None or math.prod(weight.dims[1:]) > _FEW_TERMS
