"""Inputs for a module: seeded random tensors, of values that it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from trtconv.core.dims import Shape
from trtconv.exporter.inputs import InputDecl

Result = TypeVar("Result")
_SIZES_TRIED = 3
"""Sizes that are tried as values of an integer input."""


def random_inputs(inputs: Sequence[InputDecl], shapes: Sequence[Shape], seed: int) -> tuple[torch.Tensor, ...]:
    """Returns seeded random tensors: normal floats, integers of the values that were declared, else of 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for decl, shape in zip(inputs, shapes, strict=True):
        dtype: torch.dtype = getattr(torch, decl.dtype)
        if dtype.is_floating_point:
            tensors.append(torch.randn(shape, generator=generator).to(dtype))
        else:
            low, top = (0, 1) if decl.values is None else (decl.values.low, decl.values.top(shapes))
            tensors.append(torch.randint(low, top + 1, shape, generator=generator).to(dtype))
    return tuple(tensors)


def inputs_that_run(
    inputs: Sequence[InputDecl], shapes: Sequence[Shape], seed: int, run: Callable[[tuple[torch.Tensor, ...]], Result]
) -> tuple[tuple[torch.Tensor, ...], Result]:
    """Returns random inputs on which something runs, and what it gives.

    Integers whose values nobody declared may be lengths, indices or sizes: that a module refuses a value says nothing
    of the inputs' sizes, so others are tried.

    Raises:
        Exception: What the first raises, where none runs.
    """
    first = random_inputs(inputs, shapes, seed)
    try:
        return first, run(first)
    except Exception:
        for tensors in _other_values(inputs, shapes, first):
            with contextlib.suppress(Exception):
                return tensors, run(tensors)
        raise


def _other_values(
    inputs: Sequence[InputDecl], shapes: Sequence[Shape], tensors: tuple[torch.Tensor, ...]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yields inputs whose undeclared integers are all 1, all 0, and all the size of a dimension."""
    open_ = [not t.dtype.is_floating_point and decl.values is None for decl, t in zip(inputs, tensors, strict=True)]
    if any(open_):
        sizes = sorted({size for shape in shapes for size in shape} - {0, 1})
        for value in (1, 0, *sizes[:_SIZES_TRIED]):
            yield tuple(torch.full_like(t, value) if free else t for t, free in zip(tensors, open_, strict=True))
