"""A finished file, held to each region of its sizes: that it is right where no comparison was made, too."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence

from trtconv.core.dims import sizes_text
from trtconv.core.documents.export import Blame, Branch, SizeRule
from trtconv.core.stages import Stage
from trtconv.exporter.file import proof
from trtconv.exporter.file.validate import Objection
from trtconv.exporter.job import Draft, Job
from trtconv.exporter.patches.torch_quiet import quiet_torch
from trtconv.exporter.sizing.grid import Grid
from trtconv.exporter.sizing.region import Sizes
from trtconv.exporter.sizing.regions import Regions
from trtconv.exporter.sizing.sizes import size_at, with_tied

_RANDOM = 3
"""Random sizes of the rules, taken together."""
_SECONDS, _AT_ONCE, _MOST = 10.0, 16, 2000
"""Processor time for sizes of which nobody knows what Python does there, how many are compared at once, and at most."""


def held_to_regions(job: Job, draft: Draft) -> Draft | None:
    """Returns a draft for the sizes at which it is right, as far as the lines that part them tell.

    Returns:
        None, and `job.together` says why, where sizes that are valid one by one are wrong together.
    """
    if not draft.rules or not draft.proof.runs:
        return draft
    regions = _regions(job, draft)
    with job.clock.stage(Stage.SIZES), quiet_torch():
        candidates = [
            sizes for sizes in (*_of_regions(job, draft, regions), *_together(job, draft)) if job.trials.ok(sizes)
        ]
    with job.clock.stage(Stage.PROOF), quiet_torch():
        comparison = proof.prove(draft.path, job.subject, job.axes, candidates, draft.proof.tolerance)
    bad = [
        sizes for sizes, run in zip(candidates, comparison.runs, strict=True) if not run.passes(comparison.tolerance)
    ]
    note = ""
    if not bad and not regions.complete:
        bad, note = _unknown(job, draft, regions)
    bad = [sizes for sizes in bad if not _accepted(job, regions, sizes)]
    if not bad:
        return dataclasses.replace(draft, notes=(*draft.notes, note)) if note else draft
    rules = _without(job, draft, regions, bad)
    if rules is None:
        _object(job, regions, bad[0])
    return None if rules is None else dataclasses.replace(draft, rules=rules)


def right_regions(
    job: Job, draft: Draft, right: Sequence[Sizes], wrong: Sequence[Sizes]
) -> tuple[SizeRule, ...] | None:
    """Returns rules for the regions at which a file is right, where the regions are what parts right from wrong.

    Args:
        job: What is exported.
        draft: A file that is wrong at some sizes of its rules.
        right: Sizes at which it was compared and is right.
        wrong: Sizes at which it is wrong.

    Returns:
        None where they are not, or where no rules of single dimensions say it; `job.together` has the line then.
    """
    regions = _regions(job, draft)
    if any(map(regions.is_examples, wrong)):
        return None
    bad = {regions.of(sizes) for sizes in wrong}
    if not bad.isdisjoint({-1, 0, *map(regions.of, right)}):
        return None
    rules = _without(job, draft, regions, wrong)
    if rules is None and regions.blame(wrong[0]) is not None:
        _object(job, regions, wrong[0])
    return rules


def line_between(job: Job, draft: Draft, sizes: Sizes) -> Blame | None:
    """Returns the line that parts sizes from the example: the question, else the first operation that differs."""
    return _line(job, _regions(job, draft), sizes)


def _regions(job: Job, draft: Draft) -> Regions:
    """Returns the regions of a draft's sizes; several drafts have the same."""
    if job.regions is None or job.regions.rules != draft.rules:
        with job.clock.stage(Stage.SIZES), quiet_torch():
            job.regions = Regions(job.trials, draft.rules, job.regions, job.share, job.traced)
    return job.regions


def _without(job: Job, draft: Draft, regions: Regions, bad: Sequence[Sizes]) -> tuple[SizeRule, ...] | None:
    """Returns rules without the regions of some sizes; None where none says that."""
    narrower = regions.without(draft.rules, {regions.of(sizes) for sizes in bad} - {-1, 0})
    if narrower is None or any(_takes(narrower, sizes) for sizes in bad):
        return None
    line = _line(job, regions, bad[0])
    return tuple(
        new if new == old else dataclasses.replace(new, blame=line, narrowed=line, remark=OTHER_CODE)
        for new, old in zip(narrower, draft.rules, strict=True)
    )


