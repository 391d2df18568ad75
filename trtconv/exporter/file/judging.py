"""A file against PyTorch: finished, compared at sizes for each way through the module, and held to what it takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
import torch

from trtconv.core.documents.export import Blame, Proof, SizeRule
from trtconv.core.stages import Stage
from trtconv.exporter.file import finish, proof
from trtconv.exporter.file.parting import OTHER_CODE, line_between, right_regions
from trtconv.exporter.job import Draft, Job, interface_of
from trtconv.exporter.patches.torch_quiet import quiet_torch
from trtconv.exporter.sizing.agreement import beyond_pytorch, first_lost, graph_lattice, takes_all
from trtconv.exporter.sizing.guards import Guards
from trtconv.exporter.sizing.sizes import find_rules, with_tied

Sizes = Mapping[str, int]
_LARGEST_STEP = 64
_ASKED, _MET = 512, 16
"""Sizes of a dimension at which the guards are asked, and the ways among them that are tried."""
_WRITTEN = "PyTorch takes more sizes, at which what the exporter writes differs from it"


def judged(job: Job, exporter: str, traced: Sizes, raw: Path, guards: Guards | None) -> Draft:
    """Finishes a file, compares it with PyTorch, and finds the sizes that it takes where it does not take all.

    Args:
        job: What is exported.
        exporter: Who wrote the file.
        traced: The sizes that were traced.
        raw: The file, as the exporter wrote it.
        guards: What torch.export relied on, where that is known.
    """
    with job.clock.stage(Stage.FINISH):
        proto = _finished(job, raw, exporter)
    return compared(job, exporter, traced, proto, raw, guards)


def compared(
    job: Job, exporter: str, traced: Sizes, proto: onnx.ModelProto, raw: Path, guards: Guards | None = None
) -> Draft:
    """Does what `judged` does with a file that is finished; it is written to `raw`, its weights beside."""
    with job.clock.stage(Stage.FINISH):
        finish.check_proto(raw, proto)
    draft = Draft(exporter, proto, raw, Proof(why="not asked for"), job.rules, _notes(job, proto))
    if not job.options.proof:
        return draft
    route = functools.partial(_route, job, guards, job.trials.path_or(traced, 0))
    if guards is not None:
        _meet(job, guards)
    with job.clock.stage(Stage.PROOF), quiet_torch():
        comparison, sizes = _proved(job, draft, job.rules, route)
    if not comparison.failed:
        return _agreed(job, dataclasses.replace(draft, proof=comparison), route)
    passed = [run.passes(comparison.tolerance) for run in comparison.runs]
    right = [point for point, passes in zip(sizes, passed, strict=True) if passes]
    wrong = [point for point, passes in zip(sizes, passed, strict=True) if not passes]
    good = set(map(route, right)) - set(map(route, wrong))
    draft = _narrowed(
        job, dataclasses.replace(draft, proof=comparison), route, lambda point: route(point) in good, wrong[0]
    )
    if draft.proof.failed:
        draft = _parted(job, draft, route, right, wrong)
    return _stepped(job, draft, route, wrong[0]) if draft.proof.failed else draft


def _meet(job: Job, guards: Guards) -> None:
    """Tries a size for each way that the guards tell apart: the trials may not have met one that few sizes take."""
    for rule in job.rules:
        ways: set[frozenset[int]] = set()
        for size in rule.sizes(rule.min, rule.max or 2 * rule.example)[:_ASKED] if rule.step else ():
            sizes = with_tied(job.rules, {**job.axes.example, rule.name: size})
            violated = guards.violated(job.axes.shapes(job.subject.inputs, sizes))
            if violated not in ways:
                ways.add(violated)
                job.trials.ok(sizes)
            if len(ways) == _MET:
                break


def _narrowed(job: Job, draft: Draft, route: proof.RouteOf, accepts: Callable[[Sizes], bool], bad: Sizes) -> Draft:
    """Returns a draft for the sizes that are accepted, proved anew; the same where that does not help."""
    if not accepts(job.axes.example):
        return draft
    with job.clock.stage(Stage.SIZES), quiet_torch():
        rules = find_rules(job.trials.narrowed(accepts))
        line = route(bad).blame or line_between(job, draft, bad)
    rules = tuple(_explained(new, old, line) for new, old in zip(rules, job.rules, strict=True))
    if rules == draft.rules or any(new.baked and not old.baked for new, old in zip(rules, job.rules, strict=True)):
        return draft
    with job.clock.stage(Stage.PROOF), quiet_torch():
        comparison, _ = _proved(job, draft, rules, route, accepts)
    return draft if comparison.failed else dataclasses.replace(draft, rules=rules, proof=comparison)


def _parted(job: Job, draft: Draft, route: proof.RouteOf, right: Sequence[Sizes], wrong: Sequence[Sizes]) -> Draft:
    """Returns a draft for the regions of sizes at which it is right, proved anew; the same where that does not help."""
    rules = right_regions(job, draft, right, wrong)
    if rules is None:
        return draft
    with job.clock.stage(Stage.PROOF), quiet_torch():
        comparison, _ = _proved(job, draft, rules, route)
    return draft if comparison.failed else dataclasses.replace(draft, rules=rules, proof=comparison)


def _stepped(job: Job, draft: Draft, route: proof.RouteOf, bad: Sizes) -> Draft:
    """Returns a draft for the example plus multiples of powers of two, the smallest at which the file is right.

    An exporter may write an operation for sizes that divide, and say nothing of others (adaptive pooling), or a line
    of the user's may run other code at some sizes together, which is named. The same draft is returned where that does
    not help.
    """
    example, line = job.axes.example, line_between(job, draft, bad)
    steps = dict.fromkeys(example, 1)

    def accepts(sizes: Sizes) -> bool:
        return all((size - example[name]) % steps[name] == 0 for name, size in sizes.items())

    while culprits := _culprits(job, draft, bad):
        for name in culprits:
            steps[name] = 2 * ((bad[name] - example[name]) & (example[name] - bad[name]))
        if max(steps.values()) > _LARGEST_STEP:
            break
        with job.clock.stage(Stage.SIZES), quiet_torch():
            rules = find_rules(job.trials.narrowed(accepts))
        rules = tuple(
            _explained(new, old, line, _WRITTEN if line is None else OTHER_CODE)
            for new, old in zip(rules, job.rules, strict=True)
        )
        if any(_is_fixed(new) and not _is_fixed(old) for new, old in zip(rules, job.rules, strict=True)):
            break
        with job.clock.stage(Stage.PROOF), quiet_torch():
            comparison, sizes = _proved(job, draft, rules, route, accepts, everywhere=True)
        if not comparison.failed:
            return dataclasses.replace(draft, rules=rules, proof=comparison)
        bad = next(s for s, run in zip(sizes, comparison.runs, strict=True) if not run.passes(comparison.tolerance))
    return draft


def _is_fixed(rule: SizeRule) -> bool:
    return rule.baked or rule.min == rule.max


def _culprits(job: Job, draft: Draft, bad: Sizes) -> list[str]:
    """Returns the dimensions whose sizes are wrong: those that are wrong alone, else all that are not the example's."""
    example = job.axes.example
    moved = [name for name, size in bad.items() if size != example[name]]
    alone = [{**example, name: bad[name]} for name in moved]
    with job.clock.stage(Stage.PROOF), quiet_torch():
        comparison = proof.prove(draft.path, job.subject, job.axes, alone, draft.proof.tolerance)
    return [
        name for name, run in zip(moved, comparison.runs, strict=True) if not run.passes(comparison.tolerance)
    ] or moved


