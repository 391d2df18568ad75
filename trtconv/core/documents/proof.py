"""What was proven, as `build`, `check` and `verify` tell it."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.dims import Shape
from trtconv.core.documents.parts import UnprovenLayer
from trtconv.core.encode import Document
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
class Unshown(Document):
    """Something that a proof did not show.

    Args:
        what: Of what kind.
        where: The tensor, layer or size.
        reason: Why, in words.
    """

    what: Lack
    where: str
    reason: str


@frozen
class PieceCounts(Document):
    """How many pieces of a network are proven by themselves.

    Args:
        proven: So many.
        of: All of them.
        defined: How many of those that are proven are so by their definition, and were not run.
    """

    proven: int = 0
    of: int = 0
    defined: int = 0


@frozen
class WorstOutput(Document):
    """The output that is furthest off, and the size at which it is."""

    output: str
    size: str


@frozen
class ComparedOutput(Document):
    """An output of a network beside the model's, at one size.

    Args:
        output: Its name.
        size: What the size is called: "min", "opt of profile 1", "9x3x11x13".
        shapes: Of the inputs there.
        error: Its largest relative error.
    """

    output: str
    size: str
    shapes: Mapping[str, Shape]
    error: Measured


@frozen
class WeightCounts(Document):
    """How many weights of a network are the file's, bit for bit.

    Args:
        equal: As they are in the file.
        derived: As they are derived from it again.
        of: All of them.
    """

    equal: int = 0
    derived: int = 0
    of: int = 0


@frozen
class ProofRecord(Document):
    """What was proven.

    Args:
        of: What was compared with the model: "engine", "network" (what TensorRT's parser made) or "rewritten".
        sizes: How many sizes were compared.
        layers: How many layers were run.
        unproven: The layers that were not.
        max_relative_error: The largest of an output; None where nothing was compared.
        worst: The output and size of it.
        agrees: Whether all that was compared agrees; None where nothing was.
    """

    of: str = "network"
    sizes: int = 0
    layers: int = 0
    unproven: tuple[UnprovenLayer, ...] = ()
    max_relative_error: Measured | None = None
    worst: WorstOutput | None = None
    agrees: bool | None = None


@frozen
class BuildProof(ProofRecord):
    """What a build or a check proved of the parsed network.

    Args:
        why: Why nothing was compared, or not all.
        pieces: How many pieces are proven by themselves.
        missing: What was not shown.
        weights: How many weights are the file's; None where that was not looked at.
        level: "quick", "full" or "required"; empty where an older trtconv did not say.
        compared: The outputs at each size at which the whole was run, those beside the profiles too.
    """

    why: str = ""
    pieces: PieceCounts = PieceCounts()
    missing: tuple[Unshown, ...] = ()
    weights: WeightCounts | None = None
    level: str = ""
    compared: tuple[ComparedOutput, ...] = ()
