"""The types that `--precision auto` found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtconv.core.decode import Fault, Measured, fields_of
from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.core.requests.common import NODE_PRECISIONS, PRECISIONS


@frozen
class TypedPart(Document):
    """Nodes that have one type together.

    Args:
        nodes: Their names.
        time: Share of the network's time in float32.
        saved: What 16 bits save of it; as a share of the network's time in float32 too.
        error: Error (rms) of the network in which they alone are in 16 bits; None where it was not measured.
        type: What they are computed in; "mixed" where single ones differ.
    """

    nodes: tuple[str, ...]
    time: float
    saved: float
    error: Measured | None = None
    type: str = ""


@frozen
class Mix(Document):
    """Types that were found.

    Args:
        precision: Of the nodes that have no type of their own.
        node_precisions: Node to its own type.
        tolerance: The error that was allowed, or the worst value of the metric; errors are then by how much it is
            worse.
        error: That of the mix, on the samples: the largest rms of an output, over that of the model's.
        error_of_all: That of the network with all that fits in 16 bits.
        engine_error: That of an engine for the sizes of the samples, run on the GPU; None where there is none.
        engine_missing: Why there is none.
        time: Over that of the network in float32, as the sum of its parts.
        timed_on: The GPU that the parts were timed on; None where their time is estimated by operations and bytes.
        untimed: Why it is; empty where it was measured.
        samples: How many samples the errors are of.
        source: Where they come from.
        parts: What was weighed against each other.
        metric: What counts in place of the error; None where nothing does.
    """

    precision: str
    node_precisions: Mapping[str, str]
    tolerance: float
    error: Measured
    error_of_all: Measured
    engine_error: Measured | None
    engine_missing: str
    time: float
    timed_on: str | None
    untimed: str
    samples: int
    source: str
    parts: tuple[TypedPart, ...]
    metric: MetricResult | None = None

    @property
    def allowed(self) -> float:
        """The largest error that was allowed."""
        return self.tolerance if self.metric is None else self.metric.allowed

    @classmethod
    def from_json(cls, value: Any) -> Mix:
        """Reads what `to_json` makes."""
        mix = cls(**fields_of(cls, value))
        require_types(mix.precision, mix.node_precisions)
        return mix


def require_types(precision: str, nodes: Mapping[str, str]) -> None:
    """Raises Fault where a precision, or that of a node, is none that there is."""
    if precision not in PRECISIONS:
        raise Fault(f"{precision!r} is not one of {', '.join(PRECISIONS)}", ["precision"])
    for node, kind in nodes.items():
        if kind not in NODE_PRECISIONS:
            raise Fault(f"{kind!r} is not one of {', '.join(NODE_PRECISIONS)}", [node, "node_precisions"])
