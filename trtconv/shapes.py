"""Named dimensions, their bounds, and optimization profiles.

The vocabulary: a model has *inputs*; every axis of an input is either static or carries a *dimension name*: the
symbolic name in the model, or `INPUT:AXIS` (such as `x:2`) where the model gives none. A `Range` bounds a
dimension, and a `ShapeProfile` gives every input a min, opt and max shape, as TensorRT wants them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from trtconv.errors import InputError

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, order=True)
class Range:
    """Inclusive bounds of one dimension, in elements.

    Raises:
        InputError: Unless 1 <= min <= opt <= max.
    """

    min: int
    opt: int
    max: int

    def __post_init__(self) -> None:
        if self.min < 1:
            raise InputError(f"{self}: a dimension is at least 1", "Give positive sizes, as in height=64:256:512.")
        if not self.min <= self.opt <= self.max:
            raise InputError(
                f"{self}: bounds must be ordered min <= opt <= max",
                f"Did you mean {Range(*sorted((self.min, self.opt, self.max)))}?",
            )

    def __str__(self) -> str:
        return f"{self.min}:{self.opt}:{self.max}"

    @classmethod
    def parse(cls, text: str) -> Range:
        """Reads "MIN:OPT:MAX", "MIN:MAX" (opt = max) or "N" (fixed)."""
        parts = text.split(":")
        try:
            sizes = [int(part) for part in parts]
        except ValueError as error:
            raise InputError(f"{text!r} is not MIN:OPT:MAX, MIN:MAX or N", "Give integers, as in 64:256:512.") from error
        if len(sizes) == 1:
            return cls(sizes[0], sizes[0], sizes[0])
        if len(sizes) == 2:
            return cls(sizes[0], sizes[1], sizes[1])
        if len(sizes) == 3:
            return cls(*sizes)
        raise InputError(f"{text!r} has {len(sizes)} parts", "Give MIN:OPT:MAX, MIN:MAX or N.")


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One graph input as the model declares it.

    Args:
        name: Tensor name.
        dtype: ONNX element type in lower case, for example "float" or "int64".
        dims: One entry an axis: a size, or a dimension name.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(str(d) for d in self.dims)})"


@dataclasses.dataclass(frozen=True)
class InputRange:
    """The min, opt and max shape of one input in one profile."""

    min: Shape
    opt: Shape
    max: Shape

    def to_json(self) -> dict[str, list[int]]:
        return {"min": list(self.min), "opt": list(self.opt), "max": list(self.max)}


@dataclasses.dataclass(frozen=True)
class ShapeProfile:
    """One optimization profile: min, opt and max for every input of a model.

    Args:
        inputs: Input name to its shapes; has every input that the model has, static ones too.
        dims: The named dimensions behind it.
    """

    inputs: Mapping[str, InputRange]
    dims: Mapping[str, Range]

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        return {name: shapes.to_json() for name, shapes in self.inputs.items()}


def dynamic_dims(inputs: Sequence[InputSpec]) -> dict[str, list[str]]:
    """Returns each dynamic dimension's name with the places (`INPUT:AXIS`) where it occurs, in order."""
    found: dict[str, list[str]] = {}
    for spec in inputs:
        for axis, dim in enumerate(spec.dims):
            if isinstance(dim, str):
                found.setdefault(dim, []).append(f"{spec.name}:{axis}")
    return found


def make_profile(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> ShapeProfile:
    """Makes the profile of a model from the bounds of its dimensions.

    Args:
        inputs: The model's inputs.
        bounds: Dimension name (or `INPUT:AXIS`) to its range. A range of one size is accepted for a static axis
            of just that size.

    Returns:
        The profile; every input is in it.

    Raises:
        InputError: For a name that the model does not have, a range given to a static axis, or a dynamic dimension
            without bounds. The message lists what exists and a command line to copy.
    """
    ranges = _resolve(inputs, bounds)
    missing = [name for name in dynamic_dims(inputs) if name not in ranges]
    if missing:
        raise _missing_bounds(inputs, missing)

    def shape(spec: InputSpec, pick: str) -> Shape:
        return tuple(d if isinstance(d, int) else getattr(ranges[d], pick) for d in spec.dims)

    shapes = {s.name: InputRange(shape(s, "min"), shape(s, "opt"), shape(s, "max")) for s in inputs}
    return ShapeProfile(shapes, ranges)


def _resolve(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Maps every given name to the model's own name for that dimension."""
    dims = dynamic_dims(inputs)
    by_place = {place: name for name, places in dims.items() for place in places}
    static = {f"{s.name}:{axis}": d for s in inputs for axis, d in enumerate(s.dims) if isinstance(d, int)}
    ranges: dict[str, Range] = {}
    for given, bound in bounds.items():
        if given in static:
            if bound.min != static[given] or bound.max != static[given]:
                raise InputError(
                    f"dimension {given} is static ({static[given]}) and cannot range over {bound}",
                    f"Leave out {given}, or export the model with that axis dynamic.",
                )
            continue
        name = given if given in dims else by_place.get(given)
        if name is None:
            raise InputError(f"the model has no dimension {given!r}", f"It has: {_list_dims(inputs)}.")
        if name in ranges and ranges[name] != bound:
            raise InputError(f"dimension {name} is given twice: {ranges[name]} and {bound}", "Give one range for it.")
        ranges[name] = bound
    return ranges


def _list_dims(inputs: Sequence[InputSpec]) -> str:
    dims = dynamic_dims(inputs)
    if not dims:
        return "no dynamic dimension; inputs are " + ", ".join(str(s) for s in inputs)
    return ", ".join(f"{name} ({', '.join(places)})" for name, places in dims.items())


def _missing_bounds(inputs: Sequence[InputSpec], missing: Sequence[str]) -> InputError:
    lines = [f"{len(missing)} dynamic dimension(s) without bounds:"]
    dims = dynamic_dims(inputs)
    lines += [f"  {name}  at {', '.join(dims[name])}" for name in missing]
    flags = " ".join(f"--dim {_quote(name)}=MIN:OPT:MAX" for name in missing)
    return InputError("\n".join(lines), f"Add: {flags}")


def _quote(name: str) -> str:
    plain = all(c.isalnum() or c in "_-.:/" for c in name)
    return name if plain else "'" + name.replace("'", "'\\''") + "'"
