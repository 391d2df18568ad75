"""What `--precision` makes of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trtconv.core.documents.build import CastRecord
from trtconv.core.documents.mix import Mix
from trtconv.core.documents.pinned import Pinned
from trtconv.core.documents.rewrite import Edit
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.node_patterns import is_pattern

if TYPE_CHECKING:
    from trtconv.graph.arrays import Feeds


@frozen
class Types:
    """What is computed in which type.

    Args:
        precision: One of `trtconv.core.requests.common.PRECISIONS`; "auto" is none that a graph can have.
        nodes: Names of nodes to types of their own, of `trtconv.core.requests.common.NODE_PRECISIONS`.
        mix: What the search of `--precision auto` says of them in a report; None where they were asked for.
        sample: Inputs on which the search saw which values fit; None: random inputs show it.
        pinned: What the user asked for, where that was looked up in the model.
    """

    precision: str = "as-is"
    nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    mix: Mix | None = None
    sample: Feeds | None = None
    pinned: tuple[Pinned, ...] = ()

    @classmethod
    def of(cls, precision: str, pinned: tuple[Pinned, ...]) -> Types:
        """Returns the types that are asked for, of nodes that were looked up."""
        return cls(precision, {name: pin.type for pin in pinned for name in pin.nodes}, pinned=pinned)

    @property
    def required(self) -> Mapping[str, str]:
        """The nodes that were asked for by name: unlike those of a pattern, each has to have its type."""
        loose = {name for pin in self.pinned if is_pattern(pin.pattern) for name in pin.nodes}
        return {name: kind for name, kind in self.nodes.items() if name not in loose}


@frozen
class Applied:
    """What was done to a model for its precision.

    Args:
        edits: The same in words; empty where the builder's flags do it.
        findings: What is wrong, or not known, about it.
        report: As in the build report under "cast"; None where nothing was cast.
    """

    edits: tuple[Edit, ...] = ()
    findings: tuple[Finding, ...] = ()
    report: CastRecord | None = None
