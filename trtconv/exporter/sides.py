"""The sides of branches on sizes, each in a file of its own with its own rule (`--split-branches`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from trtconv.core.documents.export import Blame, SizeRule
from trtconv.core.errors import ExportFailed
from trtconv.core.frozen import frozen
from trtconv.core.stages import Stage
from trtconv.exporter.file.candidates import best_draft
from trtconv.exporter.job import Draft, Job
from trtconv.exporter.module.random_inputs import inputs_that_run
from trtconv.exporter.module.torch_module import Subject
from trtconv.exporter.patches.torch_quiet import quiet_torch
from trtconv.exporter.request import Axes
from trtconv.exporter.sizing.grid import Grid
from trtconv.exporter.sizing.region import Sizes
from trtconv.exporter.sizing.sizes import with_tied
from trtconv.exporter.sizing.trials import Trials

_MOST = 8
"""Files that are written; a size that Python takes as a plain number would have one for each size."""
_REFUSED = 256
"""Sizes that PyTorch refuses together, of those that no file has, after which no more are asked."""


@frozen
class SideFile:
    """One file of an export.

    Args:
        job: The export of it alone.
        draft: The file.
        output: Where it goes.
    """

    job: Job
    draft: Draft
    output: Path


def sides_of(job: Job, output: Path) -> list[SideFile]:
    """Returns a file for each side of the branches that part the sizes of an export; one where none does.

    Raises:
        ExportFailed: A side cannot be exported, or the sides are too many.
    """
    whole, sides = job.rules, [(job, best_draft(job))]
    while not sides[-1][1].proof.failed:
        with job.clock.stage(Stage.SIZES), quiet_torch():
            sizes = _open_sizes(job, whole, [draft.rules for _, draft in sides])
        if sizes is None:
            return _numbered(sides, output)
        if len(sides) == _MOST:
            line = next((rule.narrowed for _, draft in sides for rule in draft.rules if rule.narrowed), None)
            raise ExportFailed(
                f"the sizes have more than {_MOST} sides" + (f", from {line}" if line else ""),
                "Narrow --dim, or leave out --split-branches to have the example's side alone.",
            )
        side = _side_at(job, whole, [draft.rules for _, draft in sides], sizes, len(sides))
        sides.append((side, best_draft(side)))
    return _numbered(sides, output)


def _open_sizes(job: Job, whole: Sequence[SizeRule], sides: Sequence[Sequence[SizeRule]]) -> Sizes | None:
    """Returns the sizes nearest to the example that PyTorch takes and a branch keeps out of all files."""
    if not any(rule.narrowed for rules in sides for rule in rules):
        return None
    grid = Grid(whole)
    free = grid.everywhere()
    for rules in sides:
        free &= ~grid.mask([rule for rule in rules if rule.narrowed])
    for _ in range(_REFUSED):
        sizes = grid.nearest(free)
        if sizes is None or job.trials.ok(sizes):
            return sizes
        free &= ~grid.at(sizes)
    return None


def _side_at(
    job: Job, whole: Sequence[SizeRule], sides: Sequence[Sequence[SizeRule]], start: Sizes, number: int
) -> Job:
    """Returns the export of a side that some sizes are on, with all sizes beside them that no file has yet."""

    def is_left(sizes: Sizes) -> bool:
        return not any(all(r.takes(sizes[r.name]) for r in rules if r.narrowed) for rules in sides)

    example = _inner(job.axes, whole, start, lambda sizes: is_left(sizes) and job.trials.ok(sizes))
    lines = {rule.name: rule.narrowed for rules in sides for rule in rules if rule.narrowed}
    rules = tuple(_rest(rule, example, is_left, lines.get(rule.name)) for rule in whole)
    axes = dataclasses.replace(job.axes, example=example)
    with job.clock.stage(Stage.RUN), quiet_torch():
        subject = _subject_at(job.subject, axes)
        trials = Trials(subject, axes)
    folder = job.folder / f"side{number}"
    folder.mkdir()
    names = ("options", "clock", "joint", "translations", "started")
    return Job(subject, axes, trials, rules, folder=folder, **{name: getattr(job, name) for name in names})


def _inner(axes: Axes, whole: Sequence[SizeRule], start: Sizes, takes: Callable[[Sizes], bool]) -> dict[str, int]:
    """Returns an example in the middle of a side: sizes at its edge are a poor choice to tune an engine for."""
    example = dict(start)
    for rule in whole:
        if example[rule.name] != axes.example[rule.name]:
            sizes = [n for n in _sizes(rule) if takes(with_tied(whole, {**example, rule.name: n}))]
            moved = {**example, rule.name: sizes[len(sizes) // 2]} if sizes else example
            example = with_tied(whole, moved)
    return example


def _sizes(rule: SizeRule) -> Sequence[int]:
    """Returns the valid sizes of a dimension: of one without bounds, those up to twice the example."""
    return rule.listed or rule.sizes(rule.min, rule.max or 2 * rule.example)


def _rest(rule: SizeRule, example: Sizes, is_left: Callable[[Sizes], bool], line: Blame | None) -> SizeRule:
    """Returns the rule of a dimension without the sizes that other files have, the others being the example's."""
    rule = dataclasses.replace(rule, example=example[rule.name])
    sizes = _sizes(rule)
    values = [n for n in sizes if is_left({**example, rule.name: n})]
    if len(values) == len(sizes) or rule.tied:
        return rule
    rest = dataclasses.replace(rule, min=values[0], max=values[-1], blame=line, narrowed=line)
    first = sizes.index(values[0])
    if rule.listed is None and values == list(sizes[first : first + len(values)]) and len(values) > 1:
        return rest if rule.max is not None or values[-1] < sizes[-1] else dataclasses.replace(rest, max=None)
    step = values[1] - values[0] if len(values) > 1 else 0
    if step and values == list(range(values[0], values[-1] + 1, step)):
        return dataclasses.replace(rest, step=step, offset=values[0] % step, offsets=(), valid=None)
    return dataclasses.replace(rest, step=0, offset=0, offsets=(), valid=tuple(values) if step else None)


def _subject_at(subject: Subject, axes: Axes) -> Subject:
    """Returns a subject with an example of other sizes."""
    shapes = axes.shapes(subject.inputs, axes.example)
    inputs = tuple(dataclasses.replace(i, shape=shape) for i, shape in zip(subject.inputs, shapes, strict=True))
    example, expected = inputs_that_run(inputs, shapes, 0, subject.run)
    return dataclasses.replace(subject, inputs=inputs, example=example, expected=expected, notes=[*subject.notes])


def _numbered(sides: Sequence[tuple[Job, Draft]], output: Path) -> list[SideFile]:
    """Names the files, and says in each where the other sizes are."""
    if len(sides) == 1:
        return [SideFile(*sides[0], output)]
    outputs = [output.with_name(f"{output.stem}.{number}{output.suffix}") for number in range(1, len(sides) + 1)]
    for (job, draft), own in zip(sides, outputs, strict=True):
        others = ", ".join(other.name for other in outputs if other != own)
        remark = f"other sizes run other code, which is in {others}"
        job.rules = tuple(dataclasses.replace(new, remark=remark) if new.narrowed else new for new in draft.rules)
    return [SideFile(job, draft, own) for (job, draft), own in zip(sides, outputs, strict=True)]
