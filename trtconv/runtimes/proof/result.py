"""What a proof found."""

from __future__ import annotations

import enum
from typing import Any

from trtconv.core.frozen import frozen


class Lack(enum.Enum):
    """What kind of thing a proof did not show."""

    KIND = "kind"
    """A layer of a kind, or with values, that is not run."""
    PIECE = "piece"
    """A piece that could not be run by itself."""
    SIZE = "size"
    BRANCH = "branch"
    TIME = "time"
    REFERENCE = "reference"
    """The model itself could not be run, or shows nothing."""


@frozen
class Unshown:
    """Something that a proof did not show.

    Args:
        what: Of what kind.
        where: The tensor, layer or size.
        reason: Why, in words.
    """

    what: Lack
    where: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Returns it as plain JSON values."""
        return {"what": self.what.value, "where": self.where, "reason": self.reason}


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
        pieces: How many pieces are proven by themselves, and how many there are.
        missing: What was not shown.
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
    pieces: tuple[int, int] = (0, 0)
    missing: tuple[Unshown, ...] = ()

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
            "pieces": {"proven": self.pieces[0], "of": self.pieces[1]},
            "missing": [each.to_json() for each in self.missing],
        }
