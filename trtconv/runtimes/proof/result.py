"""What a proof found."""

from __future__ import annotations

import dataclasses

from trtconv.core.documents.parts import UnprovenLayer
from trtconv.core.documents.proof import (
    BuildProof,
    ComparedOutput,
    Lack,
    PieceCounts,
    Unshown,
    WeightCounts,
    WorstOutput,
)
from trtconv.core.errors import TrtconvError
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
        overflows: Whether it is NaN or infinite where the model is not, and nothing else.
    """

    tensor: str
    node: str
    layer: str
    kind: str
    why: str
    shapes: dict[str, list[int]]
    by_passes: bool = False
    overflows: bool = False


@frozen
class ProofResult:
    """What was proven of a network.

    Args:
        sizes: How many sizes were compared.
        layers: How many layers were run.
        unproven: The layers that were not.
        error: The largest relative error of an output; None where nothing was compared.
        worst: The output and size of it.
        agrees: Whether all that was compared agrees; None where nothing was.
        why: Why nothing was, or not all.
        divergence: Where it does not agree.
        pieces: How many pieces are proven by themselves.
        missing: What was not shown.
        compared: The outputs at each size.
    """

    sizes: int = 0
    layers: int = 0
    unproven: tuple[UnprovenLayer, ...] = ()
    error: float | None = None
    worst: WorstOutput | None = None
    agrees: bool | None = None
    why: str = ""
    divergence: Divergence | None = None
    pieces: PieceCounts = PieceCounts()
    missing: tuple[Unshown, ...] = ()
    compared: tuple[ComparedOutput, ...] = ()

    def joined(self, other: ProofResult) -> ProofResult:
        """Returns what this proof and that of another size say together."""
        worse = other.error is not None and (self.error is None or other.error > self.error)
        verdicts = {self.agrees, other.agrees}
        return dataclasses.replace(
            self,
            sizes=self.sizes + other.sizes,
            layers=max(self.layers, other.layers),
            unproven=tuple(dict.fromkeys((*self.unproven, *other.unproven))),
            error=other.error if worse else self.error,
            worst=other.worst if worse else self.worst,
            agrees=False if False in verdicts else True if True in verdicts else None,
            why=self.why or other.why,
            divergence=self.divergence or other.divergence,
            compared=(*self.compared, *other.compared),
        )

    def record(self, weights: WeightCounts | None, level: str) -> BuildProof:
        """Returns what a document says of it, and of the weights; `level` is how much was to be proven."""
        return BuildProof(
            "network",
            self.sizes,
            self.layers,
            self.unproven,
            self.error,
            self.worst,
            self.agrees,
            self.why,
            self.pieces,
            self.missing,
            weights,
            level,
            self.compared,
        )


@frozen
class PiecesResult:
    """What came of the pieces.

    Args:
        proven: How many are proven.
        of: How many there are.
        missing: What was not shown of the others.
        defined: How many are proven by their definition.
        divergence: The first that computes something else.
    """

    proven: int = 0
    of: int = 0
    missing: tuple[Unshown, ...] = ()
    divergence: Divergence | None = None
    defined: int = 0


def unread(where: str, error: TrtconvError) -> Unshown:
    """Returns what is not shown where a model's file, read before, cannot be read again; whoever asked may have taken
    it away."""
    return Unshown(Lack.REFERENCE, where, f"the file could not be read again ({error})")
