"""Which layers cost the most accuracy, and which to leave in float until an error is met."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trtconv.core.documents.quantize import BudgetRecord, Step
from trtconv.core.frozen import frozen
from trtconv.precision.quantize.layers import WeightedLayer

Judge = Callable[[Sequence[WeightedLayer]], float]
"""Error of the network in which these layers are quantised."""
Tell = Callable[[int, int], None]


@frozen
class Spending:
    """What `--budget` came to.

    Args:
        error: With every layer quantised.
        alone: Layer to the error where it alone is left in float.
        steps: Layers left in float, in the order in which they were.
        layers: What stays quantised.
        met: Whether the error is within the budget.
    """

    error: float
    alone: dict[str, float]
    steps: tuple[Step, ...]
    layers: tuple[WeightedLayer, ...]
    met: bool

    def record(self, limit: float) -> BudgetRecord:
        """Returns what a document says of it; `limit` is the error that was to be met."""
        return BudgetRecord(limit, self.met, self.error, self.alone, self.steps)


def spend(layers: Sequence[WeightedLayer], budget: float, judge: Judge, tell: Tell) -> Spending:
    """Leaves layers in float, the one that costs most first, until the error is within the budget.

    Each layer is once left in float by itself; then those that gain most are left out one by one, and what they gain
    together is measured again. A layer after which the error is no smaller stays quantised.

    Args:
        layers: Those that are quantised.
        budget: The error to be met.
        judge: Measures.
        tell: Hears how many layers were tried, of how many.
    """
    error = first = judge(layers)
    if error <= budget:
        return Spending(first, {}, (), tuple(layers), True)
    alone: dict[str, float] = {}
    for count, layer in enumerate(layers, start=1):
        alone[layer.name] = judge([other for other in layers if other is not layer])
        tell(count, len(layers))
    current, steps = list(layers), []
    for layer in sorted(layers, key=lambda candidate: alone[candidate.name]):
        if error <= budget:
            break
        without = [other for other in current if other is not layer]
        now = judge(without)
        if now < error:
            steps.append(Step(layer.name, now, error - now))
            current, error = without, now
    return Spending(first, alone, tuple(steps), tuple(current), error <= budget)
