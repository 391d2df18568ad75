"""The sizes and times of a recording of requests, as an engine takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.dims import InputSpec, Range, Shape, ShapeProfile
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.requests.base import Bounds
from trtconv.core.traffic import Traffic, TrafficRow
from trtconv.engine.profiles import profile_for, shapes_at
from trtconv.engine.serving.scheduling import Arrival
from trtconv.engine.serving.slots import RequestSize


@frozen
class Recording:
    """What came when.

    Args:
        sizes: Every size once.
        arrivals: All requests.
    """

    sizes: tuple[RequestSize, ...]
    arrivals: tuple[Arrival, ...]


def recording(
    traffic: Traffic, inputs: Sequence[InputSpec], profiles: Sequence[ShapeProfile], dims: Bounds, most_seconds: float
) -> Recording:
    """Returns the requests of a table as an engine takes them.

    Args:
        traffic: The table, with times.
        inputs: The engine's inputs.
        profiles: Its profiles.
        dims: Sizes of dimensions that are no columns.
        most_seconds: How long it may last.

    Raises:
        InputError: The engine has no such dimension, one is lacking, or a size is in no profile; the message names the
            line.
    """
    last = max(traffic.rows, key=lambda row: row.number)
    if last.number >= most_seconds:
        raise InputError(
            f"{traffic.path}:{last.line}: a request comes after {last.number:g} s, and all may take {most_seconds:g} s",
            "Give a part of the file, or more time: --time-limit.",
        )
    fixed = _fixed(traffic, profiles, dims)
    numbers: dict[tuple[int, ...], int] = {}
    sizes: list[RequestSize] = []
    for key, row in traffic.distinct().items():
        numbers[key] = len(sizes)
        shapes = _shapes(traffic, row, fixed, inputs, profiles)
        profile = profile_for(profiles, shapes)
        sizes.append(RequestSize(profile, shapes, {n: b.opt for n, b in profiles[profile].values.items()}))
    return Recording(
        tuple(sizes), tuple(Arrival(row.number, numbers[tuple(row.sizes.values())]) for row in traffic.rows)
    )


def _fixed(traffic: Traffic, profiles: Sequence[ShapeProfile], dims: Bounds) -> dict[str, Range]:
    """Returns the dimensions that are the same in all requests: those of `--dim`, and those with one size."""
    ranges = traffic.fixed(dims)
    for name, bound in profiles[0].dims.items():
        if name in ranges or name in traffic.dims:
            continue
        if all(profile.dims.get(name) == bound for profile in profiles) and bound.min == bound.max:
            ranges[name] = bound
    return ranges


def _shapes(
    traffic: Traffic,
    row: TrafficRow,
    fixed: Mapping[str, Range],
    inputs: Sequence[InputSpec],
    profiles: Sequence[ShapeProfile],
) -> dict[str, Shape]:
    profile = traffic.profile_of(row, fixed, inputs, profiles[0].values)
    shapes = shapes_at(profile, "opt")
    if not any(candidate.contains(shapes) for candidate in profiles):
        raise _outside(f"{traffic.path}:{row.line}", profile, profiles)
    return shapes


def _outside(where: str, request: ShapeProfile, profiles: Sequence[ShapeProfile]) -> InputError:
    """Names the dimension that no profile takes, or all where each alone would be taken."""
    for name, bound in request.dims.items():
        ranges = [profile.dims[name] for profile in profiles if name in profile.dims]
        if ranges and not any(bounds.min <= bound.opt <= bounds.max for bounds in ranges):
            spans = ", ".join(f"{bounds.min} to {bounds.max}" for bounds in dict.fromkeys(ranges))
            return InputError(
                f"{where}: no profile of the engine takes {name} {bound.opt}; they take {spans}",
                "Leave the request out, or build the engine for it.",
            )
    together = ", ".join(f"{name} {bound.opt}" for name, bound in request.dims.items())
    return InputError(
        f"{where}: no profile of the engine takes {together} together",
        "Leave the request out, or build the engine for it.",
    )
