"""From PyTorch to an ONNX file that is right and dynamic. The only importer of torch, and only when it is called.

The package is not called `export`, because `trtconv.export` is the function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtconv.core.dim_flags import quoted
from trtconv.core.dims import Range
from trtconv.core.documents.export import ConvertReport, ExportReport
from trtconv.core.errors import InputError
from trtconv.core.progress import Progress, require_progress
from trtconv.core.requests.base import ranges, takes_request
from trtconv.core.requests.build import BuildRequest
from trtconv.core.spots import check_writable
from trtconv.core.stages import Stage
from trtconv.core.typed import argument, wording
from trtconv.exporter.inputs import DTYPES, AxisNames, InputDecl, parse_bounds
from trtconv.exporter.library_names import check_name
from trtconv.exporter.patches.torch_quiet import require_torch
from trtconv.exporter.request import ExportOptions, ExportRequest

if TYPE_CHECKING:
    import torch

Example = Any
"""A tensor, a sequence of arguments in forward's order, or a mapping of forward's parameter names to them.

An argument is a tensor, or tensors in dictionaries, lists, tuples and dataclasses; anything else is a constant of the
file. Inputs are named by their places: "batch.image", "features.0".
"""
DimBounds = Mapping[str, "Range | str | tuple[int, int]"]

__all__ = [
    "ConvertReport",
    "ExportOptions",
    "ExportReport",
    "ExportRequest",
    "convert",
    "convert_spec",
    "export",
    "export_spec",
]


@takes_request
def export_spec(request: ExportRequest, progress: Progress | None = None) -> ExportReport:
    """Does what `trtconv export SPEC` does.

    Raises:
        InputError: A bad request, or a module that does not run on its inputs.
        ExportFailed: The module cannot be exported as asked.
        EnvironmentMissing: torch is not installed.
    """
    check_name(request.spec)
    require_torch()
    from trtconv.exporter.run import run

    return run(request, progress)


@takes_request
def convert_spec(request: ExportRequest, progress: Progress | None = None) -> ConvertReport:
    """Does what `trtconv export SPEC --build` does: the engine is for the bounds of the export.

    Raises:
        InputError: As `export_spec`, or a dimension without bounds.
        TrtconvError: As `export_spec` and `trtconv.build`.
    """
    from trtconv.exporter.request import plan_axes

    axes = plan_axes(request.inputs, request.dynamic, request.dims, request.options.static)
    open_ = [name for name in axes.places if name not in axes.bounds]
    if open_:
        flags = " ".join(f"--dim {quoted(name)}=MIN:OPT:MAX" for name in open_)
        raise InputError(f"--build needs bounds for {', '.join(open_)}", f"Add: {flags}")
    options = dataclasses.replace(request.options, check=False)
    exported = export_spec(dataclasses.replace(request, options=options), progress)
    if exported.exit_code:
        return ConvertReport(exported, None)
    from trtconv import pipeline

    plain = BuildRequest(request.output, target=options.target, fail_on=options.fail_on)
    plain = dataclasses.replace(plain, plugins=options.plugins, references=options.references)
    files = [Path(report.output.path) for report in (exported, *exported.sides) if report.output is not None]
    first, *others = [pipeline.build(dataclasses.replace(plain, model=file), progress) for file in files]
    return ConvertReport(exported, first, tuple(others))


def export(
    module: torch.nn.Module,
    example: Example,
    output: Path | str,
    dynamic: Mapping[str, Any] | None = None,
    dims: DimBounds | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Exports a module to an ONNX file, proves it against PyTorch and checks it for TensorRT.

    Args:
        module: In eval mode; not changed.
        example: A tensor, a sequence of arguments in forward's order, or a mapping of parameter names to them; an
            argument may be nested, see `Example`.
        output: Where the file goes.
        dynamic: Input name to the names of its axes, None for a static one: {"x": ("batch", None, "h", "w")}; nested
            as the arguments are, or by full names ("batch.image").
        dims: Dimension name (or "INPUT:AXIS") to its bounds: a `Range`, "64:512", "64:512:/8" (multiples of 8) or
            (64, 512).
        options: Target, output names, what to leave out.
        progress: Told of the stages.

    Returns:
        The report; its exit_code is 1 where the file differs from PyTorch (none is written then) or the check fails.

    Raises:
        InputError: The module is in train mode, or does not run on the example.
        ExportFailed: The module cannot be exported as asked; the message has the line of Python.
        EnvironmentMissing: torch is not installed.
    """
    require_torch()
    from trtconv.core.stopwatch import Stopwatch
    from trtconv.exporter import run
    from trtconv.exporter.module import nested, torch_module

    _require_kinds("export", module, example, dynamic, options, progress)
    dims = argument("export", "dims", Mapping[str, Any] | None, dims)
    path, options = argument("export", "output", Path, output), options or ExportOptions()
    check_writable(path)
    torch_module.refuse_train_mode(module)
    flat, tensors, constants = _flat_example(torch_module.unwrapped(module)[0], example)
    inputs = tuple(InputDecl(name, tuple(tensor.shape), _dtype(name, tensor)) for name, tensor in tensors.items())
    clock = Stopwatch(progress)
    with clock.stage(Stage.RUN):
        ready = torch_module.prepare(flat or module, inputs, options.outputs, tuple(tensors.values()))
    ready.notes.extend(f"{name} is {value!r} in the file" for name, value in constants.items())
    axes: dict[str, AxisNames] = dict(nested.flat_axes(dynamic or {}))
    request = ExportRequest(type(module).__qualname__, path, dynamic=axes, dims=_bounds(dims or {}), options=options)
    return run.export_subject(ready, request, clock)


