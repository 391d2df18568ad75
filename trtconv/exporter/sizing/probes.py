"""Unusual values for a module's inputs, on which a module that reads none of them runs through the same operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from trtconv.core.documents.export import UNKNOWN_LINE, Blame, Branch
from trtconv.exporter.module.torch_module import Subject
from trtconv.exporter.patches.causal_masks import masks_unseen
from trtconv.exporter.sizing.trials import Operations


def _once(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns what puts a value in one place: everywhere it would leave no number to compare a file by."""

    def put(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone(memory_format=torch.contiguous_format)
        changed.view(-1)[:1] = value
        return changed

    return put


_FLOATS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "negative values": lambda tensor: -tensor.abs() - 1,
    "large values": lambda tensor: tensor * 1e5,
    "NaN": _once(float("nan")),
    "an infinity": _once(float("inf")),
}
_WHOLE: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "large integers": lambda tensor: torch.full_like(tensor, 100),
}


def probes(subject: Subject) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Yields unusual values for each input in turn, the others as in the example, and what they are called."""
    for number, (decl, own) in enumerate(zip(subject.inputs, subject.example, strict=True)):
        kinds = _FLOATS if own.dtype.is_floating_point else _WHOLE
        for kind, change in kinds.items():
            tensors = list(subject.example)
            tensors[number] = change(own)
            yield f"{kind} in {decl.name}", tuple(tensors)


class OtherWay(NamedTuple):
    """Unusual values on which a module does something else, or may do so.

    Args:
        branch: Where.
        inputs: The values.
        by_operations: Whether it runs through other operations; else it writes values as text, and nobody follows that.
    """

    branch: Branch
    inputs: tuple[torch.Tensor, ...]
    by_operations: bool


def other_ways(subject: Subject) -> Iterator[OtherWay]:
    """Yields the unusual values on which a module may do something else; what it refuses to run on is none."""
    usual = None if subject.scripted else _operations(subject, subject.example)
    for name, tensors in probes(subject) if usual is not None else ():
        operations = _operations(subject, tensors)
        if usual is None or operations is None:
            continue
        if operations.names != usual.names:
            at, text = _parting(usual, operations) or UNKNOWN_LINE, f"runs other operations on {name}"
            if subject.text_blame not in (None, at):  # more likely what decides than what is decided
                text += f" ({subject.text_blame} writes values as text)"
            yield OtherWay(Branch(at, text), tensors, True)
        elif subject.text_blame is not None:
            branch = Branch(subject.text_blame, f"writes values as text, and computes something else on {name}")
            yield OtherWay(branch, tensors, False)


def _parting(one: Operations, other: Operations) -> Blame | None:
    """Returns the line of the first operation in which two runs differ."""
    at = next((n for n, (a, b) in enumerate(zip(one.names, other.names, strict=False)) if a != b), None)
    longer = max(one, other, key=lambda run: len(run.lines))
    return longer.lines[min(len(one.lines), len(other.lines)) if at is None else at]


def _operations(subject: Subject, tensors: tuple[torch.Tensor, ...]) -> Operations | None:
    path = Operations(lines=True)
    try:
        with torch.random.fork_rng(devices=[]), masks_unseen(), path:
            torch.manual_seed(0)
            subject.run(tensors)
    except Exception:  # whatever the module raises
        return None
    return path
