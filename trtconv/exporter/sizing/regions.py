"""The sizes parted by what Python asks of them: within a region every question has the same answer, so one code runs.

What the module asked of its sizes while torch.export ran it, or else while it runs here with symbols for them, is
solved over all sizes of the rules at once, and it runs again at sizes that none of the regions has, until each size has
its region.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode

from trtconv.core.documents.export import Blame, SizeRule
from trtconv.exporter.module.state import restored
from trtconv.exporter.module.torch_module import as_tuple, example_at
from trtconv.exporter.patches.causal_masks import masks_unseen
from trtconv.exporter.patches.control_flow import control_flow_chosen
from trtconv.exporter.patches.fake_quantize import without_fake_quantize
from trtconv.exporter.patches.size_questions import size_questions
from trtconv.exporter.patches.size_reads import size_reads_asked
from trtconv.exporter.patches.time_limit import ExportTimeOver, limited
from trtconv.exporter.sizing.answers import places_of, region_of
from trtconv.exporter.sizing.grid import Grid
from trtconv.exporter.sizing.guards import environment_guards
from trtconv.exporter.sizing.region import Region, Sizes
from trtconv.exporter.sizing.trials import Trials

SECONDS = 20.0
"""Processor time for all regions of a module."""
_MOST = 48
"""Regions that are looked for."""
_FEW, _COVERED = 6, 0.05
"""After so many regions so large a part of all sizes is to have one, or no more are looked for."""
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


class Regions:
    """The regions of a module's sizes; all but the example's are looked for when they are asked for.

    Args:
        trials: The module's behaviour at other sizes.
        rules: The sizes that it takes, dimension by dimension.
        before: The regions of the same module by other rules; they, and the time that they took, count here too.
        seconds: Processor time to take at most.
        traced: The example's region, where torch.export told it.

    Attributes:
        seconds: Processor time that is left to look for more.
    """

    def __init__(
        self,
        trials: Trials,
        rules: Sequence[SizeRule],
        before: Regions | None = None,
        seconds: float = SECONDS,
        traced: Region | None = None,
    ) -> None:
        self.trials = trials
        self.rules = tuple(rules)
        self.seconds: float = min(seconds, SECONDS if before is None else before.seconds)
        self._candidates: list[Region] = [] if before is None else [*(before._members or before._candidates)]
        if traced is not None and not self._candidates:
            self._candidates = [traced]
        self._untold: bool = before is not None and before._untold
        self._members: list[Region] = []
        self._complete = False
        self._explored = not rules or trials.subject.scripted

    @property
    def members(self) -> Sequence[Region]:
        """The regions, the example's first."""
        self._explore()
        return self._members

    @property
    def complete(self) -> bool:
        """Whether each size that was looked at has a region."""
        self._explore()
        return self._complete

    def _explore(self) -> None:
        if self._explored:
            return
        self._explored = True
        grid, generator = Grid(self.rules), random.Random(0)
        rest = grid.everywhere()
        own = self._example_region()
        for region in self._candidates:
            if region is own or (region.mask(grid) & rest).any():
                self._add(grid, region, rest, generator)
        sizes = grid.sample(rest, generator) if own is not None else None
        while sizes is not None and len(self._members) < _MOST and self.seconds > 0:
            if len(self._members) >= _FEW and rest.mean() > 1 - _COVERED:
                return  # sizes that became constants: each is its own region
            new_region = self._region(sizes)
            if new_region is None:
                return
            if not self._add(grid, new_region, rest, generator, sizes).any():
                return  # a size that its own region does not have: what was asked is not all in the guards
            sizes = grid.sample(rest, generator)
        self._complete = own is not None and sizes is None

    def _example_region(self) -> Region | None:
        """Returns the example's region, None where it cannot be told."""
        if not (self._candidates or self._untold or self.trials.subject.scripted):
            region = self._region(self.trials.axes.example)
            self._candidates += [region] if region is not None else []
            self._untold = region is None
        return next(iter(self._candidates), None)

    def _add(
        self, grid: Grid, region: Region, rest: NDArray[np.bool_], generator: random.Random, start: Sizes | None = None
    ) -> NDArray[np.bool_]:
        """Adds a region; returns its sizes, which are taken out of those that had none."""
        inside = region.mask(grid) & rest
        rest &= ~inside
        example = self.trials.axes.example if not self._members else start
        samples = (example, grid.nearest(inside), grid.sample(inside, generator))
        distinct = tuple({tuple(s.items()): s for s in samples if s is not None}.values())
        self._members.append(dataclasses.replace(region, samples=distinct or region.samples))
        return inside

    def _region(self, sizes: Sizes) -> Region | None:
        """Runs the module with symbols at some sizes, on the time that is left; None where it does not run so."""
        started = time.process_time()
        try:
            return self._run(sizes, max(self.seconds, 1.0))
        finally:
            self.seconds -= time.process_time() - started

    def _run(self, sizes: Sizes, seconds: float) -> Region | None:
        subject, axes = self.trials.subject, self.trials.axes
        environment = ShapeEnv(
            specialize_zero_one=False, duck_shape=False, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
        )
        mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
        refused = False
        try:
            with limited(seconds):
                inputs, places = _symbolic(mode, axes, example_at(subject, axes, sizes))
                references = _remembered_numbers(mode, subject.module)
                skipping = without_fake_quantize() if subject.fake_quantized else contextlib.nullcontext()
                run = (torch.no_grad(), restored(subject.module), masks_unseen(), control_flow_chosen(), skipping)
                with contextlib.ExitStack() as stack:
                    questions = stack.enter_context(size_questions())
                    # Sizes that are read as text or as a key are asked for within, by the user's lines.
                    for context in (*run, mode, enable_python_dispatcher(), _Recurrent(), size_reads_asked()):
                        stack.enter_context(context)
                    as_tuple(subject.module(*inputs))
                del references
        except ExportTimeOver:
            return None
        except Exception:  # whatever the module or the fake tensors raise
            if self.trials.ok(sizes):
                return None
            refused = True
        guards = environment_guards(environment, set(places))
        region = None if refused else region_of(questions, guards, places)
        if region is not None:
            return region
        return Region(tuple(guard for guard in guards if guard.decides), places, refused)

    def is_examples(self, sizes: Sizes) -> bool:
        """Whether some sizes are in the example's region; no other is looked for."""
        own = self._example_region()
        return own is not None and own.takes({**self.trials.axes.example, **sizes})

    def of(self, sizes: Sizes) -> int:
        """Returns the number of the region that has some sizes, -1 where none has."""
        whole = {**self.trials.axes.example, **sizes}
        return next((number for number, region in enumerate(self.members) if region.takes(whole)), -1)

    def blame(self, sizes: Sizes) -> Blame | None:
        """Returns the line that parts sizes from the example's region."""
        region = self._example_region()
        guard = region.parting({**self.trials.axes.example, **sizes}) if region is not None else None
        return guard.blame if guard is not None else None

    def fixing(self) -> Blame | None:
        """Returns the line that makes a constant of a size, where one does."""
        guards = (guard for region in self.members for guard in region.guards)
        return next((guard.blame for guard in guards if guard.fixes and guard.blame is not None), None)

    def first(self, rules: Sequence[SizeRule], numbers: Collection[int]) -> Sizes | None:
        """Returns the sizes nearest to the example that some rules allow together, of those in some regions."""
        grid = Grid(rules)
        return grid.nearest(self._inside(grid, numbers))

    def without(self, rules: Sequence[SizeRule], numbers: Collection[int]) -> tuple[SizeRule, ...] | None:
        """Returns rules without the sizes of single dimensions that are always in some regions.

        None where that does not leave the regions out, a dimension has no bounds, or one has no size left.
        """
        grid = Grid(rules)
        inside, result = self._inside(grid, numbers), []
        for axis, rule in enumerate(rules):
            others = tuple(n for n in range(len(rules)) if n != axis)
            always = inside.all(axis=others)
            if not always.any():
                result.append(rule)
                continue
            sizes = [int(n) for n in grid.values[rule.name].ravel()[~always]]
            if grid.thinned or rule.max is None or rule.tied or rule.example not in sizes:
                return None
            new_rule = dataclasses.replace(rule, step=0, offsets=(), valid=tuple(sizes), min=sizes[0], max=sizes[-1])
            result.append(new_rule)
        return tuple(result) if self.first(result, numbers) is None else None

    def _inside(self, grid: Grid, numbers: Collection[int]) -> NDArray[np.bool_]:
        """Returns which sizes of a grid are in some regions."""
        rest, inside = np.ones(grid.shape, dtype=bool), np.zeros(grid.shape, dtype=bool)
        for number, region in enumerate(self.members):
            own = region.mask(grid) & rest
            rest &= ~own
            if number in numbers and not region.refused:
                inside |= own
        return inside


