"""Which sizes a network accepts, as `sizes` and the report of a build tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.encode import Document
from trtconv.core.findings import Location
from trtconv.core.frozen import frozen


@frozen
class DimRecord(Document):
    """The sizes of one dimension.

    Args:
        min: Smallest size that was asked about.
        max: Largest one.
        step: Distance of the finest regular grid that all valid sizes are on; None where there are fewer than two.
        offset: What that grid adds to the multiples of `step`.
        valid: The valid sizes in range; None where every size is.
        accepted: The valid sizes in words.
    """

    min: int
    max: int
    step: int | None = None
    offset: int | None = None
    valid: tuple[int, ...] | None = None
    accepted: str = ""


@frozen
class ImposedRecord(Document, keys="dims needs evidence source? location text"):
    """What one node asks of the sizes; `text` says all in one sentence."""

    dims: tuple[str, ...] = ()
    needs: str = ""
    evidence: str = ""
    source: str = ""
    location: Location = Location()
    text: str = ""


@frozen
class UnknownNode(Document):
    """A node behind which shapes cannot be told, and why."""

    node: str
    why: str


@frozen
class LatticeRecord(Document):
    """The sizes that a network accepts.

    Args:
        dims: Every dimension by name.
        joint: Relations between dimensions, such as "height == width".
        imposed: Which nodes ask for it.
        unknown: Nodes behind which shapes cannot be told.
        data_dependent: Nodes whose output size depends on the data.
        exact: Whether every combination in range was decided.
    """

    dims: Mapping[str, DimRecord] = dataclasses.field(default_factory=dict)
    joint: tuple[str, ...] = ()
    imposed: tuple[ImposedRecord, ...] = ()
    unknown: tuple[UnknownNode, ...] = ()
    data_dependent: tuple[Location, ...] = ()
    exact: bool = True
