"""What Python reads of the values of a module's inputs: a trace keeps it as a constant, whatever the next input is.

A value that the inputs' do not decide (a buffer's, a size that went through a tensor) may be a constant.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from trtconv.core.documents.export import UNKNOWN_LINE, Blame, Branch
from trtconv.exporter.module.source_line import blame_frame, is_users
from trtconv.exporter.module.statements import NextLine, with_sides
from trtconv.exporter.module.taint import Taint, tensors_in
from trtconv.exporter.module.torch_module import TEXTS, Subject
from trtconv.exporter.patches.causal_masks import masks_unseen

_TAKERS = frozenset({"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "tensor"})
"""Functions that hand values on without an operator that says so; `torch.tensor([t])` is a constant in a trace."""
_SIZES = frozenset({"size", "numel", "nelement", "__len__"})
_SHAPE = torch.Tensor.shape.__get__
_FOLLOWED = ("/torch/nn/modules/rnn.py", "/torch/nn/utils/rnn.py")
"""Code of torch that reads lengths only to check them: the exporters know packed sequences."""


class Reader(TorchFunctionMode):  # type: ignore[misc]
    """Notes, while it is entered, each value of tensors that depend on the sources and that Python reads.

    Args:
        sources: Tensors, as a module gets them.
    """

    def __init__(self, sources: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._taint = Taint(sources)
        self._sized = WeakIdKeyDictionary()
        self.branches: list[Branch] = []
        self._next: list[tuple[int, NextLine]] = []

    def __enter__(self) -> Reader:
        super().__enter__()
        self._taint.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._taint.__exit__(*error)
        super().__exit__(*error)
        for number, after in self._next:
            after.stop()
            self.branches[number] = with_sides(self.branches[number], after)

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before, self._taint.sized = self._taint.reads, False
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in TEXTS:
            return result
        reads = self._taint.reads > before
        gives_tensors = any(True for _ in tensors_in(result))
        # An operator in C++ that takes a tensor for a number (`torch.arange(n)`) is followed by the exporters.
        in_python = reads and (isinstance(func, types.FunctionType) or not gives_tensors)
        if in_python or (name in _TAKERS and self._taint.holds((args, kwargs))):
            self.note(result)
        elif func == _SHAPE or name in _SIZES:
            return self._seen_size(args[0], name, result) if args and args[0] in self._sized else result
        elif reads or self._taint.sized or self._grows_of((args, kwargs)):
            for tensor in tensors_in(result):
                if tensor.dim():
                    self._sized[tensor] = True
        return result

    def _grows_of(self, arguments: Any) -> bool:
        return bool(self._sized) and any(tensor in self._sized for tensor in tensors_in(arguments))

    def _seen_size(self, tensor: torch.Tensor, name: str, size: Any) -> Any:
        if name == "__len__":
            self.note(size)
            return size
        if isinstance(size, tuple):
            return torch.Size([ReadSize.of(n, self) for n in size])
        return ReadSize.of(size, self)

    def note(self, value: Any) -> None:
        """Adds a value, with the line that reads it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_users(frame.f_code.co_filename):
            if frame.f_code.co_filename.endswith(_FOLLOWED):
                return
            frame = frame.f_back
        text = repr(value) if isinstance(value, bool | int | float) else f"a {type(value).__name__}"
        at = blame_frame(frame) or UNKNOWN_LINE
        self.branches.append(Branch(at, f"reads {text}", truth=value if isinstance(value, bool) else None))
        if frame is not None:
            self._next.append((len(self.branches) - 1, NextLine(frame)))


class ReadSize(int):
    """A size that values decide: a comparison with it is a branch on values."""

    _reader: Reader

    @classmethod
    def of(cls, value: Any, reader: Reader) -> Any:
        """Returns a number as such a size; what is no whole number as it is."""
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        size = cls(value)
        size._reader = reader
        return size


def _computing(name: str) -> Any:
    plain = getattr(int, name)

    def compute(self: ReadSize, *others: Any) -> Any:
        return ReadSize.of(plain(self, *others), self._reader)

    return compute


def _deciding(name: str) -> Any:
    plain = getattr(int, name)

    def decide(self: ReadSize, *others: Any) -> Any:
        answer = plain(self, *others)
        self._reader.note(answer)
        return answer

    return decide


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "neg"):
    setattr(ReadSize, f"__{_name}__", _computing(f"__{_name}__"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "bool"):
    setattr(ReadSize, f"__{_name}__", _deciding(f"__{_name}__"))
ReadSize.__hash__ = int.__hash__  # type: ignore[method-assign]


def value_branches(subject: Subject, tensors: Sequence[torch.Tensor] | None = None) -> tuple[Branch, ...]:
    """Runs a module once and returns where Python reads values that its inputs decide, once for each line.

    Args:
        subject: The module.
        tensors: Its inputs; default: the example.

    Returns:
        The places in order; empty for TorchScript, which keeps both sides of its branches.
    """
    if subject.scripted:
        return ()
    sources = [tensor.clone() for tensor in (subject.example if tensors is None else tensors)]
    with torch.random.fork_rng(devices=[]), masks_unseen(), Reader(sources) as reader:
        torch.manual_seed(0)
        with contextlib.suppress(Exception):  # what it does on its example was seen before
            subject.run(sources)
    return tuple({branch.at: branch for branch in reversed(reader.branches)}.values())[::-1]


def caught_error(subject: Subject, tensors: Sequence[torch.Tensor]) -> Blame | None:
    """Returns the line of an operation that fails where the module goes on; None where there is none."""
    with torch.random.fork_rng(devices=[]), masks_unseen(), _Failures() as failures:
        subject.run(tensors)
    blame: Blame | None = failures.at
    return blame


class _Failures(TorchFunctionMode):  # type: ignore[misc]
    """Notes the first line whose operation raises."""

    def __init__(self) -> None:
        super().__init__()
        self.at: Blame | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            self.at = self.at or blame_frame(sys._getframe(1)) or UNKNOWN_LINE
            raise


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
    if all(torch.equal(a, b) for a, b in zip(*runs, strict=True)) or not draws.has_drawn:
        return None
    return draws.at or "a line that torch does not tell"


class _Draws(TorchFunctionMode):  # type: ignore[misc]
    """Notes the first line that draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.has_drawn = False
        self.at: Blame | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = None if self.has_drawn else torch.random.default_generator.get_state()
        result = func(*args, **(kwargs or {}))
        if before is not None and not torch.equal(before, torch.random.default_generator.get_state()):
            self.has_drawn, self.at = True, blame_frame(sys._getframe(1))
        return result
