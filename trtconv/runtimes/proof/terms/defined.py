"""Which pieces of a network are shown by their definition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from trtconv.core.errors import TrtconvError
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import ElementKinds
from trtconv.graph.types import known_dtype_name
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.terms import of_model, of_network
from trtconv.runtimes.proof.terms.term import Term, Wordless, same, tensor
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadNetwork, ReadTensor

UNFIT = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    *(NotProven, TrtconvError, Wordless),
)
"""What comes of what has no words, and of models and networks that do not fit together, are very deep, or large:
whoever runs them says so."""


class Definitions:
    """What a network and its model come to by the definitions of layers and nodes, piece by piece.

    Args:
        network: The network.
        model: Its model, which must not change.
        numbers: Name of each tensor that both have to its number in the network.
    """

    def __init__(self, network: ReadNetwork, model: OnnxModel, numbers: Mapping[str, int]) -> None:
        self._network, self._numbers = network, numbers
        self._nodes, self._types = of_model.NodeTerms(model), model.whole.element_types

    def show(self, piece: Piece) -> bool:
        """Whether nodes and layers of a piece come to the same term."""
        numbers, tensors = self._numbers, self._network.tensors
        try:
            named = {name: _source(self._types, tensors[numbers[name]]) for name in piece.sources if name in numbers}
            before = self._nodes.of(piece.nodes, named)
            numbered = {numbers[name]: source for name, source in named.items()}
            computed = of_network.terms_of(self._network, piece.layers, numbered)
            return _alike(before[piece.target], computed[numbers[piece.target]])
        except UNFIT:
            return False


def is_kept(
    one: OnnxModel,
    other: OnnxModel,
    nodes: tuple[Iterable[int], Iterable[int]],
    target: str,
    sources: Collection[ReadTensor],
) -> bool:
    """Whether nodes of two models that both make a tensor come to the same term.

    Args:
        one: A model.
        other: Another.
        nodes: Positions of the nodes of each, in their order.
        target: The tensor.
        sources: What either starts from, as a network of the second has it.
    """
    try:
        before, after = (
            of_model.NodeTerms(model).of(part, {end.name: _source(model.whole.element_types, end) for end in sources})
            for model, part in zip((one, other), nodes, strict=True)
        )
        return _alike(before[target], after[target])
    except UNFIT:
        return False


def _alike(one: Term | None, other: Term | None) -> bool:
    return one is not None and other is not None and same(one, other)


def _source(types: ElementKinds, end: ReadTensor) -> Term:
    if end.shape is None or known_dtype_name(types[end.name]) != end.dtype:
        raise Wordless(f"{end.name} has another type, or no rank")
    return tensor(end.name, end.dtype, end.shape)
