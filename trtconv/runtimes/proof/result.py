"""What a proof found."""

from __future__ import annotations

from typing import Any

from trtconv.core.frozen import frozen


@frozen
class Divergence:
    """Where a network leaves its model.

    Args:
        tensor: Name of the tensor.
        node: Name of the ONNX node that makes it; empty where it is none of the model's.
        layer: Name of the layer, empty where no layer could be named.
        kind: Its kind.
        why: How far it is off, in words.
        shapes: The input shapes at which it is.
        by_passes: Whether it is the rewritten model that leaves its file, and not the network that leaves the model.
    """

    tensor: str
    node: str
    layer: str
    kind: str
    why: str
    shapes: dict[str, list[int]]
    by_passes: bool = False


@frozen
class ProofResult:
    """What was proven of a network.

    Args:
        of: "engine", "network" or "rewritten".
        sizes: How many sizes were compared.
        layers: How many layers were run.
        unproven: The layers that were not, as {layer, kind, reason}.
        error: The largest relative error of an output; None where nothing was compared.
        worst: {output, size} of it.
        agrees: Whether all that was compared agrees; None where nothing was.
        why: Why nothing was, or not all.
        divergence: Where it does not agree.
    """

    of: str
    sizes: int = 0
    layers: int = 0
    unproven: tuple[dict[str, str], ...] = ()
    error: float | None = None
    worst: dict[str, Any] | None = None
    agrees: bool | None = None
    why: str = ""
    divergence: Divergence | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the proof as plain JSON values."""
        return {
            "of": self.of,
            "sizes": self.sizes,
            "layers": self.layers,
            "unproven": list(self.unproven),
            "max_relative_error": self.error,
            "worst": self.worst,
            "agrees": self.agrees,
            "why": self.why,
        }
