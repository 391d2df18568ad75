"""What a network should compute, as its proof is told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from trtconv.core.dims import InputSpec
from trtconv.core.documents.verify import Tolerance
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel


@frozen
class Meaning:
    """What a network should compute.

    Args:
        path: Where the model lies.
        original: The model that counts, serialized; None: the file itself.
        serialize: Returns the model as the parser was given it, serialized: its inner tensors have the names that the
            network's have. Asked only where something is to be looked for.
        makers: Returns for each tensor of that model the name of the node that makes it.
        tolerance: How far outputs may be off.
        megabytes: How much memory the model may take.
        batch: The largest batch that inputs may have whose first axis is dynamic.
        inputs: The model's inputs.
        steps: Returns the steps of the quantisers that make outputs.
        rewritten_error: How far, relatively, the given model may be from the one that counts.
        parsed: The model as the parser was given it; must not change.
        edited: The same, serialized; None where it is the file.
        same_numbers: Whether it differs from the one that counts by what passes changed alone, and by no cast.
        typical: Shapes of the inputs at which sizes can be told apart; empty where none are known.
    """

    path: str
    original: bytes | None
    serialize: Callable[[], bytes]
    makers: Callable[[], Mapping[str, str]]
    parsed: OnnxModel
    edited: bytes | None
    tolerance: Tolerance
    megabytes: float
    batch: int
    inputs: Sequence[InputSpec] = ()
    steps: Callable[[], Mapping[str, float]] = dict
    rewritten_error: float = math.inf
    same_numbers: bool = False
    typical: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
