"""One layer, asked for all that it has: what nobody asked for has no words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtconv.runtimes.proof.terms.term import Array, Term, Wordless
from trtconv.runtimes.tensorrt.readback.records import ReadLayer


class LayerCall:
    """One layer with what it reads.

    Args:
        layer: The layer.
        inputs: Terms of its inputs; None where an optional one is absent.
        dtype: Type of its result.
    """

    def __init__(self, layer: ReadLayer, inputs: Sequence[Term | None], dtype: str) -> None:
        self.kind, self.dtype = layer.kind, dtype
        self._inputs = list(inputs)
        self._values = dict(layer.values)

    def take(self, name: str) -> Any:
        """Returns an attribute, once; what nobody takes has no words, nor what is not there."""
        if name not in self._values:
            raise Wordless(f"no {name}")
        return self._values.pop(name)

    def has(self, name: str) -> bool:
        """Whether there is an attribute that only some versions have, and nobody took it."""
        return name in self._values

    def number(self, name: str) -> float:
        """Returns an attribute as the number that 32 bits hold."""
        return float(np.float32(self.take(name)))

    def drop(self, *names: str) -> None:
        """Takes attributes that say nothing here."""
        for name in names:
            self._values.pop(name, None)

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
        """Returns the values of an input that holds sizes or axes; None where it is absent."""
        given = self.optional(index)
        if given is None:
            return None
        if given.array is None or given.array.dtype.kind not in "iu":
            raise Wordless("sizes that are computed")
        return [int(value) for value in given.array.reshape(-1)]

    def weights(self, name: str) -> Array:
        """Returns weights; empty where there are none."""
        values = self.take(name)
        if not isinstance(values, np.ndarray):
            raise Wordless("weights that cannot be read")
        return values

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if self._values or any(given is not None for given in self._inputs):
            raise Wordless("more than is written down here")
