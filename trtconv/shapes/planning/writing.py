"""What `trtconv plan-profiles` calls: the plan, and the files that it writes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from trtconv.core.dims import ShapeProfile, dynamic_dims
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.traffic import TrafficPlan
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write
from trtconv.core.options import validate
from trtconv.core.outputs import Output, check_all
from trtconv.core.reading import sha256_of
from trtconv.core.requests.files import files_read
from trtconv.core.requests.traffic import PlanProfilesRequest
from trtconv.core.text import toml_string
from trtconv.core.traffic import COUNT, read_traffic
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.planning.demand import demand_of
from trtconv.shapes.planning.dispatchers import cpp_dispatcher, python_dispatcher
from trtconv.shapes.planning.plan import Division, Planner
from trtconv.shapes.planning.timing import Timing, measurements

FILES = ("profiles.toml", "dispatch.py", "dispatch.hpp")


def plan_profiles(request: PlanProfilesRequest) -> TrafficPlan:
    """Divides the sizes of requests into the optimization profiles that cost least for them.

    Returns:
        The plan; its files are written where that was asked for.

    Raises:
        InputError: A bad request, a table or a model that cannot be read, or sizes that the network does not accept.
    """
    validate(request)
    if request.output is not None:
        _check_folder(request, request.output)
    traffic = read_traffic(request.traffic, COUNT)
    model = OnnxModel.load(request.model)
    sizes = Sizes(model)
    measured = measurements(request.measured, model.inputs, sizes.names)
    demand = demand_of(model, sizes, traffic, request.dims, request.keep)
    division = Planner(model, sizes, demand, Timing(sizes, measured)).divided(request.profiles, request.memory)
    flags = tuple(word for profile in division.profiles for word in ("--profile", _bounds(profile, model)))
    plan = TrafficPlan(
        FileIdentity(str(request.model), model.digest()),
        FileIdentity(str(request.traffic), sha256_of(request.traffic)),
        sum(row.number for row in traffic.rows),
        len(traffic.distinct()),
        division.cost,
        division.planned,
        division.runs,
        division.memory,
        flags,
        () if request.output is None else tuple(str(request.output / name) for name in FILES),
    )
    if request.output is not None:
        _write(request, request.output, model, sizes.names, division)
    return plan


def _bounds(profile: ShapeProfile, model: OnnxModel) -> str:
    own = dynamic_dims(model.inputs)
    return ",".join(f"{name}={bound.short}" for name, bound in profile.dims.items() if name in own)


def build_command(plan: TrafficPlan) -> str:
    """Returns the build that makes the profiles, as a shell takes it."""
    return shlex.join(["trtconv", "build", str(plan.model.path), *plan.flags])


def _check_folder(request: PlanProfilesRequest, folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "Name a folder with -o.")
    try:
        toml_string(str(request.model))
    except ValueError as error:
        raise InputError(f"{request.model} has a name that no TOML file can hold", "Rename it to UTF-8.") from error
    sources = files_read(request)
    check_all([Output(folder / name, "a file of the plan") for name in FILES] if folder.is_dir() else [], sources)


def _write(
    request: PlanProfilesRequest, folder: Path, model: OnnxModel, names: Sequence[str], division: Division
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made: {error.strerror or error}", "Name another folder with -o."
        ) from error
    texts = (
        _toml(os.path.relpath(request.model, folder), division.profiles, model),
        python_dispatcher(request.model.name, model.inputs, names, request.keep, division.runs),
        cpp_dispatcher(model.inputs, names, request.keep, division.runs),
    )
    for name, text in zip(FILES, texts, strict=True):
        atomic_write(folder / name, text.encode(), through_links=True)


def _toml(path: str, profiles: Sequence[ShapeProfile], model: OnnxModel) -> str:
    own = dynamic_dims(model.inputs)
    lines = [
        "    { "
        + ", ".join(
            f"{toml_string(name)} = {toml_string(str(bound))}" for name, bound in profile.dims.items() if name in own
        )
        + " },"
        for profile in profiles
    ]
    return "\n".join(["[[models]]", f"path = {toml_string(path)}", "profiles = [", *lines, "]", ""])
