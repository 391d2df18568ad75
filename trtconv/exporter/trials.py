"""Trying a module at other sizes, cheaply: on the meta device, where tensors have shapes and no values."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trtconv.core.dims import Shape
from trtconv.core.requests.export import Blame
from trtconv.exporter.request import Axes
from trtconv.exporter.source_line import blame_exception
from trtconv.exporter.torch_module import Subject, as_tuple, is_fake_quantize, random_inputs

SECONDS = 30.0
"""Processor time that all trials of a module may take."""
_EAGER_GROWTH = 8
"""How much larger than the example an eager trial's inputs may be."""
Sizes = Mapping[str, int]


class TooExpensive(Exception):
    """A trial that is not worth its time; says nothing about the size."""


class Trials:
    """Runs a subject at other sizes and remembers what came of it.

    Args:
        subject: The module.
        axes: Its dynamic dimensions.
    """

    def __init__(self, subject: Subject, axes: Axes) -> None:
        self.subject = subject
        self.axes = axes
        self._seen: dict[tuple[int, ...], tuple[Shape, ...] | Exception] = {}
        expected = tuple(tuple(t.shape) for t in subject.expected)
        self._run: Callable[[Sequence[Shape]], tuple[Shape, ...]] = self._eager
        self.meta = False
        self.exhausted = False
        self._spent = 0.0
        with contextlib.suppress(Exception):
            run = _meta_runner(subject)
            if run([each.shape for each in subject.inputs]) == expected:
                self._run, self.meta = run, True
        if expected:
            self._seen[self._key({})] = expected

    def _key(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes.get(name, example) for name, example in self.axes.example.items())

    def outputs(self, sizes: Sizes) -> tuple[Shape, ...]:
        """Returns the output shapes at some sizes.

        Raises:
            TooExpensive: The trial would cost too much.
            Exception: Whatever the module raises at these sizes.
        """
        key = self._key(sizes)
        if key not in self._seen:
            if self._spent > SECONDS:
                self.exhausted = True
                raise TooExpensive
            started = time.thread_time()
            try:
                self._seen[key] = self._run(self.axes.shapes(self.subject.inputs, sizes))
            except TooExpensive:
                raise
            except Exception as error:
                self._seen[key] = error
            finally:
                self._spent += time.thread_time() - started
        found = self._seen[key]
        if isinstance(found, Exception):
            raise found
        return found

    def ok(self, sizes: Sizes) -> bool:
        """Whether the module runs at these sizes; True where the trial is too expensive to tell."""
        try:
            self.outputs(sizes)
        except TooExpensive:
            return True
        except Exception:
            return False
        return True

    def blame(self, sizes: Sizes) -> Blame | None:
        """Returns the line that refuses these sizes, None where none does."""
        try:
            self.outputs(sizes)
        except TooExpensive:
            return None
        except Exception as error:
            return blame_exception(error)
        return None

    def _eager(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        largest = _EAGER_GROWTH * sum(math.prod(each.shape) for each in self.subject.inputs)
        if sum(math.prod(s) for s in shapes) > largest:
            raise TooExpensive
        results = self.subject.run(random_inputs(self.subject.inputs, shapes, 0))
        return tuple(tuple(t.shape) for t in results)


class _WithoutFakeQuantize(TorchFunctionMode):  # type: ignore[misc]
    """Leaves fake-quantisation out: it changes no shape, and has no implementation on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_fake_quantize(func) and args:
            return args[0].clone()
        return func(*args, **(kwargs or {}))


def _meta_runner(subject: Subject) -> Callable[[Sequence[Shape]], tuple[Shape, ...]]:
    """Returns a function from input shapes to output shapes that runs a twin of the module without weights."""
    twin = _meta_twin(subject)
    dtypes = [getattr(torch, each.dtype) for each in subject.inputs]

    def run(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        inputs = [torch.empty(s, dtype=d, device="meta") for s, d in zip(shapes, dtypes, strict=True)]
        with torch.no_grad(), torch.device("meta"), _WithoutFakeQuantize():
            return tuple(tuple(tensor.shape) for tensor in as_tuple(twin(*inputs)))

    return run


def _meta_twin(subject: Subject) -> torch.nn.Module:
    """Copies a module's structure; every tensor that it holds becomes one of the same shape without values.

    A twin, not a call with other parameters: what forward caches on the module must not reach the user's.
    """
    if subject.scripted:
        return _scripted_twin(subject.module)
    memo: dict[int, Any] = {}
    for module in subject.module.modules():
        held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        for tensor in held:
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
