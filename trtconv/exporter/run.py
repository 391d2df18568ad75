"""The way of a module to its ONNX file: prepare, try sizes, validate, write, prove, check."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from trtconv.core.dims import Range
from trtconv.core.errors import ExportFailed, InputError, TrtconvError
from trtconv.core.files import check_writable
from trtconv.core.progress import Progress
from trtconv.core.requests.export import Attempt, ExportReport, Proof, SizeRule
from trtconv.core.stopwatch import Stopwatch
from trtconv.exporter import finish, proof, write, writers
from trtconv.exporter.job import Draft, Job, interface_of
from trtconv.exporter.report import checked_export, model_identity, report_of
from trtconv.exporter.request import Axes, AxisNames, ExportOptions, ExportRequest, InputDecl, plan_axes
from trtconv.exporter.sizes import find_rules, joint_failure
from trtconv.exporter.source_line import first_line
from trtconv.exporter.spec import load_spec, module_path
from trtconv.exporter.torch_module import Subject, prepare
from trtconv.exporter.torch_quiet import quiet_torch
from trtconv.exporter.trials import Trials
from trtconv.exporter.validate import Objection, Validated, export_program, program_axes
from trtconv.exporter.weights import load_weights

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
    with module_path(request.spec):
        with clock.stage("load"):
            check_writable(request.output)
            loaded = load_spec(request.spec, request.arguments)
            notes: tuple[str, ...] = ()
            if request.weights is not None:
                if not isinstance(loaded, torch.nn.Module):
                    raise InputError("--weights goes with a module; a .pt2 file has its own", "Leave out --weights.")
                notes = load_weights(loaded, request.weights)
        asked = plan_axes(request.inputs, request.dynamic, request.dims) if request.inputs else None
        with clock.stage("run"):
            try:
                subject = prepare(loaded, request.inputs, request.options.outputs, None)
            except InputError as error:
                raise _with_near_sizes(error, loaded, request.inputs, asked) from error
        subject.notes.extend(notes)
        return export_subject(
            subject, request.spec, request.output, request.dynamic, request.dims, request.options, clock
        )


def export_subject(
    subject: Subject,
    spec: str,
    output: Path,
    dynamic: Mapping[str, AxisNames],
    dims: Mapping[str, Range],
    options: ExportOptions,
    clock: Stopwatch,
) -> ExportReport:
    """Exports a module that is ready."""
    axes = _axes(subject, dynamic, dims, options.static)
    with clock.stage("sizes"), quiet_torch():
        trials = Trials(subject, axes)
        rules = find_rules(trials)
        joint = _joint(trials, rules)
    _refuse_empty_ranges(rules)
    with tempfile.TemporaryDirectory(prefix="trtconv-export-") as folder:
        job = Job(subject, axes, trials, rules, options, clock, Path(folder), joint)
        draft = _best_draft(job)
        report = report_of(job, spec, draft)
        if draft.proof.failed:
            return dataclasses.replace(report, exit_code=1)
        with clock.stage("write"):
            write.write_model(draft.proto, draft.path.parent, output)
    report = dataclasses.replace(report, output=model_identity(output))
    return checked_export(report, output, options, clock) if options.check else report


def _axes(subject: Subject, dynamic: Mapping[str, AxisNames], dims: Mapping[str, Range], static: bool) -> Axes:
    """Returns the dynamic dimensions that were asked for; a saved program's own where it has some."""
    if subject.program is None:
        return plan_axes(subject.inputs, dynamic, dims, static)
    named: dict[str, list[str | None]] = {each.name: [None] * len(each.shape) for each in subject.inputs}
    symbols = {(subject.inputs[i].name, axis): symbol for i, axis, symbol in program_axes(subject.program)}
    asked = {(name, axis): dim for name, axes in dynamic.items() for axis, dim in enumerate(axes) if dim is not None}
    for (name, axis), dim in asked.items():
        if (name, axis) not in symbols:
            raise InputError(
                f"the program was saved with {name}:{axis} fixed; it cannot become {dim}",
                "Export it again with torch.export.export(..., dynamic_shapes=...), or give the module itself.",
            )
    by_symbol = {symbol: asked[place] for place, symbol in symbols.items() if place in asked}
    for (name, axis), symbol in symbols.items():
        named[name][axis] = by_symbol.setdefault(symbol, f"{name}_{axis}")
    return plan_axes(subject.inputs, {name: tuple(axes) for name, axes in named.items()}, dims, static)


def _joint(trials: Trials, rules: Sequence[SizeRule]) -> tuple[str, ...]:
    """Says what ties dimensions together."""
    said = [
        f"{rule.name} == {rule.tied}"
        if rule.example == trials.axes.example[rule.tied]
        else f"{rule.name} - {rule.tied} == {rule.example - trials.axes.example[rule.tied]}"
        for rule in rules
        if rule.tied and [r.name for r in rules].index(rule.name) > [r.name for r in rules].index(rule.tied)
    ]
    if not said and len(rules) > 1:
        refused = joint_failure(trials, rules)
        if refused is not None:
            sizes, blame = refused
            at = ", ".join(f"{name} {size}" for name, size in sizes.items())
            said.append(f"not every combination is valid: {at} is refused" + (f" by {blame}" if blame else ""))
    return tuple(said)


