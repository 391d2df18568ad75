"""Parts exported one by one, then joined: each is right by itself, and all of them together are held to PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trtconv.core.dims import Range, Shape
from trtconv.core.documents.export import SizeRule
from trtconv.core.errors import ExportFailed, InputError
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.suggest import did_you_mean
from trtconv.exporter.file import join
from trtconv.exporter.file.candidates import best_draft, settled
from trtconv.exporter.file.judging import compared, labelled
from trtconv.exporter.inputs import AxisNames, InputDecl
from trtconv.exporter.job import Draft, Job, interface_of
from trtconv.exporter.module.torch_module import Adapter, as_tuple, prepare, refuse_train_mode
from trtconv.exporter.parts import ExportPart, OutputOf
from trtconv.exporter.patches.torch_quiet import quiet_torch
from trtconv.exporter.request import Axes, ExportOptions, plan_axes
from trtconv.exporter.sizing.sizes import find_rules
from trtconv.exporter.sizing.trials import TooExpensive, Trials

_JOINED = "the parts' files joined"


@dataclasses.dataclass
class ExportedPart:
    """A part that was exported.

    Args:
        part: The part.
        job: Its export; inputs and outputs are called as in the whole pipeline.
        draft: Its file.
    """

    part: ExportPart
    job: Job
    draft: Draft

    def shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape] | None:
        """Returns the shapes of its outputs where its inputs have some shapes; None where its file takes none such.

        Raises:
            TooExpensive: That cannot be tried.
        """
        own: dict[str, int] = {}
        for name, places in self.job.axes.places.items():
            sizes = {shapes[self.job.subject.inputs[index].name][axis] for index, axis in places}
            if len(sizes) > 1:
                return None
            own[name] = sizes.pop()
        if not all(rule.takes(own[rule.name]) for rule in self.job.rules):
            return None
        return dict(zip(self.job.subject.outputs, self.job.trials.outputs(own), strict=True))


class Chain(torch.nn.Module):  # type: ignore[misc]
    """All parts as one module.

    Args:
        links: The parts.
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs.
    """

    def __init__(self, links: Sequence[ExportedPart], inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(link.job.subject.module for link in links)
        self.reads = [[decl.name for decl in link.job.subject.inputs] for link in links]
        self.makes = [list(link.job.subject.outputs) for link in links]
        self.inputs, self.outputs = list(inputs), list(outputs)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs the parts one after the other."""
        values = dict(zip(self.inputs, tensors, strict=True))
        for module, reads, makes in zip(self.parts, self.reads, self.makes, strict=True):
            values |= zip(makes, as_tuple(module(*(values[name] for name in reads))), strict=True)
        return tuple(values[name] for name in self.outputs)


