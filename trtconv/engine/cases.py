"""The sizes and inputs that an engine is tried with."""

from __future__ import annotations

import dataclasses
import importlib.util
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputSpec, Range, Shape, ShapeProfile
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.engine.profiles import PICKS, shapes_at
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import first_line, numpy_type, random_feeds
from trtconv.shapes.lattice import Sizes, first_faults

Feeds = dict[str, NDArray[Any]]

_TRIES = 64
"""Random combinations of sizes that are looked at for those that the network accepts."""


@frozen
class Case:
    """One run of an engine.

    Args:
        profile: Index of the optimization profile.
        size: "min", "opt", "max", "random 1", or "inputs".
        shapes: Input name to its shape.
        seed: Of its inputs.
        values: Inputs whose elements are given: those that hold shapes, or all that the user gave.
    """

    profile: int
    size: str
    shapes: Mapping[str, Shape]
    seed: int = 0
    values: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)


def cases_of_profiles(
    model: OnnxModel, profiles: Sequence[ShapeProfile], *, random: int = 0, seed: int = 0
) -> list[Case]:
    """Returns min, opt and max of each profile, and random sizes that the network accepts; each size once a profile."""
    found: list[Case] = []
    sizes = Sizes(model) if random else None
    for index, profile in enumerate(profiles):
        chosen: dict[str, Mapping[str, Shape]] = {}
        for pick in PICKS:
            if shapes_at(profile, pick) not in chosen.values() or profile.values:
                chosen[pick] = shapes_at(profile, pick)
        if sizes is not None and sizes.names:
            points = _random_points(sizes, profile, seed + index)
            drawn = [s for s in (_shapes_at(model, profile, point) for point in points) if s not in chosen.values()]
            chosen |= {f"random {n}": shapes for n, shapes in enumerate(drawn[:random], start=1)}
        for size, shapes in chosen.items():
            found.append(Case(index, size, shapes, seed + len(found), values_at(model, profile, size)))
    return found


def _shapes_at(model: OnnxModel, profile: ShapeProfile, point: Mapping[str, int]) -> dict[str, Shape]:
    fixed = make_profile(model.inputs, {name: Range(n, n, n) for name, n in point.items()}, profile.values)
    return shapes_at(fixed, "opt")


def values_at(model: OnnxModel, profile: ShapeProfile, size: str) -> dict[str, NDArray[Any]]:
    """Returns the elements of inputs that hold shapes; random sizes take those of opt."""
    pick = size if size in PICKS else "opt"
    specs = {spec.name: spec for spec in model.inputs}
    return {
        name: np.array(getattr(bounds, pick), numpy_type(specs[name])).reshape(getattr(profile.inputs[name], pick))
        for name, bounds in profile.values.items()
    }


def _random_points(sizes: Sizes, profile: ShapeProfile, seed: int) -> list[dict[str, int]]:
    """Draws different combinations of sizes that the network accepts, as far as shapes tell."""
    ranges = {name: profile.dims[name] for name in sizes.names if name in profile.dims}
    if len(ranges) < len(sizes.names) or all(r.min == r.max for r in ranges.values()):
        return []
    lattice = sizes.lattice({n: (r.min, r.max) for n, r in ranges.items()}, {n: r.opt for n, r in ranges.items()})
    random = np.random.default_rng(seed)

    def draw(name: str) -> int:
        valid = lattice.dims[name].valid if name in lattice.dims else None
        return int(random.choice(valid) if valid else random.integers(ranges[name].min, ranges[name].max + 1))

    points = [{name: draw(name) for name in ranges} for _ in range(_TRIES)]
    faults = first_faults(sizes.run(points).checks, len(points))
    accepted = [point for point, fault in zip(points, faults, strict=True) if fault is None]
    return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in accepted)]


def make_feeds(model: OnnxModel, case: Case, generator: str | None) -> Feeds:
    """Returns the inputs of a case.

    Raises:
        InputError: The user's generator fails, or its inputs do not fit.
    """
    feeds = random_feeds(model.inputs, case.shapes, case.seed)
    if generator is not None:
        made = _call(generator, dict(case.shapes), case.seed)
        feeds = checked_inputs(model.inputs, made, generator, case.shapes)
    return {**feeds, **case.values}