def _require_kinds(call: str, module: Any, example: Any, dynamic: Any, options: Any, progress: Any) -> None:
    """Raises InputError where an argument of `export` or `convert` is of another kind; the message names it."""
    require_torch()
    import torch

    if not isinstance(module, torch.nn.Module):
        message = f"module of {call} takes a torch.nn.Module, and was given {wording(module)}"
        raise InputError(message, "Call the function in the forward of a module.")
    if not isinstance(example, (torch.Tensor, Mapping, Sequence)) or isinstance(example, (str, bytes)):
        message = f"example of {call} takes a tensor, a sequence of arguments or a mapping of parameters to them"
        raise InputError(f"{message}, and was given {wording(example)}", "Write torch.rand(1, 3, 64, 64).")
    argument(call, "dynamic", Mapping[str, Any] | None, dynamic)
    argument(call, "options", ExportOptions | None, options)
    require_progress(call, progress)


def _bounds(dims: DimBounds) -> dict[str, Range]:
    """Returns bounds as ranges; those in text have the grammar of --dim."""
    texts = [f"{name}={bound}" for name, bound in dims.items() if isinstance(bound, str)]
    others: dict[str, Range] = ranges({name: bound for name, bound in dims.items() if not isinstance(bound, str)})
    return others | parse_bounds(texts)


def convert(
    module: torch.nn.Module,
    example: Example,
    build: BuildRequest,
    dynamic: Mapping[str, Any] | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Exports a module and builds its engine.

    Args:
        module: In eval mode; not changed.
        example: As in `export`.
        build: What to build; `build.model` is where the ONNX file goes. The dimensions' bounds are taken from it.
        dynamic: As in `export`.
        options: As in `export`; its target is the build's, and the check is the build's own.
        progress: Told of the stages.

    Returns:
        Both reports; the build's is None where the export failed.

    Raises:
        TrtconvError: As `export` and `trtconv.build`.
    """
    _require_kinds("convert", module, example, dynamic, options, progress)
    build = argument("convert", "build", BuildRequest, build)
    settings = dataclasses.replace(options or ExportOptions(), target=build.target, check=False)
    if settings.split_branches:
        raise InputError("split_branches writes several models, and one is built", "Export, then build each of them.")
    ranges = [build.dims, *build.profiles]
    bounds: dict[str, Range] = {}
    for name in dict.fromkeys(name for group in ranges for name in group):
        own = [profile[name] for profile in build.profiles if name in profile] or [build.dims[name]]
        bounds[name] = Range(min(r.min for r in own), own[0].opt, max(r.max for r in own))
    exported = export(module, example, build.model, dynamic, bounds, settings, progress)
    if exported.exit_code:
        return ConvertReport(exported, None)
    from trtconv import pipeline

    # A dimension of one size is static in the file, and has no name there.
    names = {dim for dims in exported.inputs.values() for dim in dims}
    static = {name for name, bound in bounds.items() if bound.min == bound.max and name not in names}
    dims = {name: bound for name, bound in build.dims.items() if name not in static}
    profiles = tuple({name: r for name, r in profile.items() if name not in static} for profile in build.profiles)
    request = dataclasses.replace(build, dims=dims, profiles=profiles)
    return ConvertReport(exported, pipeline.build(request, progress))


def _flat_example(
    module: torch.nn.Module, example: Example
) -> tuple[torch.nn.Module | None, dict[str, torch.Tensor], dict[str, Any]]:
    """Returns the module with flat inputs where an argument is not a tensor, the tensors by name, and the constants."""
    import inspect

    import torch

    from trtconv.exporter.module.nested import Leaves, Nested

    leaves = Leaves()
    if isinstance(example, Mapping):
        tensors, positional = {name: leaves.take(value, name) for name, value in example.items()}, []
    else:
        arguments = [example] if isinstance(example, torch.Tensor) else list(example)
        parameters = inspect.signature(module.forward).parameters.values()
        names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][: len(arguments)]
        names += [f"input_{number}" for number in range(len(names), len(arguments))]
        tensors, positional = {}, [leaves.take(value, name) for name, value in zip(names, arguments, strict=True)]
    if not leaves.tensors:
        raise InputError("the example has no tensor in it", "Give forward's arguments, of which one is a tensor.")
    count = len(tensors) + len(positional)
    plain = len(leaves.tensors) == count and not any("." in name for name in leaves.tensors)
    return None if plain else Nested(module, positional, tensors).eval(), leaves.tensors, leaves.constants


def _dtype(name: str, tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise InputError(f"example input {name} is {dtype}, which TensorRT does not take", f"Use {', '.join(DTYPES)}.")
    return dtype
