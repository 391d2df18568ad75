"""The trtconv.toml that `trtconv init` writes: every model that is there, with bounds that it accepts."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.files import files_below
from trtconv.core.frozen import frozen
from trtconv.core.text import clean, toml_string

if TYPE_CHECKING:
    from trtconv.graph.model import OnnxModel

_MOST_MODELS = 500
_SECONDS = 60.0
"""For what is run of all models together."""


@frozen
class Found:
    """A model and the bounds that are proposed for it.

    Args:
        path: From the folder of the configuration.
        dims: Dimension to its bounds and what the model says of its sizes.
        fault: Why it cannot be read; empty where it can.
    """

    path: str
    dims: tuple[tuple[str, str, str], ...] = ()
    fault: str = ""


def find_models(folder: Path) -> list[Found]:
    """Returns the models below a folder, those in hidden folders and virtual environments left out.

    Raises:
        InputError: There is none, or there are too many.
    """
    paths = [path for path in files_below(folder, ".onnx") if not _hidden(path, folder)]
    if not paths:
        raise InputError(f"there is no .onnx file in {folder}", "Export a model first: trtconv export --help.")
    if len(paths) > _MOST_MODELS:
        raise InputError(f"{folder} has {len(paths)} .onnx files", "Give the folder of those that are built.")
    models, until = [], time.monotonic() + _SECONDS
    for path in paths:
        models.append(_model_entry(path, folder, until))
        # A model is a cycle, and commands look for cycles seldom.
        gc.collect(0)
    return models


def _hidden(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return any(part.startswith(".") or part in ("site-packages", "node_modules") for part in parts)


def _model_entry(path: Path, folder: Path, until: float) -> Found:
    from trtconv.graph.model import OnnxModel

    name = path.relative_to(folder).as_posix()
    try:
        name.encode()
        return Found(name, tuple(_bounds(OnnxModel.load(path), until)))
    except UnicodeEncodeError:
        return Found(name, fault="its name is not UTF-8, and no TOML file can have it")
    except TrtconvError as error:
        return Found(name, fault=error.message)


def _bounds(model: OnnxModel, until: float) -> Iterator[tuple[str, str, str]]:
    """Yields a dimension, the bounds that are proposed for it, and which sizes the network accepts."""
    from trtconv.pipeline.size_trials import SizeTrials
    from trtconv.shapes.lattice import sizes_of
    from trtconv.shapes.proposal import accepted_bounds, usual_bounds
    from trtconv.shapes.report import SizesRequest, sizes

    usual = usual_bounds(model.inputs)
    if not usual:
        return
    lattice, network = sizes(SizesRequest(model.path)).lattice, sizes_of(model)
    ranges = {name: bound for name, bound in usual.items() if name in network.names}
    is_whole = ranges.keys() >= set(network.names)
    trials = SizeTrials(model, until)
    together = accepted_bounds(network, lattice, ranges, network.names, trials) if is_whole else {}
    dims = {} if lattice.unknown else lattice.record().dims
    for name in usual:
        valid, accepted = (dims[name].valid, dims[name].accepted) if name in dims else (None, "not known")
        if lattice.unknown and together:
            accepted = "these, at which ONNX Runtime ran it"
        sides = together.get(name, usual[name])
        yield name, ":".join(str(_near(int(size), valid)) for size in (sides.min, sides.opt, sides.max)), accepted


def _near(size: int, valid: Sequence[int] | None) -> int:
    return size if not valid else min(valid, key=lambda candidate: abs(candidate - size))


def toml(models: Iterable[Found]) -> str:
    """Returns the configuration."""
    lines = ["# Models that 'trtconv check' and 'trtconv build' do; docs/config.md has every key.",
             "# Bounds are MIN:OPT:MAX and were proposed by trtconv init: put in the sizes that you run."]  # fmt: skip
    for model in models:
        lines.append("")
        if model.fault:
            lines += [f"# {clean(model.path)} was left out: {clean(model.fault)}"]
            continue
        lines += ["[[models]]", f"path = {toml_string(model.path)}"]
        if model.dims:
            lines += ["", "[models.dims]"]
            lines += [
                f"{toml_string(n)} = {toml_string(bounds)}  # accepted: {clean(text)}" for n, bounds, text in model.dims
            ]
    return "\n".join(lines) + "\n"
