"""torch.export with sizes that it may choose to fix (Dim.AUTO): what it fixed or relied on is asked afterwards."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from trtconv.core.documents.export import Blame, SizeRule
from trtconv.core.frozen import frozen
from trtconv.exporter.module.source_line import blame_exception, first_line
from trtconv.exporter.module.state import restored
from trtconv.exporter.module.torch_module import Adapter, Subject, example_at
from trtconv.exporter.patches.adaptive_pooling import adaptive_pooling
from trtconv.exporter.patches.causal_masks import masks_unseen
from trtconv.exporter.patches.fake_quantize import without_fake_quantize
from trtconv.exporter.patches.output_size import computed_output_sizes
from trtconv.exporter.patches.size_questions import size_questions
from trtconv.exporter.patches.time_limit import ExportTimeOver, any_size, limited
from trtconv.exporter.request import Axes
from trtconv.exporter.sizing.answers import traced_region
from trtconv.exporter.sizing.guards import Guards, constant, guards_of
from trtconv.exporter.sizing.region import Region

SECONDS = 60.0
"""Processor time that torch.export may take; the trace comes after."""
_UNTOLD = "at a line that torch does not tell"


@frozen
class Objection:
    """Why torch.export does not export a module with the dimensions asked for.

    Args:
        kind: "data" (a branch on values), "specialized" (a size became a constant), "narrowed" (other code runs for
            some sizes in the bounds), "time", or "other".
        message: In words, with the line of Python where it is known.
        located: Whether that is known.
        more: What would accept it, for the hint.
    """

    kind: str
    message: str
    located: bool = True
    more: str = ""


@frozen
class Validated:
    """A program, and what it relies on.

    Args:
        program: The program.
        guards: What it relies on.
        region: The sizes at which Python takes the way that was traced, where that is known.
    """

    program: torch.export.ExportedProgram
    guards: Guards
    region: Region | None = None


def export_program(
    subject: Subject,
    axes: Axes,
    rules: Sequence[SizeRule],
    sizes: Mapping[str, int],
    seconds: float,
    shapes_only: bool = False,
) -> Validated | Objection:
    """Exports with the dynamic dimensions, or says in words why that cannot be.

    Args:
        subject: The module.
        axes: Its dynamic dimensions.
        rules: What is known of them; those of one valid size stay static.
        sizes: The sizes to trace at.
        seconds: Processor time to take at most.
        shapes_only: Whether the program is only for what it says of sizes: fake-quantisation is left out then.
    """
    if subject.scripted:
        return Objection("other", "torch.export does not take TorchScript")
    example = example_at(subject, axes, sizes)
    try:
        skipping = without_fake_quantize() if shapes_only else contextlib.nullcontext()
        sizing = computed_output_sizes(operator=True)
        with limited(seconds), restored(subject.module), masks_unseen(), skipping, adaptive_pooling(), sizing as sized:
            shapes = _dynamic_shapes(subject, axes, rules)
            with any_size(), size_questions() as questions:
                program = torch.export.export(subject.module, example, dynamic_shapes=shapes, strict=False)
        subject.sized = subject.sized if shapes_only else sized.count if sized else 0
    except ExportTimeOver:
        return Objection("time", f"torch.export took more than {seconds:.0f} s of processor time")
    except Exception as failure:
        return _objection(failure)
    validated = Validated(program, guards_of(program), traced_region(program, axes, questions))
    return _specialized(validated, axes, rules) or validated


def _dynamic_shapes(subject: Subject, axes: Axes, rules: Sequence[SizeRule]) -> Any:
    if not axes.places:
        return None
    fixed = {rule.name for rule in rules if rule.baked}
    per_input = tuple(
        {
            axis: torch.export.Dim.AUTO
            for axis, name in enumerate(axes.names(i, len(decl.shape)))
            if name is not None and name not in fixed
        }
        or None
        for i, decl in enumerate(subject.inputs)
    )
    # The adapter takes its tensors through one *parameter.
    return (per_input,) if isinstance(subject.module, Adapter) else per_input


def _specialized(validated: Validated, axes: Axes, rules: Sequence[SizeRule]) -> Objection | None:
    """Returns the objection to a program in which a size became a constant."""
    shapes = symbolic_inputs(validated.program)
    texts, blames = [], []
    for rule in rules:
        fixed = [n for i, axis in axes.places[rule.name] if (n := constant(shapes[i][axis])) is not None]
        if fixed and not rule.baked:
            blames.append(validated.guards.fixing(fixed[0]))
            texts.append(f"{rule.name} becomes a constant: {_from(blames[-1])}")
    return Objection("specialized", "; ".join(texts), blames[-1] is not None) if texts else None


def _objection(error: Exception) -> Objection:
    text = str(error)
    if "data-dependent" in text or "DataDependent" in type(error).__name__:
        blame = blame_exception(error)
        message = f"a branch or size depends on the values of a tensor, {_from(blame)}"
        return Objection("data", message, blame is not None)
    return Objection("other", message_of(error))


def _from(blame: Blame | None) -> str:
    return f"from {blame}" if blame is not None else _UNTOLD


def root_of(error: BaseException) -> BaseException:
    """Returns the error that all others were raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def message_of(error: BaseException) -> str:
    """Returns what an exporter's exception says, without torch's banner and colours, and the line it comes from."""
    root = root_of(error)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(root))
    bullets = re.findall(r"^  - (.+)$", text, re.MULTILINE)
    message = "; ".join(line.strip() for line in bullets[:2])[:400] or f"{type(root).__name__}: {first_line(root)}"
    blame = blame_exception(root) or blame_exception(error)
    return f"{message} ({_from(blame)})" if blame is not None else message


def symbolic_inputs(program: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """Returns the shape of every user input of a program; dynamic sizes are symbols."""
    names = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    return [tuple(n.meta["val"].shape) for n in nodes if hasattr(n.meta.get("val"), "shape")]


def program_axes(program: torch.export.ExportedProgram) -> Iterator[tuple[int, int, str]]:
    """Yields input index, axis and symbol of every dynamic axis of a program."""
    for index, shape in enumerate(symbolic_inputs(program)):
        for axis, size in enumerate(shape):
            if constant(size) is None:
                yield index, axis, str(size)
