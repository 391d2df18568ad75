"""Trying a module at other sizes, cheaply: on the meta device, where tensors have shapes and no values.

An operation costs about the same there at every size, so that small inputs are tried faster with values.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trtconv.core.dims import Shape
from trtconv.core.documents.export import Blame
from trtconv.core.frozen import frozen
from trtconv.exporter.module.random_inputs import inputs_that_run
from trtconv.exporter.module.source_line import blame_exception, blame_frame
from trtconv.exporter.module.state import restored
from trtconv.exporter.module.torch_module import Subject, as_tuple
from trtconv.exporter.patches.causal_masks import masks_unseen
from trtconv.exporter.patches.control_flow import control_flow_chosen
from trtconv.exporter.patches.fake_quantize import without_fake_quantize
from trtconv.exporter.patches.meta_shapes import meta_shapes
from trtconv.exporter.request import Axes

SECONDS = 30.0
"""Processor time that all trials of a module may take."""
_HEAVY = 256 << 20
"""Bytes of weights that every trial with values would read, and one without does not."""
_EAGER_GROWTH = 8
"""How much larger than the example an eager trial's inputs may be."""
_FIRST_RUN = 2.0
"""How much longer than a second run the first at some size takes, about."""
Sizes = Mapping[str, int]


class TooExpensive(Exception):
    """A trial that is not worth its time; says nothing about the size."""


@frozen
class Ran:
    """A trial that succeeded: the outputs' shapes, and a hash of the operations that made them."""

    shapes: tuple[Shape, ...]
    path: int


class Trials:
    """Runs a subject at other sizes and remembers what came of it.

    Args:
        subject: The module.
        axes: Its dynamic dimensions.
    """

    def __init__(self, subject: Subject, axes: Axes) -> None:
        self.subject = subject
        self.axes = axes
        self._results: dict[tuple[int, ...], Ran | Exception] = {}
        self.meta = False
        self.exhausted = False
        self._spent = 0.0
        self._quick = 0.0
        self._accepts: Callable[[Sizes], bool] = axes.on_steps
        with contextlib.suppress(Exception):
            self._twin = _meta_twin(subject)
            path, started = Operations(), time.process_time()
            ran = self._on_meta(self._shapes({}), path)
            if ran == tuple(tuple(t.shape) for t in subject.expected):
                self.meta = True
                self._quick = self._eager_room(path, time.process_time() - started)

    def _eager_room(self, path: Operations, seconds: float) -> float:
        """Returns up to how many times the example's elements a trial is rather made with values.

        Args:
            path: What the module does on the meta device; it may do something else with values.
            seconds: What that takes.
        """
        if sum(weight.nbytes for weight in self.subject.module.parameters()) > _HEAVY:
            return 0.0
        own, started = Operations(), time.process_time()
        self._eager(self._shapes({}), own)
        spent = time.process_time() - started
        return seconds / spent / _FIRST_RUN if own.names == path.names else 0.0

    def narrowed(self, accepts: Callable[[Sizes], bool]) -> Trials:
        """Returns the same trials with further sizes refused: those that are not accepted."""
        same = copy.copy(self)
        own = self._accepts
        same._accepts = lambda sizes: own(sizes) and accepts(sizes)
        return same

    def runs(self) -> list[dict[str, int]]:
        """Returns the sizes at which the module has run."""
        names = list(self.axes.example)
        ran = [dict(zip(names, key, strict=True)) for key, result in self._results.items() if isinstance(result, Ran)]
        return [sizes for sizes in ran if self._accepts(sizes)]

    def _shapes(self, sizes: Sizes) -> tuple[Shape, ...]:
        return self.axes.shapes(self.subject.inputs, sizes)

    def _key(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes.get(name, example) for name, example in self.axes.example.items())

    def outputs(self, sizes: Sizes) -> tuple[Shape, ...]:
        """Returns the output shapes at some sizes.

        Raises:
            TooExpensive: The trial would cost too much.
            Exception: Whatever the module raises at these sizes.
        """
        return self._ran(sizes).shapes

    def path_or(self, sizes: Sizes, unknown: int) -> int:
        """Returns a number that is the same where the module runs through the same operations.

        Args:
            sizes: The sizes.
            unknown: The number where the module refuses them, or nothing is known.
        """
        try:
            return self._ran(sizes).path
        except Exception:  # whatever the module raises
            return unknown

    def _ran(self, sizes: Sizes) -> Ran:
        key = self._key(sizes)
        if key not in self._results:
            if self._spent > SECONDS:
                self.exhausted = True
                raise TooExpensive
            started = time.thread_time()
            try:
                self._results[key] = self._try(self._shapes(sizes))
            finally:
                self._spent += time.thread_time() - started
        result = self._results[key]
        if isinstance(result, Exception):
            raise result
        return result

    def _try(self, shapes: Sequence[Shape]) -> Ran | Exception:
        """Runs once; in eager mode, and from now on, where the meta device is what the module does not take."""
        path = Operations()
        try:
            return Ran((self._on_meta if self._prefers_meta(shapes) else self._eager)(shapes, path), path.hash())
        except TooExpensive:
            raise
        except Exception as error:
            if self.meta and _is_of_meta(error):
                self.leave_meta()
                return self._try(shapes)
            return error

    def _prefers_meta(self, shapes: Sequence[Shape]) -> bool:
        return self.meta and _elements(shapes) > self._quick * _elements([decl.shape for decl in self.subject.inputs])

    def leave_meta(self) -> None:
        """Tries in eager mode from now on, and forgets what was refused until now."""
        self.meta = False
        self._results.clear()

    def ok(self, sizes: Sizes) -> bool:
        """Whether the module runs at these sizes; True where the trial is too expensive to tell."""
        if not self._accepts(sizes):
            return False
        try:
            self._ran(sizes)
        except TooExpensive:
            return True
        except Exception:
            return False
        return True

    def has_run(self, sizes: Sizes) -> bool:
        """Whether the module runs at these sizes; False where the trial is too expensive to tell."""
        return self.ok(sizes) and isinstance(self._results.get(self._key(sizes)), Ran)

    def runs_eagerly(self, sizes: Sizes) -> bool:
        """Whether the module runs at these sizes with values; False where that is too expensive to tell."""
        try:
            self._eager(self._shapes(sizes), Operations())
        except Exception:
            return False
        return True

    def blame(self, sizes: Sizes) -> Blame | None:
        """Returns the line that refuses these sizes, None where none does."""
        try:
            self._ran(sizes)
        except TooExpensive:
            return None
        except Exception as error:
            return blame_exception(error)
        return None

    def parting(self, sizes: Sizes) -> Blame | None:
        """Returns the first line at which the module does something else at these sizes than at the example's."""
        paths = []
        for point in ({}, sizes):
            path = Operations(lines=True)
            with contextlib.suppress(Exception):
                (self._on_meta if self.meta else self._eager)(self._shapes(point), path)
            paths.append(path)
        for name, other, line, at in zip(paths[0].names, paths[1].names, paths[0].lines, paths[1].lines, strict=False):
            if name != other:
                return at or line
        longer = max(paths, key=lambda path: len(path.names))
        shorter = min(len(path.names) for path in paths)
        return longer.lines[shorter] if shorter < len(longer.lines) else None

    def _on_meta(self, shapes: Sequence[Shape], path: Operations) -> tuple[Shape, ...]:
        dtypes = [getattr(torch, decl.dtype) for decl in self.subject.inputs]
        inputs = [torch.empty(s, dtype=d, device="meta") for s, d in zip(shapes, dtypes, strict=True)]
        skipping = without_fake_quantize() if self.subject.fake_quantized else contextlib.nullcontext()
        contexts = (masks_unseen(), control_flow_chosen(), meta_shapes(), skipping, path)
        with torch.no_grad(), restored(self._twin), torch.device("meta"), contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            return tuple(tuple(tensor.shape) for tensor in as_tuple(self._twin(*inputs)))

    def _eager(self, shapes: Sequence[Shape], path: Operations) -> tuple[Shape, ...]:
        if not self.meta and _elements(shapes) > _EAGER_GROWTH * _elements([i.shape for i in self.subject.inputs]):
            raise TooExpensive
        contexts = (masks_unseen(), control_flow_chosen())
        with torch.no_grad(), restored(self.subject.module), _one_thread(), contexts[0], contexts[1], path:
            _, output_shapes = inputs_that_run(self.subject.inputs, shapes, 0, functools.partial(self._shapes_of, path))
            return output_shapes

    def _shapes_of(self, path: Operations, tensors: tuple[torch.Tensor, ...]) -> tuple[Shape, ...]:
        path.names.clear()
        path.lines.clear()
        return tuple(tuple(tensor.shape) for tensor in as_tuple(self.subject.module(*tensors)))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Runs what is small in one thread: several would wait for each other longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _elements(shapes: Sequence[Shape]) -> int:
    return sum(map(math.prod, shapes))


