"""What `trtconv plan-profiles` found; no numbers are made here."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.dims import Range, Shape
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class PlannedProfile(Document):
    """One optimization profile.

    Args:
        dims: Dimension to its range.
        requests: How many requests run in it.
        cost: What they cost, as a share of the cost of all in one profile.
        activation_bytes: What activations take at its max, about.
    """

    dims: Mapping[str, Range]
    requests: float
    cost: float
    activation_bytes: int


@frozen
class PlannedRun(Document):
    """A size at which requests run.

    Args:
        profile: Index of the profile.
        sizes: Dimension to its size.
        shapes: Input to its shape.
        requests: How many run at it.
        padded: How many of these are smaller, and padded.
        time: What one takes: microseconds where times were measured, else an estimate in no unit.
    """

    profile: int
    sizes: Mapping[str, int]
    shapes: Mapping[str, Shape]
    requests: float
    padded: float
    time: float


@frozen
class PlanCost(Document):
    """What the same requests cost.

    Args:
        planned: In the planned profiles; 1 is all in one.
        one: In one profile with the best opt: 1.
        auto: In those of `--split auto`, with that opt.
        auto_profiles: How many these are.
        unit: "us" where times were measured, else "estimate".
        per_request: The mean of a request in the planned profiles, in that unit.
    """

    planned: float
    one: float
    auto: float
    auto_profiles: int
    unit: str
    per_request: float


@frozen
class TrafficPlan(
    Document, keys="schema model traffic requests sizes cost profiles runs memory_bytes flags written exit_code"
):
    """The division into profiles.

    Args:
        model: The model.
        traffic: The table of requests.
        requests: How many it counts.
        sizes: How many different sizes these have.
        cost: Of the plan, beside others.
        profiles: The profiles, in the order of their flags.
        runs: All sizes at which requests run, the cheapest first: a request runs at the first that is large enough.
        memory_bytes: The model and the activations of a context of each profile, about.
        flags: What to build with: ["--profile", "n=1:1:4", ...].
        written: Files that were written.
    """

    model: FileIdentity
    traffic: FileIdentity
    requests: float
    sizes: int
    cost: PlanCost
    profiles: tuple[PlannedProfile, ...]
    runs: tuple[PlannedRun, ...]
    memory_bytes: int
    flags: tuple[str, ...]
    written: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Always 0: what cannot be planned is an error."""
        return 0
