"""The ways to a file, tried in order: the one whose file takes most of the sizes that PyTorch takes is used.

Every file is compared with PyTorch at sizes for each way through the module that is known: where torch.export's guards
hold and where they do not, and wherever the trials met other operations.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trtconv.core.documents.export import Attempt, Branch, Proof, SizeRule
from trtconv.core.errors import ExportFailed, InputError, TrtconvError
from trtconv.core.frozen import frozen
from trtconv.core.stages import Stage
from trtconv.exporter.file import writers
from trtconv.exporter.file.judging import judged, labelled
from trtconv.exporter.file.parting import held_to_regions
from trtconv.exporter.file.proof import prove_on
from trtconv.exporter.file.validate import SECONDS, Objection, Validated, export_program, message_of, root_of
from trtconv.exporter.job import Draft, Job
from trtconv.exporter.module.torch_module import Subject
from trtconv.exporter.module.values import draws_random, value_branches
from trtconv.exporter.patches.time_limit import ExportTimeOver, limited
from trtconv.exporter.patches.torch_quiet import quiet_torch
from trtconv.exporter.sizing.guards import guards_of
from trtconv.exporter.sizing.probes import other_ways
from trtconv.exporter.sizing.sizes import with_tied

_ROOM = 4
"""Steps that a traced size is above zero at least: sizes that shrink to 1 inside would be taken for constants."""
_SPAN = 4
"""Steps beyond the example to which sizes are counted where nobody asked for bounds."""
_COUNTED = 1024
_NAMED = 4
"""Branches that a message names."""
Sizes = Mapping[str, int]


@frozen
class Way:
    """One try: an exporter, and the sizes that it traces at."""

    exporter: str
    sizes: Sizes
    where: str = ""

    def __str__(self) -> str:
        return f"{self.exporter}{self.where}"


def best_draft(job: Job) -> Draft:
    """Tries ways to a file until one takes every size that PyTorch takes.

    Returns:
        The draft that takes most sizes; one whose proof failed where no other is there.

    Raises:
        ExportFailed: No exporter takes the module, or what can be exported leaves out an end of the bounds.
    """
    drafts = _drafts(job)
    good = [draft for draft in drafts if not draft.proof.failed]
    good.sort(key=lambda draft: _share(draft.rules, job.rules), reverse=True)
    best = next((result for draft in good if (result := held_to_regions(job, draft)) is not None), None)
    if best is not None:
        _refuse_lost_ends(job, best)
        if not _held_to_values(job, best):
            raise _failure(job)
        return _used(job, best)
    if drafts:
        _refuse_random(job)
    if job.together is not None:
        raise ExportFailed(job.together.message, _HINTS["together"] + job.together.more)
    if drafts and job.objection is None:
        return drafts[0]
    raise _failure(job)


def _drafts(job: Job) -> list[Draft]:
    """Returns a draft of each way that makes one, until one takes every size, or the time for better ones is over."""
    drafts: list[Draft] = []
    for number, way in enumerate(_ways(job)):
        if job.seconds_left <= 0:
            job.attempts.append(
                Attempt(str(way), f"not tried: the {job.options.time_limit:g} s of --time-limit are over")
            )
            continue
        if job.room <= 0 and (way.where or way.exporter == "torch.export"):  # a trace costs little
            job.attempts.append(Attempt(str(way), "not tried: a right file is there, and better ones took long"))
            continue
        start = time.process_time()
        draft = _try(job, way, job.folder / str(number))
        right = draft is not None and not draft.proof.failed
        spent = time.process_time() - start
        if math.isfinite(job.room):
            job.room -= spent
        elif right:
            job.cost = spent
            job.room = job.share
        if draft is not None:
            drafts.append(draft)
            if right and _share(draft.rules, job.rules) == 1.0:
                break
    return drafts


def settled(job: Job, draft: Draft) -> Draft:
    """Returns a draft, which nothing else can replace, for the sizes at which it is right.

    Raises:
        ExportFailed: It leaves out an end of the bounds, or sizes that are valid one by one.
    """
    result = held_to_regions(job, draft) if not draft.proof.failed else draft
    if result is None:
        raise ExportFailed("" if job.together is None else job.together.message, _HINTS["together"])
    if not result.proof.failed:
        _refuse_lost_ends(job, result)
    return _used(job, result)


def _ways(job: Job) -> Iterator[Way]:
    """Yields the ways to try, the tracing exporter's first only where it alone keeps what the module says."""
    exporter, subject = job.options.exporter, job.subject
    keeps = _kept_by_tracing(subject)
    programs = not subject.scripted and (exporter == "torch.export" or (exporter == "auto" and not keeps))
    traces = subject.program is None and exporter in ("auto", "torchscript")
    if exporter == "auto" and keeps:
        job.attempts.append(Attempt("torch.export", f"loses {keeps}, which the tracing exporter keeps"))
    own, *others = _starts(job)
    if programs:
        yield Way("torch.export", _roomy(job, own))
        for sizes in others:
            if _promising(job, own, sizes):
                yield Way("torch.export", sizes, " at other sizes")
    if traces and not _reads_values(job):
        yield Way("torchscript", own)
        for sizes in others:
            if _promising(job, own, sizes):
                yield Way("torchscript", sizes, " at other sizes")


