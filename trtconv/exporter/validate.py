"""torch.export with the Dim expressions that the trials found, and its objections in words."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes

from trtconv.core.frozen import frozen
from trtconv.core.requests.export import Blame, SizeRule
from trtconv.exporter.output_size import computed_output_sizes
from trtconv.exporter.request import Axes
from trtconv.exporter.sizes import with_tied
from trtconv.exporter.source_line import blame_exception, blame_frame, first_line
from trtconv.exporter.torch_module import Adapter, Subject, copies, random_inputs
from trtconv.exporter.torch_quiet import heard
from trtconv.exporter.trials import Trials

_ROOM = 4
"""Steps that a traced size is above zero at least: sizes that shrink to 1 inside would be taken for constants."""
_REFINEMENTS = 3
_GUARD_LOGGER = "torch.fx.experimental.symbolic_shapes"


@frozen
class Objection:
    """Why torch.export does not export a module with the dimensions asked for.

    Args:
        kind: "data" (a branch on values), "specialized" (a size became a constant), "narrowed" (other code runs for
            some sizes in the bounds), or "other".
        message: In words, with the line of Python where it is known.
        beyond: For "narrowed": dimension name to the first size that the exported code does not hold for.
    """

    kind: str
    message: str
    beyond: Mapping[str, int] = dataclasses.field(default_factory=dict)


@frozen
class Validated:
    """A program, and the sizes that it holds for: as the trials found, or fewer."""

    program: torch.export.ExportedProgram
    rules: tuple[SizeRule, ...]


def export_program(subject: Subject, axes: Axes, rules: tuple[SizeRule, ...], trials: Trials) -> Validated | Objection:
    """Exports with the dynamic dimensions, or says in words why that cannot be."""
    if subject.scripted:
        return Objection("other", "torch.export does not take TorchScript")
    example = _traced_example(subject, axes, rules, trials)
    shapes = _dynamic_shapes(subject, axes, rules)
    error: Exception | None = None
    deferred = False
    first: Objection | None = None
    for _ in range(1 + _REFINEMENTS):
        try:
            return Validated(_export(subject, example, shapes, deferred), rules)
        except Exception as failure:
            error = failure
            coarser = _coarser(failure, axes, rules, functools.partial(_guards, subject, example, shapes))
            if coarser is not None:
                rules = coarser
                example, shapes = _traced_example(subject, axes, rules, trials), _dynamic_shapes(subject, axes, rules)
                continue
            objection = _serious(failure, axes, rules, functools.partial(_guards, subject, example, shapes))
            if objection is not None and objection.kind == "specialized" and first is None:
                first = objection
                example = _moved_example(subject, axes, rules, trials)
                continue
            if objection is not None:
                return first or objection
        if not deferred and _only_exceptions(str(error)):
            deferred = True
            continue
        try:
            shapes = refine_dynamic_shapes_from_suggested_fixes(str(error), shapes)
        except Exception:  # it has no fixes to suggest
            break
    assert error is not None
    return first or Objection("other", _told(error))


def _export(
    subject: Subject, example: Sequence[torch.Tensor], shapes: Any, deferred: bool = False
) -> torch.export.ExportedProgram:
    with computed_output_sizes(operator=True) as sized:
        program = torch.export.export(
            subject.module,
            tuple(example),
            dynamic_shapes=shapes,
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=deferred,
        )
    subject.sized = sized.count
    return program


def _only_exceptions(text: str) -> bool:
    """Whether torch.export only excludes single sizes ("!= 96"): where a kernel would do the same in another way.

    Such exclusions may become assertions, which the file does not have; the proof runs at the ends of the bounds.
    """
    bullets: list[str] = re.findall(r"^  - (.+)$", text, re.MULTILINE)
    return bool(bullets) and all(re.search(r" != \d+\.?$", line.strip()) for line in bullets)


def _traced_example(
    subject: Subject, axes: Axes, rules: Sequence[SizeRule], trials: Trials
) -> tuple[torch.Tensor, ...]:
    """Returns the example, enlarged where a size is so small that torch.export would take it for a constant."""
    sizes: dict[str, int] = {}
    for rule in rules:
        if rule.step and (rule.example - rule.offset) // rule.step < _ROOM:
            top = rule.offset + _ROOM * rule.step
            sizes[rule.name] = top if rule.max is None else max(min(top, rule.max), rule.example)
        else:
            sizes[rule.name] = rule.example
    sizes = with_tied(rules, sizes)
    if all(size == axes.example[name] for name, size in sizes.items()) or not trials.ok(sizes):
        return copies(subject.example)
    return random_inputs(subject.inputs, axes.shapes(subject.inputs, sizes), 0)


def _moved_example(subject: Subject, axes: Axes, rules: Sequence[SizeRule], trials: Trials) -> tuple[torch.Tensor, ...]:
    """Returns an example of other, lopsided sizes: `if height == width == trained` may hold for the first one only."""
    sizes = dict(axes.example)
    for number, rule in enumerate(rules):
        step = max(rule.step, 1)
        larger = rule.example + (number + 1) * -(-rule.example // (3 * step)) * step
        sizes[rule.name] = larger if rule.max is None or larger <= rule.max else max(rule.example - step, rule.min)
    sizes = with_tied(rules, sizes)
    if not trials.ok(sizes):
        return copies(subject.example)
    return random_inputs(subject.inputs, axes.shapes(subject.inputs, sizes), 0)


def _dynamic_shapes(subject: Subject, axes: Axes, rules: Sequence[SizeRule]) -> Any:
    if not axes.places:
        return None
    dims: dict[str, Any] = {}
    for number, rule in enumerate(rules):
        if rule.tied in dims and rule.tied is not None:
            tied = next(r for r in rules if r.name == rule.tied)
            shift = rule.example - tied.example
            dims[rule.name] = dims[rule.tied] + shift if shift else dims[rule.tied]
        elif not rule.baked:
            dims[rule.name] = _dim(number, rule)
    per_input = tuple(
        {axis: dims[name] for axis, name in enumerate(axes.names(i, len(each.shape))) if name in dims} or None
        for i, each in enumerate(subject.inputs)
    )
    # The adapter takes its tensors through one *parameter.
    return (per_input,) if isinstance(subject.module, Adapter) else per_input


def _dim(number: int, rule: SizeRule) -> Any:
    """Makes torch's expression for a rule: 8*Dim("d0") + 4."""
    clean = re.sub(r"\W", "_", rule.name)
    step = rule.step or 1
    if step == 1:
        # Sizes 0 and 1 are special to torch.export; it excludes them silently, and the proof tries them.
        return torch.export.Dim(f"d{number}_{clean}", min=max(rule.min, 1), max=rule.max)
    low = max((rule.min - rule.offset) // step, 1)
    high = None if rule.max is None else (rule.max - rule.offset) // step
    dim = step * torch.export.Dim(f"d{number}_{clean}", min=low, max=high)
    return dim + rule.offset if rule.offset else dim


def _serious(
    error: Exception, axes: Axes, rules: Sequence[SizeRule], watch: Callable[[], _GuardWatch]
) -> Objection | None:
    """Returns the objection that no refinement of the dimensions can answer, if the failure is one."""
    text = str(error)
    if "data-dependent" in text or "DataDependent" in type(error).__name__:
        return Objection("data", f"a branch or size depends on the values of a tensor, {_from(blame_exception(error))}")
    constants = re.findall(r"^\s+(\w+) = (\d+)$", text, re.MULTILINE)
    if constants:
        who = watch()
        said = [
            f"{_named(dim, rules)} is fixed to {size}: {_from(who.guilty(dim, rules, axes))}" for dim, size in constants
        ]
        return Objection("specialized", "; ".join(said))
    for dim, low, high in re.findall(r"^\s+(\w+) = Dim\('\w+'(?:, min=(\d+))?(?:, max=(\d+))?\)", text, re.MULTILINE):
        rule = _rule_of(dim, rules)
        if rule is None or not high or rule.asked is None or rule.step != 1 or int(high) >= rule.asked.max:
            continue
        who = watch()
        least = max(int(low or 1), rule.asked.min)
        return Objection(
            "narrowed",
            f"other code runs for some sizes: what is exported holds for {rule.name} from {least} to {high} only, "
            f"{_from(who.guilty(dim, rules, axes))}",
            {rule.name: int(high) + 1},
        )
    return None


def _coarser(
    error: Exception, axes: Axes, rules: tuple[SizeRule, ...], watch: Callable[[], _GuardWatch]
) -> tuple[SizeRule, ...] | None:
    """Returns rules with larger steps where torch.export asks for them ("h = 16*_h"), else None.

    The module runs at the sizes between too, but through other code, which the exported program does not have.
    """
    steps = {dim: int(step) for dim, step in re.findall(r"^\s+(\w+) = (\d+)\*_\1$", str(error), re.MULTILINE)}
    found = {rule.name: (step, dim) for dim, step in steps.items() if (rule := _rule_of(dim, rules)) is not None}
    if not any(
        rule.name in found and rule.step in (0, 1) and rule.example % found[rule.name][0] == 0 for rule in rules
    ):
        return None
    who = watch()
    changed = []
    for rule in rules:
        step, dim = found.get(rule.name, (1, ""))
        if step == 1 or rule.step not in (0, 1):
            changed.append(rule)
            continue
        top = None if rule.max is None else rule.max - rule.max % step
        low = max(rule.min + -rule.min % step, step)
        changed.append(
            dataclasses.replace(
                rule,
                step=step,
                offset=0,
                min=low,
                max=top,
                valid=None,
                blame=who.guilty(dim, rules, axes),
                remark=f"{rule.name} runs at sizes between too, but through other code, which the file does not have",
            )
        )
    return tuple(changed)


def _from(blame: Blame | None) -> str:
    return f"from {blame}" if blame is not None else "at a line that torch does not tell"


def _rule_of(dim: str, rules: Sequence[SizeRule]) -> SizeRule | None:
    match = re.match(r"_?_*d(\d+)_", dim)
    return rules[int(match[1])] if match and int(match[1]) < len(rules) else None


def _named(dim: str, rules: Sequence[SizeRule]) -> str:
    rule = _rule_of(dim, rules)
    return rule.name if rule is not None else dim


def _told(error: Exception) -> str:
    said = re.findall(r"^  - (.+)$", str(error), re.MULTILINE)
    text = "; ".join(line.strip() for line in said[:2])[:400] or first_line(error)
    blame = blame_exception(error)
    return f"{text} ({_from(blame)})" if blame is not None else text


class _GuardWatch(logging.Handler):
    """Hears torch.export add guards, while the line of Python that makes it do so is still on the stack."""

    def __init__(self) -> None:
        super().__init__()
        self.axes: dict[str, int] = {}
        self.guards: list[tuple[str, Blame]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        made = re.match(r"create_symbol (\w+) = \d+ for \S*\.size\(\)\[(\d+)\]", text)
        if made:
            self.axes[made[1]] = int(made[2])
        if text.startswith("eval ") and "[guard added]" in text:
            blame = blame_frame(sys._getframe(1))
            if blame is not None:
                self.guards.append((text[5:].partition(" [guard added]")[0], blame))

    def guilty(self, dim: str, rules: Sequence[SizeRule], axes: Axes) -> Blame | None:
        """Returns the line of the guard that limits a dimension: an equation first, else any."""
        rule = _rule_of(dim, rules)
        own = {axis for _, axis in axes.places[rule.name]} if rule is not None else set()
        symbols = {symbol for symbol, axis in self.axes.items() if axis in own}
        about = [(t, b) for t, b in self.guards if symbols & set(re.findall(r"\w+", t))] or self.guards
        equations = [blame for text, blame in about if text.startswith("Eq(")]
        return next(iter(equations or [blame for _, blame in about]), None)


def _guards(subject: Subject, example: Sequence[torch.Tensor], shapes: Any) -> _GuardWatch:
    """Exports once more, only to learn which line asked for which guard."""
    watch = _GuardWatch()
    with heard(_GUARD_LOGGER, watch), contextlib.suppress(Exception):
        _export(subject, example, shapes)
    return watch


def symbolic_inputs(program: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """Returns the shape of every user input of a program; dynamic sizes are symbols."""
    wanted = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in wanted]
    return [tuple(n.meta["val"].shape) for n in nodes if hasattr(n.meta.get("val"), "shape")]


def program_axes(program: torch.export.ExportedProgram) -> Iterator[tuple[int, int, str]]:
    """Yields input index, axis and symbol of every dynamic axis of a program."""
    for index, shape in enumerate(symbolic_inputs(program)):
        for axis, size in enumerate(shape):
            if not isinstance(size, int):
                yield index, axis, str(size)
