"""One layer, asked for all that it has: what nobody asked for has no words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.proof.terms.operands import Operands
from trtconv.runtimes.proof.terms.term import Term, Wordless
from trtconv.runtimes.tensorrt.readback.records import ReadLayer


class LayerCall(Operands):
    """One layer with what it reads.

    Args:
        layer: The layer.
        inputs: Terms of its inputs; None where an optional one is absent.
        dtype: Type of its result.
    """

    def __init__(self, layer: ReadLayer, inputs: Sequence[Term | None], dtype: str) -> None:
        self.kind, self.dtype = layer.kind, dtype
        super().__init__(inputs)
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
        with np.errstate(over="ignore"):
            return float(np.float32(self.take(name)))

    def drop(self, *names: str) -> None:
        """Takes attributes that say nothing here."""
        for name in names:
            self._values.pop(name, None)

    def weights(self, name: str) -> Array:
        """Returns weights; empty where there are none."""
        values = self.take(name)
        if not isinstance(values, np.ndarray):
            raise Wordless("weights that cannot be read")
        return values

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if self._values:
            raise Wordless("more than is written down here")
        super().finish()
