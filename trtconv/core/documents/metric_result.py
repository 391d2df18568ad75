"""What a metric says of a network that takes the place of a float one."""

from __future__ import annotations

from trtconv.core.decode import Measured
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class MetricResult(Document, keys="metric value standard_error of_float limit larger_is_better samples met"):
    """What a metric says of a network.

    Args:
        metric: A built-in name, or FILE.py:FUNC.
        value: The mean over the samples.
        standard_error: Of that mean; None with one sample.
        of_float: What the float network has, held against itself: the best value.
        limit: The worst value that is allowed.
        samples: How many there were.
    """

    metric: str
    value: Measured
    standard_error: Measured | None
    of_float: Measured
    limit: float
    samples: int

    @property
    def larger_is_better(self) -> bool | None:
        """Which way is better: away from the limit; None where the limit is the float network's own value."""
        return None if self.limit == self.of_float else self.limit < self.of_float

    @property
    def loss(self) -> float:
        """By how much the value is worse than the float network's; 0 where it is no worse."""
        better = self.larger_is_better
        worse = self.of_float - self.value
        return max(0.0, worse if better else -worse) if better is not None else abs(worse)

    @property
    def allowed(self) -> float:
        """The largest loss that the limit allows."""
        return abs(self.of_float - self.limit)

    @property
    def goal(self) -> str:
        """The limit in words: "at least 0.95"."""
        side = {True: "at least", False: "at most", None: "just"}[self.larger_is_better]
        return f"{side} {self.limit:g}"

    @property
    def met(self) -> bool:
        """Whether the value is no worse than the limit."""
        return self.loss <= self.allowed