class Chaining:
    """Exports parts, each with what the earlier ones make of their examples and sizes.

    Args:
        options: What was asked.
        dims: Dimension name to its bounds.
        clock: Times the stages.
        folder: Where files may lie while they are made.
    """

    def __init__(self, options: ExportOptions, dims: Mapping[str, Range], clock: Stopwatch, folder: Path) -> None:
        self.options, self.dims, self.clock, self.folder = options, dict(dims), clock, folder
        self.links: list[ExportedPart] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.axes: dict[str, AxisNames] = {}
        self.parameters: list[str] = []
        self._derived: dict[tuple[str, str], str] = {}

    def add(self, part: ExportPart, translations: Mapping[Any, Any]) -> None:
        """Exports a part.

        Raises:
            InputError: It does not fit those before it, or does not run.
            ExportFailed: It cannot be exported.
        """
        names = [self._input(part, parameter, value) for parameter, value in part.inputs.items()]
        inputs = tuple(
            InputDecl(name, tuple(self.tensors[name].shape), str(self.tensors[name].dtype).removeprefix("torch."))
            for name in names
        )
        if isinstance(part.module, torch.nn.Module):
            refuse_train_mode(part.module)
        with self.clock.stage(Stage.RUN):
            module = Adapter(part.module, tuple(part.inputs)).eval()
            subject = prepare(module, inputs, part.outputs, tuple(self.tensors[name] for name in names))
        subject.outputs = tuple(f"{part.name}.{name}" for name in subject.outputs)
        bounds = {
            name: bound
            for name, bound in self.dims.items()
            if any(name in self.axes[input_name] for input_name in names)
        }
        axes = plan_axes(inputs, {name: self.axes[name] for name in names}, bounds, self.options.static)
        with self.clock.stage(Stage.SIZES), quiet_torch():
            trials = Trials(subject, axes)
            rules = find_rules(trials)
        folder = self.folder / part.name
        folder.mkdir()
        job = Job(subject, axes, trials, rules, self.options, self.clock, folder, translations=translations)
        link = ExportedPart(part, job, best_draft(job))
        self.links.append(link)
        self._learn(link)

    def _input(self, part: ExportPart, parameter: str, value: Any) -> str:
        """Returns the name that an input of a part has in the whole, and learns its example and axes."""
        own = part.dynamic.get(parameter)
        if isinstance(value, OutputOf):
            name = self._output_name(part, value)
            if own is not None:
                self._name_axes(part, name, tuple(own))
            return name
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{part.name}: {parameter} is no tensor", "Give an example, or trtconv.OutputOf(...).")
        axes: AxisNames = tuple(own) if own is not None else (None,) * value.dim()
        if len(axes) != value.dim():
            raise InputError(f"{part.name}: {parameter} has {value.dim()} axes, not {len(axes)}", "Name each of them.")
        if parameter not in self.tensors:
            self.tensors[parameter], self.axes[parameter] = value, axes
            self.parameters.append(parameter)
        same = self.tensors[parameter]
        if (same.shape, same.dtype) != (value.shape, value.dtype) or (own is not None and self.axes[parameter] != axes):
            raise InputError(
                f"{part.name}: {parameter} is another input than in an earlier part", "Rename one of them."
            )
        return parameter

    def _output_name(self, part: ExportPart, flow: OutputOf) -> str:
        owner = flow.tensor.partition(".")[0]
        outputs = next(link.job.subject.outputs for link in self.links if link.part.name == owner)
        if flow.tensor == owner and len(outputs) == 1:
            return outputs[0]
        if flow.tensor not in outputs:
            raise InputError(
                f"{part.name}: {owner} makes no {flow.tensor!r}",
                did_you_mean(flow.tensor, list(outputs), f"It makes {', '.join(outputs)}."),
            )
        return flow.tensor

    def _name_axes(self, part: ExportPart, name: str, axes: AxisNames) -> None:
        """Takes the user's names for the axes of what an earlier part makes."""
        before = self.axes[name]
        if len(axes) != len(before):
            raise InputError(f"{part.name}: {name} has {len(before)} axes, not {len(axes)}", "Name each of them.")
        for old, new in zip(before, axes, strict=True):
            if old is not None and new is not None and old != new and old in self._derived.values():
                self.dims |= {new: self.dims[old]} if old in self.dims else {}
                self.axes = {key: tuple(new if axis == old else axis for axis in own) for key, own in self.axes.items()}
                self._derived = {key: new if axis == old else axis for key, axis in self._derived.items()}
            elif old != new:
                raise InputError(f"{part.name}: an axis of {name} is {old or 'static'}, not {new}", "Name it as it is.")

    def _learn(self, link: ExportedPart) -> None:
        """Learns examples, axes and bounds of what a part makes."""
        _, outputs = interface_of(link.job, link.job.rules)
        low, high = (self._sizes_at(link, end) for end in (min, max))
        for index, (name, tensor) in enumerate(zip(link.job.subject.outputs, link.job.subject.expected, strict=True)):
            self.tensors[name] = tensor
            axes: list[str | None] = []
            for axis, dim in enumerate(outputs[name]):
                if isinstance(dim, int):
                    axes.append(None)
                    continue
                is_known = any(dim in own for own in self.axes.values())
                fresh = f"{name.replace('.', '_')}_{axis}"
                axes.append(dim if is_known else self._derived.setdefault((link.part.name, dim), fresh))
                if low is not None and high is not None and low[index][axis] < high[index][axis]:
                    self.dims.setdefault(str(axes[-1]), Range(low[index][axis], tensor.shape[axis], high[index][axis]))
            self.axes[name] = tuple(axes)

    def _sizes_at(self, link: ExportedPart, end: Callable[[tuple[int, int]], int]) -> tuple[Shape, ...] | None:
        """Returns the shapes of a part's outputs at one end of all its bounds, None where that cannot be tried.

        A size without bounds stays as in the example; an axis that follows it too has no bounds to be known.
        """
        sizes = {rule.name: end((rule.min, rule.max)) for rule in link.job.rules if rule.asked and rule.max is not None}
        try:
            return link.job.trials.outputs(sizes)
        except Exception:  # too expensive, or refused together
            return None

    def whole(self) -> tuple[Job, Draft]:
        """Joins the files of all parts, and holds the result to all modules, one after the other.

        Raises:
            ExportFailed: Together they differ from PyTorch, or do not take the bounds that were asked for.
        """
        sources = {name for link in self.links for name in (decl.name for decl in link.job.subject.inputs)}
        outputs = [name for link in self.links for name in link.job.subject.outputs if name not in sources]
        chain = Chain(self.links, self.parameters, outputs).eval()
        tensors = tuple(self.tensors[name] for name in self.parameters)
        inputs = tuple(
            InputDecl(name, tuple(t.shape), str(t.dtype).removeprefix("torch."))
            for name, t in zip(self.parameters, tensors, strict=True)
        )
        with self.clock.stage(Stage.RUN):
            subject = prepare(chain, inputs, outputs, tensors)
        by_input = {name: self.axes[name] for name in self.parameters}
        bounds = {name: bound for name, bound in self.dims.items() if any(name in axes for axes in by_input.values())}
        axes = plan_axes(inputs, by_input, bounds, self.options.static)
        with self.clock.stage(Stage.SIZES), quiet_torch():
            alone = Trials(subject, axes)
            trials = alone.narrowed(
                lambda sizes: self._refusing(axes.shapes(inputs, {**axes.example, **sizes})) is None
            )
            rules = find_rules(trials)
            for full, rule in zip(find_rules(alone), rules, strict=True):
                self._refuse_lost_end(full, rule, inputs, axes)
        job = Job(subject, axes, trials, rules, self.options, self.clock, self.folder)
        proto = join.joined({link.part.name: link.draft for link in self.links}, outputs)
        labelled(job, proto, _JOINED, rules)
        return job, settled(job, compared(job, _JOINED, axes.example, proto, self.folder / "whole.onnx"))

    def _refuse_lost_end(self, full: SizeRule, rule: SizeRule, inputs: Sequence[InputDecl], axes: Axes) -> None:
        """Raises where the file of a part loses an end of the bounds that were asked for, which its module takes."""
        for end, own in ((full.min, rule.min), (full.max, rule.max)):
            if full.asked is None or end is None or own is None or abs(end - own) < max(rule.step, full.step, 1):
                continue
            link = self._refusing(axes.shapes(inputs, {**axes.example, full.name: end}))
            lines = [] if link is None else [r.narrowed or r.blame for r in link.job.rules if r.narrowed or r.blame]
            where = f" of part {link.part.name}" if link is not None else ""
            line = f", from {lines[0]}" if lines else ""
            raise ExportFailed(
                f"the file{where} holds for {full.name} from {rule.min} to {rule.max} only{line}",
                f"Narrow --dim {full.name}, or take the branch out of forward.",
            )

    def _refusing(self, shapes: Sequence[Shape]) -> ExportedPart | None:
        """Returns the first part whose file does not take what flows where the inputs have some shapes."""
        all_shapes: dict[str, Shape] = dict(zip(self.parameters, shapes, strict=True))
        for link in self.links:
            try:
                outputs = link.shapes(all_shapes)
            except TooExpensive:
                return None
            except Exception:  # whatever the module raises there
                return link
            if outputs is None:
                return link
            all_shapes |= outputs
        return None
