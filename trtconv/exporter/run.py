"""The way of a module to its ONNX file: prepare, try sizes, validate, write, prove, check."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from trtconv.core import foreign
from trtconv.core.dims import sizes_text
from trtconv.core.documents.export import ExportReport, SizeRule
from trtconv.core.errors import ExportFailed, InputError
from trtconv.core.foreign import ForeignCode
from trtconv.core.outputs import Output, check_all
from trtconv.core.progress import Progress
from trtconv.core.requests.files import files_read
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.exporter.file import write
from trtconv.exporter.file.candidates import best_draft
from trtconv.exporter.file.validate import program_axes
from trtconv.exporter.inputs import InputDecl, all_axes, with_places
from trtconv.exporter.job import Job
from trtconv.exporter.module.nested import Nested, slots_of_names
from trtconv.exporter.module.source_line import blame_exception
from trtconv.exporter.module.spec import load_spec, module_path
from trtconv.exporter.module.torch_module import Subject, prepare
from trtconv.exporter.module.weights import load_weights
from trtconv.exporter.parts import is_parts
from trtconv.exporter.patches.garbage import old_objects_left_out
from trtconv.exporter.patches.torch_quiet import quiet_torch
from trtconv.exporter.pipelines import export_parts
from trtconv.exporter.report import joined, report_of, written_report
from trtconv.exporter.request import Axes, ExportRequest, plan_axes
from trtconv.exporter.sides import SideFile, sides_of
from trtconv.exporter.sizing.sizes import find_rules, joint_failure
from trtconv.exporter.sizing.trials import Trials
from trtconv.exporter.translations import translations_of

_NEAR = 12
"""How far from a refused example other sizes are tried, in steps of one."""


def run(request: ExportRequest, progress: Progress | None = None) -> ExportReport:
    """Exports what a SPEC names; runs the user's code.

    Raises:
        InputError: A bad request, a SPEC that does not resolve, a module that does not run on its inputs.
        ExportFailed: The module cannot be exported as asked; the message has the line of Python.
        EnvironmentMissing: A package is missing.
    """
    clock = Stopwatch(progress)
    with _endings_told(), module_path(request.spec):
        with clock.stage(Stage.LOAD):
            check_all([Output(request.output, "the model")], files_read(request))
            _check_names(request)
            loaded = load_spec(request.spec, request.arguments, request.trust)
            if is_parts(loaded):
                with foreign.using(ForeignCode.of(request.options)):
                    return export_parts(loaded, request, clock)
            notes: tuple[str, ...] = ()
            if request.weights is not None:
                if not isinstance(loaded, torch.nn.Module):
                    raise InputError("--weights goes with a module; a .pt2 file has its own", "Leave out --weights.")
                notes = load_weights(loaded, request.weights)
        request = _named(request, loaded)
        axes = all_axes(request.inputs, request.dynamic)
        request = dataclasses.replace(request, inputs=with_places(request.inputs, axes))
        dynamic_axes = plan_axes(request.inputs, request.dynamic, request.dims) if request.inputs else None
        if any("." in decl.name for decl in request.inputs) and isinstance(loaded, torch.nn.Module):
            loaded = Nested(loaded, (), slots_of_names([decl.name for decl in request.inputs]))
        with clock.stage(Stage.RUN):
            try:
                subject = prepare(loaded, request.inputs, request.options.outputs, None)
            except InputError as error:
                raise _with_near_sizes(error, loaded, request.inputs, dynamic_axes) from error
        subject.notes.extend(notes)
        return export_subject(subject, request, clock)


@contextlib.contextmanager
def _endings_told() -> Iterator[None]:
    """Raises InputError where the user's code, a module's or a translation's, calls for the end of the program."""
    try:
        yield
    except SystemExit as error:
        where = blame_exception(error)
        at = f" at {where}" if where is not None else ""
        raise InputError(f"the code calls for the end of the program ({error.code}){at}", "Leave that out.") from error


def _check_names(request: ExportRequest) -> None:
    """Raises InputError for names and bounds that do not fit the inputs, before anything is loaded."""
    if request.inputs:
        inputs = with_places(request.inputs, all_axes(request.inputs, request.dynamic))
        plan_axes(inputs, request.dynamic, request.dims)


def _named(request: ExportRequest, loaded: Any) -> ExportRequest:
    """Gives the only input the name of forward's first parameter, where the call gives it none."""
    if not any(not decl.name for decl in request.inputs):
        return request
    forward = getattr(loaded, "forward", None)
    parameters = [] if forward is None else list(inspect.signature(forward).parameters)
    name = parameters[0] if parameters else "input"
    (only,) = request.inputs
    dynamic = {name if key == "" else key: axes for key, axes in request.dynamic.items()}
    return dataclasses.replace(request, inputs=(dataclasses.replace(only, name=name),), dynamic=dynamic)


def export_subject(subject: Subject, request: ExportRequest, clock: Stopwatch) -> ExportReport:
    """Exports a module that is ready; of the request its names, bounds, output and options are asked."""
    with _endings_told(), foreign.using(ForeignCode.of(request.options)):
        return _exported(subject, request, clock)


