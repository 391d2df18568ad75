"""Whether a network runs at sizes of its dimensions, where its nodes do not tell."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from trtconv.core.bounds import shapes_with_sizes
from trtconv.core.errors import TrtconvError
from trtconv.graph.model import OnnxModel

_SECONDS = 20.0
"""For all sizes that are tried, together."""


class SizeTrials:
    """Runs a model on ONNX Runtime, as long as there is time.

    Args:
        model: The model.
        until: When to stop, on the clock of `time.monotonic`, if not before.
    """

    def __init__(self, model: OnnxModel, until: float = math.inf) -> None:
        self._model = model
        self._deadline = min(time.monotonic() + _SECONDS, until)

    def __call__(self, points: Sequence[Mapping[str, int]]) -> bool:
        """Whether it runs at each of some sizes of its dynamic dimensions."""
        # Loaded only here: few requests want it.
        from trtconv.runtimes.observed import runs_at

        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            return False
        try:
            sizes = [shapes_with_sizes(self._model.inputs, point) for point in points]
            return runs_at(self._model, sizes, seconds)
        except TrtconvError:
            return False
