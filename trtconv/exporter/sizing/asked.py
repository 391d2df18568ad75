"""The region of sizes in which torch.export traced, by what the user's Python asked there: no further run is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from trtconv.exporter.patches.size_questions import Question, Questions
from trtconv.exporter.request import Axes
from trtconv.exporter.sizing.guards import Guard, environment_guards, guard_of, placeholders
from trtconv.exporter.sizing.region import Region


def traced_region(program: torch.export.ExportedProgram, axes: Axes, told: Questions | None) -> Region | None:
    """Returns the sizes at which the user's Python takes the way that was traced.

    Args:
        program: What was traced, just now.
        axes: Its dynamic dimensions.
        told: What the user's Python asked meanwhile, where that is known.

    Returns:
        None where it cannot be told: Python read more than sizes, or part of it ran elsewhere.
    """
    if told is None or told.reads_export or _has_inner_programs(program):
        return None
    inputs = placeholders(program)
    environment = next((value.fake_mode.shape_env for value in inputs), None)
    torchs = () if environment is None else environment_guards(environment)
    return told_region(told, torchs, dict(_places(axes, [value.shape for value in inputs])))


def told_region(told: Questions | None, torchs: Sequence[Guard], places: Mapping[str, str]) -> Region | None:
    """Returns the sizes at which the user's Python takes the way that it took.

    Where it asked nothing, it runs through the same lines at all sizes, whatever torch asked of them.

    Args:
        told: What it asked, where that is known.
        torchs: What torch noted meanwhile.
        places: Symbol to the dimension that it stands for.

    Returns:
        None where it cannot be told.
    """
    if told is None or told.open:
        return None
    if not (told.asked or any(guard.blame for guard in torchs)):
        return Region((), places, False)
    asked = _guards(told.asked)
    if asked is None or any(guard.names - places.keys() for guard in asked):
        return None
    others = (g for g in torchs if (g.blame or "==" in g.text or "!=" in g.text) and g.names <= places.keys())
    guards = {guard.text: guard for guard in (*others, *asked)}
    return Region(tuple(guards[text] for text in dict.fromkeys([*(g.text for g in asked), *guards])), places, False)


def _has_inner_programs(program: torch.export.ExportedProgram) -> bool:
    """Whether parts of it (torch.cond, loops) were traced by other means than running their Python."""
    return any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in program.graph.nodes)


def _places(axes: Axes, shapes: Iterable[Iterable[Any]]) -> Iterator[tuple[str, str]]:
    """Yields the symbols of inputs' sizes, as torch made them, and which dimension each stands for."""
    for index, shape in enumerate(shapes):
        sizes = list(shape)
        for name, size in zip(axes.names(index, len(sizes)), sizes, strict=True):
            if name is not None and not isinstance(size, int):
                yield str(size.node._expr), name  # .expr is another one that it was found to be equal to


def _guards(asked: Iterable[Question]) -> list[Guard] | None:
    """Returns each question once, with its answer; None where torch cannot write one in Python."""
    guards: dict[str, Guard] = {}
    for question in asked:
        guard = guard_of(question.expression, question.line, question.answer)
        if guard is None:
            return None
        guards.setdefault(guard.text, guard)
    return list(guards.values())
