"""What a node or a layer reads, each asked for once: what nobody asks for has no words."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.runtimes.proof.terms.term import Term, Wordless


class Operands:
    """The inputs of a node or a layer.

    Args:
        inputs: Terms of its inputs; None where an optional one is absent.
    """

    def __init__(self, inputs: Sequence[Term | None]) -> None:
        self._inputs = list(inputs)

    def operand(self, index: int = 0) -> Term:
        """Returns an input that must be there."""
        term = self.optional(index)
        if term is None:
            raise Wordless(f"no input {index}")
        return term

    def optional(self, index: int) -> Term | None:
        """Returns an input; None where it is absent. What nobody asks for has no words."""
        if index >= len(self._inputs):
            return None
        term, self._inputs[index] = self._inputs[index], None
        return term

    def ints(self, index: int) -> list[int] | None:
        """Returns the values of an input that holds sizes or axes; None where it is absent.

        Raises:
            Wordless: They are not known.
        """
        term = self.optional(index)
        return None if term is None else ints_of(term)

    def scalar(self, index: int, default: float) -> float:
        """Returns the one number that an input is."""
        operand = self.optional(index)
        if operand is None:
            return default
        if operand.array is None or operand.array.size != 1:
            raise Wordless("a number that is computed")
        return float(operand.array.reshape(()))

    def all(self) -> list[Term]:
        """Returns the inputs up to the first that is absent."""
        operands: list[Term] = []
        while (term := self.optional(len(operands))) is not None:
            operands.append(term)
        return operands

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if self._inputs.count(None) < len(self._inputs):
            raise Wordless("more than is written down here")


def ints_of(term: Term) -> list[int]:
    """Returns the values of a term that holds sizes or axes.

    Raises:
        Wordless: They are not known.
    """
    if term.array is None or term.array.dtype.kind not in "iu":
        raise Wordless("sizes that are computed")
    return [int(value) for value in term.array.reshape(-1)]
