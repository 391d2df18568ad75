"""What a network takes, as `check` and `sizes` tell it."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.encode import Document
from trtconv.core.findings import Location
from trtconv.core.frozen import frozen


@frozen
class Activations(Document, keys="sizes bytes node largest elements complete"):
    """What a network's activations take at one size.

    Args:
        sizes: The free dimensions.
        bytes: The most that is alive at once.
        node: The node at which that is.
        largest: The tensor with most elements.
        elements: How many it has.
        complete: Whether the size of every tensor is known; the others are left out.
        maker: The node that makes it; of the whole model where it is an input. Not in the document.
    """

    sizes: Mapping[str, int]
    bytes: int
    node: Location
    largest: str
    elements: int
    complete: bool
    maker: Location = Location()


@frozen
class MemoryRecord(Document):
    """What a network takes at the largest sizes of each profile.

    Args:
        model_bytes: Of the model, its weights among them.
        profiles: What the activations take.
    """

    model_bytes: int
    profiles: tuple[Activations, ...]