def _promising(job: Job, first: Sizes, sizes: Sizes) -> bool:
    """Whether other sizes than the first may give another file: other code runs there, or nobody knows."""
    if job.objection is not None:
        return job.objection.kind == "specialized"
    return job.blind or job.trials.path_or(first, 0) != job.trials.path_or(sizes, 1)


def _starts(job: Job) -> list[Sizes]:
    """Returns the sizes to trace at: typical ones, the example's, and others that are not alike."""
    own = _typical(job)
    starts = [own, _moved(job, own, 64), dict(job.axes.example), _moved(job, own)]
    return [sizes for number, sizes in enumerate(starts) if sizes is not None and sizes not in starts[:number]]


def _kept_by_tracing(subject: Subject) -> str:
    if subject.fake_quantized:
        return "fake-quantisation"
    return f"the ONNX symbolic of {subject.symbolic[0]}" if subject.symbolic else ""


def _reads_values(job: Job) -> bool:
    """Whether Python reads values of the inputs where nobody accepted it: a trace would keep what it read.

    A check that only raises is no loss but of the error, which a note says.
    """
    with job.clock.stage(Stage.VALUES), quiet_torch():
        branches = value_branches(job.subject)
        if not branches:
            branches = tuple(itertools.islice((way.branch for way in other_ways(job.subject) if way.by_operations), 1))
    refused = _not_accepted(job, branches)
    if refused:
        job.attempts.append(Attempt("torchscript", "not tried: a trace would keep what Python read as a constant"))
    return refused


def _not_accepted(job: Job, branches: Sequence[Branch]) -> bool:
    """Whether there are branches on values that nobody accepted, which is an objection then."""
    by_place = {branch.at: branch for branch in (*job.branches, *branches) if branch.check or job.accepts(branch)}
    job.branches = tuple(by_place.values())
    refused = [branch for branch in branches if branch.at not in by_place]
    if refused:
        text = "; ".join(map(Branch.sentence, refused[:_NAMED])) + (" ..." if len(refused) > _NAMED else "")
        text = f"the values of the inputs decide what Python does, and a file does not: {text}"
        places = " ".join(f"--accept-branch {branch.at}" for branch in refused)
        job.objection = Objection("data", text, more=f" To keep what the example reads: {places}.")
    return bool(refused)


def _held_to_values(job: Job, draft: Draft) -> bool:
    """Whether a file is right on unusual values too, wherever the module may do something else on them.

    torch.export follows what Python reads, but not what it writes as text, nor an error that the user's code catches.
    Of a trace, what else is read was refused or accepted before; beside what was accepted, a text cannot be told.
    """
    program = draft.exporter == "torch.export"
    if program:
        job.branches = ()  # those of a trace
    if not draft.proof.runs or not (program or all(branch.check for branch in job.branches)):
        return True
    with job.clock.stage(Stage.VALUES), quiet_torch():
        by_place = {
            way.branch.at: way.branch
            for way in other_ways(job.subject)
            if (program or not way.by_operations)
            and not prove_on(draft.path, job.subject, way.inputs, draft.proof.tolerance)
        }
    return not _not_accepted(job, tuple(by_place.values()))


