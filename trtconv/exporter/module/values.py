"""What a module takes out of its tensors into Python: a trace keeps it as a constant, torch.export refuses it.

A number that the input's values decide may be neither; one that they do not (a buffer, a size that went through a
tensor, a permutation) may be a constant.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trtconv.core.documents.export import Blame
from trtconv.core.frozen import frozen
from trtconv.exporter.module.source_line import blame_frame
from trtconv.exporter.module.torch_module import Subject, random_inputs

_SCALES = (1.0, 0.01, 100.0)
_TAKERS = frozenset({"tolist", "numpy", "__array__", "equal", "allclose", "is_nonzero", "__contains__"})
"""Functions with a tensor for argument that give Python a value without an operator that says so."""
_OPERATORS = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"})


@frozen
class Taken:
    """A value that a module took out of a tensor."""

    value: str
    at: Blame | None


class Recorder:
    """Notes, while it is entered, every value that is taken out of a tensor, in order."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self._modes = (_Functions(self), _Operators(self))

    def note(self, value: Any) -> None:
        """Adds a value, with the line that asks for it."""
        text = value.tobytes().hex() if hasattr(value, "tobytes") else repr(value)
        self.taken.append(Taken(text, blame_frame(sys._getframe(2))))

    def __enter__(self) -> Recorder:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _TAKERS:
            self._recorder.note(result)
        return result


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _OPERATORS:
            self._recorder.note(result)
        return result


def depends_on_values(subject: Subject) -> Blame | str | None:
    """Tells whether Python sees something of the values of a module's inputs.

    The module runs in eager mode at the example's size, on inputs of several magnitudes.

    Returns:
        The line that takes the first value that differs between them, or words where there is no line; None where
        every value that is taken out of a tensor is the same each time.
    """
    runs = [taken for scale in _SCALES if (taken := _record(subject, scale)) is not None]
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=False):
            if a.value != b.value:
                return b.at or a.at or "a line that torch does not tell"
        if len(runs[0]) != len(other):
            extra = (*runs[0], *other)[min(len(runs[0]), len(other))]
            return extra.at or "a line that torch does not tell"
    return None


def draws_random(subject: Subject) -> Blame | str | None:
    """Tells whether two runs on the same inputs differ by the random numbers that forward draws.

    Returns:
        The line that draws the first, or words where there is no line; None where the runs are alike.
    """
    runs = []
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 1):
            torch.manual_seed(seed)
            with _Draws() as draws:
                runs.append(subject.run(subject.example))
    if all(torch.equal(a, b) for a, b in zip(*runs, strict=True)) or not draws.seen:
        return None
    return draws.at or "a line that torch does not tell"


class _Draws(TorchFunctionMode):  # type: ignore[misc]
    """Notes the first line that draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False
        self.at: Blame | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = None if self.seen else torch.random.default_generator.get_state()
        result = func(*args, **(kwargs or {}))
        if before is not None and not torch.equal(before, torch.random.default_generator.get_state()):
            self.seen, self.at = True, blame_frame(sys._getframe(1))
        return result


def _record(subject: Subject, scale: float) -> Sequence[Taken] | None:
    """Runs once; None where the module does not take inputs of that magnitude."""
    shapes = [each.shape for each in subject.inputs]
    tensors = random_inputs(subject.inputs, shapes, round(100 * scale), scale)
    recorder = Recorder()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            with recorder:
                subject.run(tensors)
        except Exception:  # a check of its own: such inputs are none for it
            return None
    return recorder.taken
