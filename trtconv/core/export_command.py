"""The command that exports a model again, with sizes that vary."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from trtconv.core.dims import InputSpec, Range

Dims = Mapping[str, Sequence[int | str]]

_AXES = {"batch": 0, "height": -2, "h": -2, "width": -1, "w": -1}
"""Names of sizes to the axis on which they usually lie."""


def export_command(inputs: Sequence[InputSpec], ranges: Mapping[str, Range], output: str) -> str:
    """Returns the command that exports a model with the sizes dynamic that have names, for who has its Python.

    Args:
        inputs: The model's inputs; their names and axes are in the command.
        ranges: Bounds of dimensions, by name.
        output: Name of the file to write.
    """
    words = ["trtconv", "export", "FILE.py:NETWORK", "-o", output]
    for spec in inputs:
        bounds = ((dim, ranges.get(str(dim))) for dim in spec.dims)
        axes = (str(dim) if bound is None else f"{dim}={bound}" for dim, bound in bounds)
        dtype = "" if spec.dtype == "float" else f":{spec.dtype}"
        words += ["--input", f"{spec.name}={','.join(axes)}{dtype}"]
    return shlex.join(words)


def freeing_command(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> str | None:
    """Returns the command that exports a model again, with fixed sizes of it dynamic.

    Args:
        inputs: The model's inputs.
        bounds: Bounds that were asked for: of `INPUT:AXIS`, or by a name that the model has not. Such a name is taken
            for the axis on which a size of this name usually lies; else for the first fixed axis of its opt size, if no
            other bound has the same; where all axes are fixed, for the first one within its bounds.

    Returns:
        The command; None where a bound fits no fixed axis, or none is to vary.
    """
    dims = {spec.name: list(spec.dims) for spec in inputs}
    names = {dim for axes in dims.values() for dim in axes}
    some_vary = any(isinstance(dim, str) for dim in names)
    ranges = {name: bound for name, bound in bounds.items() if name in names}
    opts = Counter(bound.opt for bound in bounds.values())
    # By their axis first, then by what they are called: what is left is for sizes.
    for name, bound in sorted(bounds.items(), key=lambda item: _rank(dims, *item)):
        if name in names:
            continue
        places = _places(dims, name, bound, some_vary, opts[bound.opt] == 1)
        if not places:
            return None
        tensor, axis = places[0]
        if bound.min == bound.max == dims[tensor][axis]:
            continue
        dims[tensor][axis] = re.sub(r"\W", "_", name)
        ranges[str(dims[tensor][axis])] = bound
    if dims == {spec.name: list(spec.dims) for spec in inputs}:
        return None
    freed = [InputSpec(spec.name, spec.dtype, tuple(dims[spec.name])) for spec in inputs]
    return export_command(freed, ranges, "dynamic.onnx")


def own_names(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Returns bounds by the model's own names of its axes, for names that say on which axes sizes usually lie.

    Args:
        inputs: The model's inputs.
        bounds: Bounds that were asked for.

    Returns:
        Bounds for as many dimensions; nothing where one of them is not known to be meant.
    """
    dims = {spec.name: spec.dims for spec in inputs}
    names = {dim for axes in dims.values() for dim in axes}
    ranges: dict[str, Range] = {}
    for name, bound in bounds.items():
        likely = [name] if name in names else [dim for _, _, dim in _at_custom(dims, name)]
        own = {dim for dim in likely if isinstance(dim, str)}
        if len(own) != 1:
            return {}
        ranges[next(iter(own))] = bound
    return ranges if len(ranges) == len(bounds) else {}


def _rank(dims: Dims, name: str, bound: Range) -> int:
    return 0 if _stated(dims, name) else 1 if _customary(dims, name, bound) else 2


def _places(dims: Dims, name: str, bound: Range, some_vary: bool, is_telling: bool) -> Sequence[tuple[str, int]]:
    """Returns the axes that a bound may be for, the likeliest first.

    Args:
        dims: Sizes and names of each input's axes.
        name: Of the bound.
        bound: The bound.
        some_vary: Whether some axes have names.
        is_telling: Whether its opt size is that of no other bound.
    """
    fixed = [(tensor, axis, dim) for tensor, axes in dims.items() for axis, dim in enumerate(axes)]
    sizes = [(tensor, axis, dim) for tensor, axis, dim in fixed if isinstance(dim, int)]
    exact = [(tensor, axis) for tensor, axis, dim in sizes if dim == bound.opt]
    # Among axes of which some vary, a fixed one of another size is as likely channels.
    within = [(tensor, axis) for tensor, axis, dim in sizes if not some_vary and bound.min <= dim <= bound.max]
    stated = _stated(dims, name)
    by_size = (*exact, *within) if is_telling or not within else within
    return (*((stated,) if stated else ()), *_customary(dims, name, bound), *by_size)


def _stated(dims: Dims, place: str) -> tuple[str, int] | None:
    name, _, axis = place.rpartition(":")
    axes = dims.get(name, ())
    return (name, int(axis)) if axis.isdecimal() and int(axis) < len(axes) else None


def _customary(dims: Dims, name: str, bound: Range) -> Sequence[tuple[str, int]]:
    """Returns the axes on which a size of this name usually lies, where they are fixed and within its bounds."""
    places = _at_custom(dims, name)
    return [(tensor, axis) for tensor, axis, dim in places if isinstance(dim, int) and bound.min <= dim <= bound.max]


def _at_custom(dims: Dims, name: str) -> list[tuple[str, int, int | str]]:
    """Returns the axes on which a size of this name usually lies, and what is there."""
    axis = _AXES.get(name.lower())
    if axis is None:
        return []
    # Height and width are the last axes of what has more than two.
    few = 2 if axis < 0 else 0
    return [(tensor, range(len(axes))[axis], axes[axis]) for tensor, axes in dims.items() if len(axes) > few]