def _is_of_meta(error: Exception) -> bool:
    """Whether it is the meta device that a module does not take, and not the size."""
    return isinstance(error, NotImplementedError) or bool(re.search(r"\bmeta\b", str(error)))


class Operations(TorchFunctionMode):  # type: ignore[misc]
    """Notes the operations that make tensors.

    Args:
        lines: Note the user's lines too.
    """

    def __init__(self, lines: bool = False) -> None:
        super().__init__()
        self.names: list[str] = []
        self.lines: list[Blame | None] = []
        self._with_lines = lines

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor | tuple | list) and not isinstance(result, torch.Size):
            self.names.append(getattr(func, "__name__", "") or str(func))
            if self._with_lines:
                self.lines.append(blame_frame(sys._getframe(1)))
        return result

    def hash(self) -> int:
        """Returns one number for all of it."""
        return hash(tuple(self.names))


def _meta_twin(subject: Subject) -> torch.nn.Module:
    """Copies a module's structure; every tensor that it holds becomes one of the same shape without values.

    A twin, not a call with other parameters: what forward caches on the module must not reach the user's.
    """
    if subject.scripted:
        return _scripted_twin(subject.module)
    memo: dict[int, Any] = {}
    for module in subject.module.modules():
        tensors = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        for tensor in tensors:
            if isinstance(tensor, torch.nn.Parameter):
                memo[id(tensor)] = torch.nn.Parameter(torch.empty_like(tensor, device="meta"), requires_grad=False)
            elif isinstance(tensor, torch.Tensor):
                memo[id(tensor)] = torch.empty_like(tensor, device="meta")
    return copy.deepcopy(subject.module, memo)


def _scripted_twin(module: torch.nn.Module) -> torch.nn.Module:
    import io

    saved = io.BytesIO()
    torch.jit.save(module, saved)
    saved.seek(0)
    twin: torch.nn.Module = torch.jit.load(saved, map_location="meta")
    return twin
