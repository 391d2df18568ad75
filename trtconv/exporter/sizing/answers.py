"""The region of sizes in which torch.export traced, by what the user's Python asked there: no further run is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from trtconv.exporter.patches.size_questions import Questions
from trtconv.exporter.request import Axes
from trtconv.exporter.sizing.guards import Guard, environment_guards, guard_of, placeholders, unique
from trtconv.exporter.sizing.region import Region


def traced_region(program: torch.export.ExportedProgram, axes: Axes, questions: Questions | None) -> Region | None:
    """Returns the sizes at which the user's Python takes the way that was traced.

    Args:
        program: What was traced, just now.
        axes: Its dynamic dimensions.
        questions: What the user's Python asked meanwhile, where that is known.

    Returns:
        None where it cannot be told: Python read more than sizes, or part of it ran elsewhere.
    """
    if questions is None or questions.reads_export or _has_inner_programs(program):
        return None
    inputs = placeholders(program)
    environment = next((value.fake_mode.shape_env for value in inputs), None)
    torchs = () if environment is None else environment_guards(environment)
    return region_of(questions, torchs, places_of(axes, [value.shape for value in inputs]))


def region_of(questions: Questions | None, torchs: Sequence[Guard], places: Mapping[str, str]) -> Region | None:
    """Returns the sizes at which the user's Python takes the way that it took.

    Where it asked nothing, it runs through the same lines at all sizes, whatever torch asked of them.

    Args:
        questions: What it asked, where that is known.
        torchs: What torch noted meanwhile.
        places: Symbol to the dimension that it stands for.

    Returns:
        None where it cannot be told.
    """
    if questions is None or questions.open:
        return None
    if not (questions.entries or any(guard.blame for guard in torchs)):
        return Region((), places, False)
    guards = [guard_of(question.expression, question.line, question.answer) for question in questions.entries]
    answers = [guard for guard in guards if guard is not None and guard.names <= places.keys()]
    if len(answers) < len(guards):
        return None
    others = (guard for guard in torchs if guard.decides and guard.names <= places.keys())
    return Region(unique((*answers, *others)), places, False)


def _has_inner_programs(program: torch.export.ExportedProgram) -> bool:
    """Whether parts of it (torch.cond, loops) were traced by other means than running their Python."""
    return any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in program.graph.nodes)


def places_of(axes: Axes, shapes: Iterable[Iterable[Any]]) -> dict[str, str]:
    """Returns the symbols of inputs' sizes, as torch made them, to the dimension that each stands for."""
    places = {}
    for index, shape in enumerate(shapes):
        sizes = list(shape)
        for name, size in zip(axes.names(index, len(sizes)), sizes, strict=True):
            if name is not None and not isinstance(size, int):
                places[str(size.node._expr)] = name  # .expr is another one that it was found to be equal to
    return places