def _refuse_empty_ranges(rules: Sequence[SizeRule]) -> None:
    """Raises for dimensions that were asked to be dynamic and can have one size only."""
    baked = [rule for rule in rules if rule.baked or (rule.asked and rule.min == rule.max)]
    if baked:
        raise ExportFailed(
            "; ".join(rule.sentence() for rule in baked),
            f"Mend that line so that {' and '.join(r.name for r in baked)} may change, or export with --static.",
        )


def _best_draft(job: Job) -> Draft:
    """Tries the exporters in order; the first whose file is valid and proved is used."""
    best: Draft | None = None
    for exporter in _order(job):
        try:
            draft = _draft(job, exporter)
        except TrtconvError as error:
            job.attempts.append(Attempt(exporter, error.message))
            continue
        except Exception as error:  # the exporters raise whatever their parts raise
            job.attempts.append(Attempt(exporter, f"{type(error).__name__}: {first_line(error)}"))
            continue
        if draft.proof.failed:
            job.attempts.append(Attempt(exporter, _disproof(draft.proof)))
            best = best or draft
            continue
        job.attempts.append(Attempt(exporter, "used"))
        return draft
    if best is not None and job.objection is None:
        return best
    raise _failure(job)


def _disproof(found: Proof) -> str:
    worst_run = max(found.runs, key=lambda run: run.max_relative_error or 0.0)
    at = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in worst_run.inputs.items())
    return f"differs from PyTorch at {at}: {worst_run.why or f'relative error {worst_run.max_relative_error:.2g}'}"


def _order(job: Job) -> list[str]:
    """Returns the exporters to try: the tracing one first only where it alone keeps what the module says."""
    asked, subject = job.options.exporter, job.subject
    if asked != "auto":
        return [asked]
    if subject.program is not None:
        return ["torch.export"]
    if subject.scripted:
        return ["torchscript"]
    if subject.fake_quantized or subject.symbolic:
        what = "fake-quantisation" if subject.fake_quantized else f"the ONNX symbolic of {subject.symbolic[0]}"
        job.attempts.append(Attempt("torch.export", f"loses {what}, which the tracing exporter keeps"))
        return ["torchscript"]
    return ["torch.export", "torchscript"]


def _draft(job: Job, exporter: str) -> Draft:
    raw = _raw_program(job) if exporter == "torch.export" else _raw_trace(job)
    with job.clock.stage("finish"):
        proto = _finished(job, raw, exporter)
        finish.check_proto(raw, proto)
    found = Proof(why="not asked for")
    if job.options.proof:
        with job.clock.stage("proof"), quiet_torch():
            quantized = any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
            sizes = proof.proof_sizes(job.subject, job.axes, job.rules, job.trials)
            if job.objection is not None and exporter == "torchscript":
                sizes += proof.beyond_sizes(job.objection.beyond, job.rules, job.trials)
            limit = proof.tolerance(job.subject, quantized)
            found = proof.prove(raw, job.subject, job.axes, sizes, limit)
    return Draft(exporter, proto, raw, found)


def _raw_program(job: Job) -> Path:
    """Writes by way of torch.export, which also validates the dynamic dimensions."""
    with job.clock.stage("validate"), quiet_torch():
        found = export_program(job.subject, job.axes, job.rules, job.trials)
        if isinstance(found, Objection) and job.subject.program is not None:
            # Exported anew first: torch 2.13 cannot decompose a loaded program whose sizes are expressions (8*s0).
            found = Validated(job.subject.program, job.rules)
    if isinstance(found, Objection):
        job.objection = found
        raise ExportFailed(found.message)
    job.rules = found.rules
    with job.clock.stage("export"), quiet_torch():
        return writers.write_program(found.program, job.subject, job.opset, job.folder)


def _raw_trace(job: Job) -> Path:
    if job.objection is not None and job.objection.kind == "data":
        # A trace would keep one branch and say nothing.
        raise ExportFailed("not tried: a trace would keep one branch and say nothing")
    with job.clock.stage("export"), quiet_torch():
        return writers.write_trace(job.subject, job.axes, job.opset, job.folder)


def _finished(job: Job, raw: Path, exporter: str) -> onnx.ModelProto:
    proto = finish.read_raw(raw)
    inputs, outputs = interface_of(job)
    facts = {"trtconv.exporter": exporter, "trtconv.torch": str(torch.__version__)}
    finish.finish(proto, job.subject, inputs, outputs, job.rules, facts)
    finish.set_versions(proto, job.options.target)
    finish.write_axis(proto)
    left = {value.name for value in proto.graph.input}
    unused = [each.name for each in job.subject.inputs if each.name not in left]
    if unused:
        job.subject.notes.append(f"the exporter left out {', '.join(unused)}: the outputs do not depend on it")
    return proto


def _failure(job: Job) -> TrtconvError:
    """Returns the error for a module that no exporter takes: torch.export's objection says it best."""
    if job.objection is not None and job.objection.kind != "other":
        return ExportFailed(job.objection.message, _HINTS[job.objection.kind])
    tried = "\n".join(f"  {attempt.exporter}: {attempt.outcome}" for attempt in job.attempts)
    return ExportFailed(f"no exporter of torch takes the module\n{tried}", "Replace what they name, or try --static.")


_HINTS = {
    "data": "Take the branch out of forward, or write it with torch.where or torch.cond.",
    "specialized": "Use tensor operations or x.shape itself there (no int(), no constant), or export with --static.",
    "narrowed": "Narrow --dim to one side, or take the branch out of forward.",
}


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
                    at = ", ".join(f"{name} {size}" for name, size in sizes.items())
                    return InputError(error.message, f"It does run with {at}.")
    return error