OTHER_CODE = "PyTorch takes more sizes, by other code, which the file does not have"


def _of_regions(job: Job, draft: Draft, regions: Regions) -> list[Sizes]:
    """Returns a size of each region that a line of the user's parts from the example's."""
    result = []
    for number, region in enumerate(regions.members[1:], start=1):
        if not region.refused and regions.blame(region.samples[0]) is not None:
            inside = [s for s in region.samples if _takes(draft.rules, s) and regions.of(s) == number]
            near = [s for s in inside if proof.affordable(job.subject, job.axes, s)]
            path = job.trials.path_or(job.axes.example, 0)
            # One that is too large is compared too where its operations are not the example's.
            result += near[:2] or [s for s in inside[:1] if job.trials.path_or(s, path) != path]
    return result


def _together(job: Job, draft: Draft) -> list[Sizes]:
    """Returns some of the sizes that the rules allow together: two at opposite ends, and random ones."""
    if len(draft.rules) == 1:
        return []
    ends = [
        {rule.name: size_at(rule, float(n % 2 == turn), 2 * rule.example) for n, rule in enumerate(draft.rules)}
        for turn in (0, 1)
    ]
    grid, generator = Grid(draft.rules), random.Random(0)
    picks = [grid.sample(grid.everywhere(), generator) for _ in range(_RANDOM)]
    sizes = [with_tied(draft.rules, point) for point in (*ends, *picks) if point is not None]
    return [point for point in sizes if proof.affordable(job.subject, job.axes, point)]


def _unknown(job: Job, draft: Draft, regions: Regions) -> tuple[list[Sizes], str]:
    """Compares a file at as many random sizes as there is time for, since nobody knows all that Python asks of them.

    Returns:
        Sizes at which it is wrong, and what there is to say where not all were compared.
    """
    grid, generator = Grid(draft.rules), random.Random(1)
    rest, end = grid.everywhere(), time.process_time() + _SECONDS
    compared, skipped, bad = 0, grid.thinned, list[Sizes]()
    with job.clock.stage(Stage.PROOF), quiet_torch():
        while not bad and compared < _MOST and time.process_time() < end:
            samples = grid.taken_out(rest, _AT_ONCE, generator)
            if not samples:
                break
            near = [sizes for sizes in samples if proof.affordable(job.subject, job.axes, sizes)]
            skipped |= len(near) < len(samples)
            comparison = proof.prove(draft.path, job.subject, job.axes, near, draft.proof.tolerance)
            bad = [
                sizes for sizes, run in zip(near, comparison.runs, strict=True) if not run.passes(comparison.tolerance)
            ]
            compared += len(near)
    if bad or not (skipped or rest.any()):
        return bad, ""
    line = regions.fixing()
    at = f", for {line} takes them as plain numbers" if line else ""
    return (
        [],
        f"what Python asks of the sizes is not known for all of them{at}: the file was compared at {compared} more",
    )


def _takes(rules: tuple[SizeRule, ...], sizes: Sizes) -> bool:
    return all(rule.takes(sizes[rule.name]) for rule in rules)


def _line(job: Job, regions: Regions, sizes: Sizes) -> Blame | None:
    return regions.blame(sizes) or job.trials.parting(sizes)


def _accepted(job: Job, regions: Regions, sizes: Sizes) -> bool:
    """Whether the user accepted that the file has not the code that runs at some sizes."""
    line = _line(job, regions, sizes)
    if line is None:
        return False
    branch = Branch(line, f"goes otherwise than on the example at {sizes_text(sizes)}")
    if job.accepts(branch):
        job.branches_on_sizes.setdefault(branch.at, branch)
    return branch.at in job.branches_on_sizes


def _object(job: Job, regions: Regions, sizes: Sizes) -> None:
    line = _line(job, regions, sizes)
    text = f"the file differs from PyTorch at {sizes_text(sizes)}"
    if line is None:
        job.together = Objection("together", text)
        return
    text = f"other code runs at {sizes_text(sizes)}, which the file would not have: from {line}"
    more = f" To keep the example's: --accept-branch {Branch(line, '').at}."
    job.together = Objection("together", text, more=more)
