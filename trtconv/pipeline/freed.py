"""Sizes at which the file itself runs, and passes that freed sizes in it made something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from trtconv.core.dims import Shape, ShapeProfile
from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Location, Severity
from trtconv.graph.fitting import reloaded
from trtconv.graph.model import OnnxModel

_FIX = "Export again with dynamic shapes; --skip restore-reshape-target builds what the file says, at its sizes alone."


def freed_otherwise(model: OnnxModel, profiles: Sequence[ShapeProfile]) -> tuple[Finding, ...]:
    """Returns a warning where the file runs at asked sizes too, and has outputs of other shapes there.

    A Reshape to the sizes of the exporter's example also takes others of as many elements. What is meant is most likely
    what passes made of it, and not what the file says.

    Args:
        model: The model after the passes.
        profiles: What is asked for.
    """
    try:
        return tuple(_differences(reloaded(model, light=True), model, profiles))
    except InputError:
        # The file is gone, which others tell.
        return ()


def _differences(file: OnnxModel, model: OnnxModel, profiles: Sequence[ShapeProfile]) -> Iterator[Finding]:
    # Loaded only here: most models are exported with free sizes, or none.
    from trtconv.rules.baked_sizes import BakedReshape
    from trtconv.shapes.lattice import Sizes, first_faults
    from trtconv.shapes.model_shapes import model_shapes

    points = [
        {name: getattr(bound, pick) for name, bound in profile.dims.items()}
        for profile in profiles
        for pick in ("min", "opt", "max")
    ]
    before, after = Sizes(file), Sizes(model)
    if not points or not {*before.names, *after.names} <= points[0].keys():
        return
    faults = first_faults(before.run(points).checks, len(points))
    shapes = [model_shapes(sizes, points) for sizes in (before, after)]
    for point, fault, one, other in zip(points, faults, *shapes, strict=True):
        for name in model.outputs if fault is None else ():
            if name in one and name in other and one[name] != other[name]:
                where = ", ".join(f"{dim} {size}" for dim, size in point.items())
                message = f"at {where} the file itself returns {name!r} of {_text(one[name])}, not {_text(other[name])}"
                finding = BakedReshape().finding(message, Location(tensor=name), Severity.WARNING)
                yield dataclasses.replace(finding, fix=_FIX)
                return


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
