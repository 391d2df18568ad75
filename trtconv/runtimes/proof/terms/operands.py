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
        given = self.optional(index)
        if given is None:
            raise Wordless(f"no input {index}")
        return given

    def optional(self, index: int) -> Term | None:
        """Returns an input; None where it is absent. What nobody asks for has no words."""
        if index >= len(self._inputs):
            return None
        given, self._inputs[index] = self._inputs[index], None
        return given

    def ints(self, index: int) -> list[int] | None:
        """Returns the values of an input that holds sizes or axes; None where it is absent.

        Raises:
            Wordless: They are not known.
        """
        given = self.optional(index)
        if given is None:
            return None
        if given.array is None or given.array.dtype.kind not in "iu":
            raise Wordless("sizes that are computed")
        return [int(value) for value in given.array.reshape(-1)]

    def all(self) -> list[Term]:
        """Returns the inputs up to the first that is absent."""
        operands: list[Term] = []
        while (given := self.optional(len(operands))) is not None:
            operands.append(given)
        return operands

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if any(given is not None for given in self._inputs):
            raise Wordless("more than is written down here")
