"""Which pieces of a network are shown by their definition."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.terms import of_model, of_network
from trtconv.runtimes.proof.terms.term import Term, Wordless, same, tensor
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of models and networks that do not fit together: whoever runs them says so."""


def is_defined(network: ReadNetwork, model: OnnxModel, numbers: Mapping[str, int], piece: Piece) -> bool:
    """Whether nodes and layers of a piece come to the same term.

    Args:
        network: The network.
        model: Its model.
        numbers: Name of each tensor that both have to its number in the network.
        piece: The piece.
    """
    try:
        named = {name: _source(network, model, name, numbers[name]) for name in piece.sources if name in numbers}
        meant = of_model.terms_of(model, piece.nodes, named)
        numbered = {numbers[name]: source for name, source in named.items()}
        computed = of_network.terms_of(network, piece.layers, numbered)
    except (Wordless, *_UNFIT):
        return False
    return same(meant[piece.target], computed[numbers[piece.target]])


def _source(network: ReadNetwork, model: OnnxModel, name: str, number: int) -> Term:
    held = network.tensors[number]
    if held.shape is None or model.main.dtype(name) != held.dtype:
        raise Wordless(f"{name} has another type, or no rank")
    return tensor(name, held.dtype, held.shape)