def _exported(subject: Subject, request: ExportRequest, clock: Stopwatch) -> ExportReport:
    options = request.options
    translations = translations_of(options.translations)
    axes = _axes(subject, request)
    with clock.stage(Stage.SIZES), quiet_torch():
        trials = Trials(subject, axes)
        rules = find_rules(trials)
        joint = _joint(trials, rules)
    _refuse_empty_ranges(rules)
    with Scratch("export") as folder, old_objects_left_out():
        job = Job(subject, axes, trials, rules, options, clock, folder.path, joint, translations)
        sides = (
            sides_of(job, request.output)
            if options.split_branches
            else [SideFile(job, best_draft(job), request.output)]
        )
        reports = [report_of(side.job, request.spec, side.draft) for side in sides]
        if any(side.draft.proof.failed for side in sides):
            return joined([dataclasses.replace(report, exit_code=1) for report in reports])
        with clock.stage(Stage.WRITE):
            for side in sides:
                write.write_model(side.draft.proto, side.draft.path.parent, side.output)
    pairs = zip(reports, sides, strict=True)
    return joined([written_report(report, side.output, options, clock) for report, side in pairs])


def _axes(subject: Subject, request: ExportRequest) -> Axes:
    """Returns the dynamic dimensions that were asked for; a saved program's own where it has some."""
    dynamic, dims, static = request.dynamic, request.dims, request.options.static
    if subject.program is None:
        return plan_axes(subject.inputs, dynamic, dims, static)
    by_input: dict[str, list[str | None]] = {decl.name: [None] * len(decl.shape) for decl in subject.inputs}
    symbols = {(subject.inputs[i].name, axis): symbol for i, axis, symbol in program_axes(subject.program)}
    by_place = {(name, axis): dim for name, axes in dynamic.items() for axis, dim in enumerate(axes) if dim is not None}
    for (name, axis), dim in by_place.items():
        if (name, axis) not in symbols:
            raise InputError(
                f"the program was saved with {name}:{axis} fixed; it cannot become {dim}",
                "Export it again with torch.export.export(..., dynamic_shapes=...), or give the module itself.",
            )
    by_symbol = {symbol: by_place[place] for place, symbol in symbols.items() if place in by_place}
    for (name, axis), symbol in symbols.items():
        by_input[name][axis] = by_symbol.setdefault(symbol, f"{name}_{axis}")
    return plan_axes(subject.inputs, {name: tuple(axes) for name, axes in by_input.items()}, dims, static)


def _joint(trials: Trials, rules: Sequence[SizeRule]) -> tuple[str, ...]:
    """Says what ties dimensions together."""
    by_name = {rule.name: rule for rule in rules}
    names = list(by_name)
    notes = [
        _tie(rule, by_name[rule.tied])
        for rule in rules
        if rule.tied and names.index(rule.name) > names.index(rule.tied)
    ]
    if not notes and len(rules) > 1:
        refused = joint_failure(trials, rules)
        if refused is not None:
            sizes, blame = refused
            at = sizes_text(sizes)
            notes.append(f"not every combination is valid: {at} is refused" + (f" by {blame}" if blame else ""))
    return tuple(notes)


def _tie(rule: SizeRule, other: SizeRule) -> str:
    """Says how two dimensions that are tied to each other follow each other."""
    if rule.step == other.step:
        apart = rule.example - other.example
        return f"{rule.name} - {other.name} == {apart}" if apart else f"{rule.name} == {other.name}"
    common = math.gcd(rule.step, other.step)
    sides = [(other.step // common, rule.name), (rule.step // common, other.name)]
    return " == ".join(name if factor == 1 else f"{factor}*{name}" for factor, name in sides)


def _refuse_empty_ranges(rules: Sequence[SizeRule]) -> None:
    """Raises for dimensions that were asked to be dynamic and can have one size only."""
    baked = [rule for rule in rules if rule.baked or (rule.asked and rule.min == rule.max)]
    if baked:
        raise ExportFailed(
            "; ".join(rule.sentence() for rule in baked),
            f"Mend that line so that {' and '.join(r.name for r in baked)} may change, or leave it static: write _ for "
            "its name.",
        )


def _with_near_sizes(error: InputError, loaded: Any, inputs: Sequence[InputDecl], axes: Axes | None) -> InputError:
    """Adds the nearest sizes that the module does take to the error for an example that it does not."""
    if axes is None or not axes.places or not isinstance(loaded, torch.nn.Module):
        return error
    subject = Subject(loaded, tuple(inputs), ())
    with contextlib.suppress(Exception), quiet_torch():
        trials = Trials(subject, axes)
        spatial = [n for n, at in axes.places.items() if any(axis > 0 for _, axis in at)]
        for distance in range(1, _NEAR + 1):
            for sign in (-1, 1):
                sizes = {n: axes.example[n] + sign * distance for n in spatial}
                if min(sizes.values()) >= 1 and trials.ok(sizes):
                    at = sizes_text(sizes)
                    return InputError(error.message, f"It does run with {at}.")
    return error