def read_inputs(model: OnnxModel, path: Path) -> Feeds:
    """Reads the inputs of a model from an .npz file.

    Raises:
        InputError: It is none, or its arrays do not fit.
    """
    try:
        # Without pickles: they would run code.
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise InputError(f"{path} holds one array without a name", "Write it with numpy.savez(PATH, NAME=array).")
        with loaded as file:
            held = sum(entry.file_size for entry in file.zip.infolist()) / 1e6
            budget.spend("megabytes", held, f"{path}: its arrays")
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", "Give an .npz file.") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise InputError(f"{path} is no .npz file of plain arrays: {error}", "Write it with numpy.savez.") from error
    return checked_inputs(model.inputs, arrays, str(path))


def checked_inputs(
    inputs: Sequence[InputSpec], arrays: Any, source: str, shapes: Mapping[str, Shape] | None = None
) -> Feeds:
    """Checks arrays against the inputs of a model.

    Args:
        inputs: What the model takes.
        arrays: What there is.
        source: Where they come from.
        shapes: The shapes that they should have; None: those that the model says.

    Raises:
        InputError: A name, rank, size or type that the model does not have, or a value that is NaN.
    """
    listed = ", ".join(f"{spec} {numpy_type(spec)}" for spec in inputs)
    if not isinstance(arrays, Mapping):
        raise InputError(f"{source} gives {type(arrays).__name__}, no dict of arrays", f"The inputs are {listed}.")
    for name in arrays:
        if name not in {spec.name for spec in inputs}:
            raise InputError(f"{source} has {name!r}, which is no input of the model", f"The inputs are {listed}.")
    found: Feeds = {}
    for spec in inputs:
        if spec.name not in arrays:
            raise InputError(f"{source} has no values for input {spec.name!r}", f"The inputs are {listed}.")
        try:
            array = np.asarray(arrays[spec.name])
        except Exception as error:
            # Lists of different lengths, or an object of another library that NumPy cannot read.
            raise InputError(
                f"{source}: input {spec.name!r} is no array: {first_line(error)}", "Give arrays."
            ) from error
        found[spec.name] = _checked_array(spec, array, source, (shapes or {}).get(spec.name))
    return found


def _checked_array(spec: InputSpec, array: NDArray[Any], source: str, shape: Shape | None) -> NDArray[Any]:
    dtype = numpy_type(spec)
    if array.dtype != dtype:
        raise InputError(
            f"{source}: input {spec.name!r} is {dtype} in the model, and {array.dtype} here",
            f"Convert it: array.astype({str(dtype)!r}).",
        )
    sizes = spec.dims if shape is None else shape
    if len(sizes) != array.ndim or any(isinstance(n, int) and n != m for n, m in zip(sizes, array.shape, strict=True)):
        wanted = ", ".join(str(n) for n in sizes)
        raise InputError(
            f"{source}: input {spec.name!r} has the shape {array.shape}, not ({wanted})", "Give one of that shape."
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise InputError(
            f"{source}: input {spec.name!r} holds NaN, {count} of {array.size} elements",
            "Give finite values: NaN spreads to the outputs, and shows nothing.",
        )
    return array


def _call(generator: str, shapes: dict[str, Shape], seed: int) -> Any:
    function = load_generator(generator)
    try:
        return function(shapes, seed)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{generator} failed: {type(error).__name__}: {first_line(error)}",
            "It is called as FUNCTION(shapes, seed), with {input: shape}, and returns {input: array}.",
        ) from error


def load_generator(text: str) -> Callable[[dict[str, Shape], int], Any]:
    """Imports a generator, "FILE.py:FUNCTION".

    Raises:
        InputError: There is none.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"--generator {text!r} is not FILE.py:FUNCTION", "Write --generator inputs.py:make.")
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file", "Check the path of the generator.")
    spec = importlib.util.spec_from_file_location("trtconv_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {first_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path} has no function {name!r}", "Name one that takes (shapes, seed).")
    return function  # type: ignore[no-any-return]