def _typical(job: Job) -> Sizes:
    """Returns sizes at which the module runs as at most others; the example's where there are none."""
    trials, example = job.trials, dict(job.axes.example)
    runs = trials.runs()
    if not runs:
        return example
    paths = [trials.path_or(sizes, 0) for sizes in runs]
    most, count = collections.Counter(paths).most_common(1)[0]
    if trials.path_or(example, 0) == most or count * 2 <= len(paths):
        return example
    for parts in (4, 64):
        moved = _moved(job, example, parts)
        if moved is not None and trials.path_or(moved, 0) == most:
            return moved
    return runs[paths.index(most)]


def _moved(job: Job, start: Sizes, parts: int = 4) -> Sizes | None:
    """Returns other, lopsided sizes: `if height == width == trained` may hold for the example only.

    They stay multiples of a part of the power of two that is in the example's, so that both pad, or neither.
    """
    sizes = dict(start)
    for number, rule in enumerate(job.rules):
        if rule.baked:
            continue
        unit = math.lcm(max(rule.step, 1), max((rule.example & -rule.example) // parts, 1))
        larger = rule.example + (number + 1) * -(-rule.example // (3 * unit)) * unit
        sizes[rule.name] = larger if rule.takes(larger) else next(iter(_near(rule)), rule.example)
    sizes = with_tied(job.rules, sizes)
    return sizes if sizes != dict(start) and job.trials.ok(sizes) else None


def _near(rule: SizeRule) -> Iterator[int]:
    """Yields valid sizes beside the example."""
    for distance in range(1, 2 * max(rule.step, 1) + 1):
        yield from (n for n in (rule.example + distance, rule.example - distance) if n > 1 and rule.takes(n))


def _roomy(job: Job, start: Sizes) -> Sizes:
    """Returns sizes, enlarged where one is so small that torch.export would take it for a constant."""
    sizes = dict(start)
    for rule in job.rules:
        if rule.step and (sizes[rule.name] - rule.offset) // rule.step < _ROOM:
            top = rule.offset + _ROOM * rule.step
            sizes[rule.name] = top if rule.max is None else max(min(top, rule.max), sizes[rule.name])
    sizes = with_tied(job.rules, sizes)
    return sizes if job.trials.ok(sizes) else start


def _try(job: Job, way: Way, folder: Path) -> Draft | None:
    """Makes a draft in one way; None, and said among the attempts, where that fails."""
    folder.mkdir()
    job.objection = None if way.exporter == "torch.export" else job.objection
    try:
        with job.clock.attempt(str(way)):
            draft = _program(job, way, folder) if way.exporter == "torch.export" else _trace(job, way, folder)
    except TrtconvError as error:
        job.attempts.append(Attempt(str(way), error.message))
        return None
    except Exception as error:  # the exporters raise whatever their parts raise
        if isinstance(root := root_of(error), InputError):
            raise root from error  # a translation of the user's is wrong, and another way would not use it
        job.attempts.append(Attempt(str(way), message_of(error)))
        return None
    outcome = _disproof(draft.proof) if draft.proof.failed else "used"
    job.attempts.append(Attempt(str(way), outcome))
    return draft


def _program(job: Job, way: Way, folder: Path) -> Draft:
    """Writes by way of torch.export, which also tells what the file relies on."""
    start = time.thread_time()
    with job.clock.stage(Stage.VALIDATE), quiet_torch():
        outcome = export_program(job.subject, job.axes, job.rules, way.sizes, _seconds(job))
        if isinstance(outcome, Objection) and job.subject.program is not None:
            # Exported anew first: torch 2.13 cannot decompose a loaded program whose sizes are expressions (8*s0).
            outcome = Validated(job.subject.program, guards_of(job.subject.program))
    if isinstance(outcome, Objection):
        job.objection = outcome
        raise ExportFailed(outcome.message)
    job.learn(outcome, way.sizes)
    rest = max(job.room - (time.thread_time() - start), 1.0)
    within = limited(rest) if math.isfinite(rest) else contextlib.nullcontext()
    try:
        with job.clock.stage(Stage.EXPORT), quiet_torch(), within:
            raw = writers.write_program(outcome.program, job.subject, job.opset, folder, job.translations)
    except ExportTimeOver:
        raise ExportFailed(f"torch.onnx.export took more than {rest:.0f} s of processor time") from None
    return judged(job, way.exporter, way.sizes, raw, outcome.guards)


def _trace(job: Job, way: Way, folder: Path) -> Draft:
    """Writes with the tracing exporter; where it made constants of sizes, torch.export is asked what they mean."""
    with job.clock.stage(Stage.EXPORT), quiet_torch():
        raw, hardened = writers.write_trace(job.subject, job.axes, way.sizes, job.opset, folder)
    if hardened and job.guards is None and not (job.subject.scripted or job.unguarded):
        with job.clock.stage(Stage.VALIDATE), quiet_torch():
            outcome = export_program(job.subject, job.axes, job.rules, way.sizes, _seconds(job), shapes_only=True)
        if isinstance(outcome, Validated):
            job.learn(outcome, way.sizes)
        job.unguarded = job.guards is None
    job.blind = hardened and job.guards is None
    return judged(job, way.exporter, way.sizes, raw, job.guards)


def _seconds(job: Job) -> float:
    """Returns the processor time that torch.export may take."""
    return max(min(SECONDS, job.seconds_left, job.room), 1.0)


def _used(job: Job, best: Draft) -> Draft:
    """Writes the sizes that the file takes into it."""
    if best.rules != job.rules:
        labelled(job, best.proto, best.exporter, best.rules)
    job.rules = best.rules
    return best


def _disproof(proof: Proof) -> str:
    worst_run = max(proof.runs, key=lambda run: run.max_relative_error or 0.0)
    at = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in worst_run.inputs.items())
    return f"differs from PyTorch at {at}: {worst_run.why or f'relative error {worst_run.max_relative_error:.2g}'}"


def _share(rules: Sequence[SizeRule], all_rules: Sequence[SizeRule]) -> float:
    """Returns which part of the sizes that PyTorch takes are among those of `rules`."""
    share = 1.0
    for rule, full in zip(rules, all_rules, strict=True):
        top = full.max if full.max is not None else full.example + _SPAN * max(full.example, full.step)
        sizes = full.valid or ((full.example,) if full.baked else full.sizes(full.min, top)[:_COUNTED])
        share *= sum(map(rule.takes, sizes)) / len(sizes)
    return share


def _refuse_lost_ends(job: Job, best: Draft) -> None:
    """Raises where what is exported leaves out an end of the bounds that were asked for."""
    for new, old in zip(best.rules, job.rules, strict=True):
        low, high = (new.valid[0], new.valid[-1]) if new.valid else (new.min, new.max)
        if old.asked is None or old.max is None or high is None:
            continue
        if new.narrowed and job.options.split_branches:
            continue  # another file has them
        step = max(new.step, old.step, 1)
        if low - old.min >= step or old.max - high >= step:
            kind = "narrowed" if new.narrowed else "written"
            why = "other code runs" if new.narrowed else "what torch's exporters write differs from PyTorch"
            line = f", from {new.narrowed}" if new.narrowed else ""
            raise ExportFailed(
                f"{why} for some sizes: what is exported holds for {new.name} from {low} to {high} only{line}",
                _HINTS[kind],
            )


def _refuse_random(job: Job) -> None:
    """Raises where PyTorch does not agree with itself: that is why no file agrees with it."""
    with quiet_torch():
        line = draws_random(job.subject)
    if line is not None:
        raise ExportFailed(f"forward draws random numbers, so that no two runs agree: from {line}", _HINTS["random"])


def _failure(job: Job) -> TrtconvError:
    """Returns the error for a module that no exporter takes: torch.export's objection says it best, with its line."""
    if job.objection is not None and job.objection.kind in _HINTS and job.objection.located:
        return ExportFailed(job.objection.message, _HINTS[job.objection.kind] + job.objection.more)
    lines = "\n".join(f"  {attempt.exporter}: {attempt.outcome}" for attempt in job.attempts)
    hint = "Give it more time: --time-limit." if job.seconds_left <= 0 else "Replace what they name, or try --static."
    return ExportFailed(f"no exporter of torch takes the module\n{lines}", hint)


_HINTS = {
    "data": "Write it with torch.where, which computes both sides, or torch.cond; take a number from a shape, not from "
    "a value; or take it out of forward.",
    "specialized": "Use tensor operations or x.shape itself there (no int(), no constant); or leave that dimension "
    "static: _ in place of its name.",
    "narrowed": "Narrow --dim to one side, take the branch out of forward, or write a file for each side: "
    "--split-branches.",
    "together": "Narrow --dim so that one side runs at all sizes, or take the branch out of forward.",
    "written": "Narrow --dim, or replace what makes a constant of a size (int(), float(), a computed scale_factor).",
    "random": "Give the random numbers as an input, or leave them out in eval mode.",
}