def _explained(new: SizeRule, old: SizeRule, line: Blame | None, remark: str = OTHER_CODE) -> SizeRule:
    """Adds to a narrower rule why it is narrower."""
    if (new.step, new.offset, new.offsets, new.valid, new.min, new.max) == (
        (old.step, old.offset, old.offsets, old.valid, old.min, old.max)
    ):
        return old
    return dataclasses.replace(new, blame=line or new.blame, narrowed=line, remark=remark)


def _proved(
    job: Job,
    draft: Draft,
    rules: tuple[SizeRule, ...],
    route: proof.RouteOf,
    accepts: Callable[[Sizes], bool] | None = None,
    everywhere: bool = False,
) -> tuple[Proof, list[Sizes]]:
    trials = job.trials if accepts is None else job.trials.narrowed(accepts)
    sizes = proof.proof_sizes(job.subject, job.axes, rules, trials, route, everywhere or job.blind)
    quantized = any(node.op_type == "QuantizeLinear" for node in draft.proto.graph.node)
    limit = proof.tolerance(job.subject, quantized)
    return proof.prove(draft.path, job.subject, job.axes, sizes, limit), sizes


def _agreed(job: Job, draft: Draft, route: proof.RouteOf) -> Draft:
    """Asks the graph's own lattice: it may refuse sizes between those that were compared."""
    with job.clock.stage(Stage.SIZES):
        lattice = graph_lattice(draft.path, draft.rules)
        sizes = first_lost(lattice, draft.rules, job.axes.example)
    if sizes is not None:
        with job.clock.stage(Stage.PROOF), quiet_torch():
            run = proof.prove(draft.path, job.subject, job.axes, [sizes], draft.proof.tolerance)
        if run.failed:
            return _narrowed(
                job, dataclasses.replace(draft, proof=run), route, functools.partial(takes_all, lattice), sizes
            )
    notes = beyond_pytorch(lattice, draft.rules, job.trials)
    return dataclasses.replace(draft, notes=(*draft.notes, *notes))


def _route(job: Job, guards: Guards | None, traced: int, sizes: Sizes) -> proof.Route:
    shapes = job.axes.shapes(job.subject.inputs, sizes)
    violated = frozenset[int]() if guards is None else guards.violated(shapes)
    blame = None if guards is None else guards.blame(violated)
    path = job.trials.path_or(sizes, traced)
    return proof.Route(blame is not None or path != traced, violated, path, blame)


def _finished(job: Job, raw: Path, exporter: str) -> onnx.ModelProto:
    proto = finish.read_raw(raw)
    finish.clean(proto, job.subject)
    labelled(job, proto, exporter, job.rules)
    finish.set_versions(proto, job.options.target)
    finish.write_axis(proto)
    return proto


def labelled(job: Job, proto: onnx.ModelProto, exporter: str, rules: tuple[SizeRule, ...]) -> None:
    """Writes the names of its dimensions into a file, and the sizes that it takes."""
    inputs, outputs = interface_of(job, rules)
    outputs = finish.without_found(proto, outputs)
    facts = {"trtconv.exporter": exporter, "trtconv.torch": str(torch.__version__)}
    finish.label(proto, inputs, outputs, rules, facts)


def _notes(job: Job, proto: onnx.ModelProto) -> tuple[str, ...]:
    notes = []
    names = {value.name for value in proto.graph.input}
    unused = [decl.name for decl in job.subject.inputs if decl.name not in names]
    if unused:
        notes.append(f"the exporter left out {', '.join(unused)}: the outputs do not depend on it")
    if job.subject.sized:
        notes.append(
            f"{job.subject.sized} transposed convolution(s) with a computed output size are written with the largest "
            "output_padding and a Slice to the size"
        )
    return (*notes, *(f"the operator {name} is not ONNX's own" for name in finish.custom_domains(proto)))
