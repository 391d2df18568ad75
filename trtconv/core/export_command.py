"""The command that exports a model again, with sizes that vary."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from trtconv.core.dims import InputSpec, Range


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


def freeing_command(inputs: Sequence[InputSpec], wanted: Mapping[str, Range]) -> str | None:
    """Returns the command that exports a model again, with fixed sizes of it dynamic.

    Args:
        inputs: The model's inputs.
        wanted: Bounds that were asked for: of `INPUT:AXIS`, or by a name that the model has not. Such a name is taken
            for the first fixed axis of its opt size; where all axes are fixed, else for one within its bounds.

    Returns:
        The command; None where a bound fits no fixed axis, or none is to vary.
    """
    dims = {spec.name: list(spec.dims) for spec in inputs}
    all_dims = {dim for listed in dims.values() for dim in listed}
    some_vary = any(isinstance(dim, str) for dim in all_dims)
    ranges: dict[str, Range] = {}
    # By their axis first: what is left is for the names.
    for given, bound in sorted(wanted.items(), key=lambda item: _fixed(dims, item[0]) is None):
        if given in all_dims:
            ranges[given] = bound
            continue
        place = _fixed(dims, given) or _fitting(dims, bound, some_vary)
        if place is None:
            return None
        name = re.sub(r"\W", "_", given)
        if bound.min == bound.max == dims[place[0]][place[1]]:
            continue
        dims[place[0]][place[1]] = name
        ranges[name] = bound
    if dims == {spec.name: list(spec.dims) for spec in inputs}:
        return None
    freed = [InputSpec(spec.name, spec.dtype, tuple(dims[spec.name])) for spec in inputs]
    return export_command(freed, ranges, "dynamic.onnx")


def _fixed(dims: Mapping[str, Sequence[int | str]], place: str) -> tuple[str, int] | None:
    name, _, axis = place.rpartition(":")
    listed = dims.get(name, ())
    return (name, int(axis)) if axis.isdecimal() and int(axis) < len(listed) else None


def _fitting(dims: Mapping[str, Sequence[int | str]], bound: Range, some_vary: bool) -> tuple[str, int] | None:
    places = [(name, axis, dim) for name, listed in dims.items() for axis, dim in enumerate(listed)]
    sizes = [(name, axis, dim) for name, axis, dim in places if isinstance(dim, int)]
    exact = [(name, axis) for name, axis, dim in sizes if dim == bound.opt]
    # Among axes of which some vary, a fixed one of another size is as likely channels.
    within = [(name, axis) for name, axis, dim in sizes if not some_vary and bound.min <= dim <= bound.max]
    return next(iter((*exact, *within)), None)