def _symbolic(mode: FakeTensorMode, axes: Any, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, str]]:
    """Returns inputs with symbols for their dynamic sizes, and which dimension each symbol stands for."""
    from torch._dynamo.source import ConstantSource

    fakes = []
    for index, tensor in enumerate(tensors):
        names = axes.names(index, tensor.dim())
        dynamic = [DimDynamic.STATIC if name is None else DimDynamic.DYNAMIC for name in names]
        context = StatelessSymbolicContext(dynamic_sizes=dynamic)
        fakes.append(mode.from_tensor(tensor, source=ConstantSource(f"input_{index}"), symbolic_context=context))
    return fakes, places_of(axes, [fake.shape for fake in fakes])


def _remembered_numbers(mode: FakeTensorMode, module: torch.nn.Module) -> list[Any]:
    """Lets Python read the buffers of one element, which no input decides, as long as nothing is written to them.

    Returns:
        What is to be kept while the mode is in use: it holds them weakly.
    """
    references = []
    for buffer in module.buffers():
        if buffer.numel() == 1 and type(buffer) is torch.Tensor:
            fake = mode.from_tensor(buffer)
            fake.constant = buffer.detach().clone()
            references.append(fake)
    return references


class _Recurrent(TorchFunctionMode):  # type: ignore[misc]
    """Gives recurrent networks their results' shapes: torch would take them apart step by step."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in _RECURRENT or not isinstance(args[2], list | tuple):
            return func(*args, **(kwargs or {}))
        x, states = args[0], args[1] if isinstance(args[1], list | tuple) else (args[1],)
        width = states[0].shape[-1] * (2 if args[7] else 1)
        return (x.new_empty((*x.shape[:-1], width)), *(state.new_empty(state.shape) for state in states))
