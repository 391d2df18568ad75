"""Eager PyTorch against ONNX Runtime, at the example's size and at further ones."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trtconv.core.dims import Shape, times
from trtconv.core.documents.export import Blame, Proof, ProofRun, SizeRule
from trtconv.exporter.file.running import NotLoaded, Running, Weights, run_file
from trtconv.exporter.module.random_inputs import inputs_that_run
from trtconv.exporter.module.source_line import first_line
from trtconv.exporter.module.torch_module import Subject
from trtconv.exporter.request import Axes
from trtconv.exporter.sizing.sizes import size_at, with_tied
from trtconv.exporter.sizing.trials import Trials
from trtconv.runtimes.compare import relative_error, same_network

FURTHER = 4
_WAYS = 6
"""Ways through the module that are tried beyond those."""
_ENDS = 2
"""The first of those are the ends of the ranges, rounded sizes more often than not; others are made uneven."""
_GROWTH = 16
"""How many times the example's elements a proof's inputs have at most."""
_DRAWS, _APART = 4, 10_007
"""How often inputs are drawn where PyTorch's own outputs are not stable, and how far apart the seeds are."""
_NUDGES, _NUDGE, _AS_MUCH = 3, 8, 4
"""How often inputs are nudged, by how many units of rounding, and how many times as far the file may be off."""


def tolerance(subject: Subject, quantized: bool) -> float:
    """Returns the tolerance for a subject, by its coarsest type."""
    types = {str(t.dtype).removeprefix("torch.") for t in (*subject.module.parameters(), *subject.example)}
    return same_network(types, quantized)


class Route(NamedTuple):
    """One way through the module, as far as it can be told; files are compared at sizes of each.

    Args:
        suspicious: Whether it is not the way that was traced, by what the user's lines say.
        violated: What the traced code relies on and does not hold there.
        path: Its operations.
        blame: The user's line that parts it from the traced way, where it is known.
    """

    suspicious: bool
    violated: frozenset[int]
    path: int
    blame: Blame | None


RouteOf = Callable[[Mapping[str, int]], Route]


def proof_sizes(
    subject: Subject, axes: Axes, rules: Sequence[SizeRule], trials: Trials, route: RouteOf, blind: bool = False
) -> list[Mapping[str, int]]:
    """Returns the sizes to compare at.

    They are the example, uneven ones beside it, the smallest, a lopsided and the largest affordable ones, then one for
    each way through the module that the trials have met, those that are met most first. Where the ways cannot be told
    apart, sizes as far from the example as can be had come too.
    """
    result: list[Mapping[str, int]] = [dict(axes.example)]
    for sizes in _candidates(subject, axes, rules):
        if sizes not in result and trials.ok(sizes):
            result.append(sizes)
        if len(result) == 1 + FURTHER:
            break
    ways: dict[Route, list[Mapping[str, int]]] = {}
    for sizes in trials.runs():
        if all(rule.takes(sizes[rule.name]) for rule in rules) and affordable(subject, axes, sizes):
            ways.setdefault(route(sizes), []).append(sizes)
    covered = {route(sizes) for sizes in result}
    new = [way for way in ways if way not in covered]
    new.sort(key=lambda way: (way.suspicious, len(ways[way]), _distance(axes, ways[way][0])), reverse=True)
    result += [ways[way][0] for way in new[:_WAYS]]
    far = (
        sorted(itertools.chain.from_iterable(ways.values()), key=lambda sizes: -_distance(axes, sizes)) if blind else []
    )
    return [*result, *[sizes for sizes in far if sizes not in result][:_WAYS]]


def _distance(axes: Axes, sizes: Mapping[str, int]) -> int:
    """Returns how far sizes are from the example's: thresholds are rather met far away."""
    return max((abs(size - axes.example[name]) for name, size in sizes.items()), default=0)


def affordable(subject: Subject, axes: Axes, sizes: Mapping[str, int]) -> bool:
    """Whether inputs of some sizes are small enough to be compared at without a special reason."""
    limit = _GROWTH * sum(math.prod(decl.shape) for decl in subject.inputs)
    return sum(math.prod(s) for s in axes.shapes(subject.inputs, sizes)) <= limit


def _candidates(subject: Subject, axes: Axes, rules: Sequence[SizeRule]) -> Iterator[Mapping[str, int]]:
    if not rules:
        return
    beside = {rule.name: _uneven(rule, rule.example + 2 * n * rule.step) for n, rule in enumerate(rules)}
    yield with_tied(rules, beside)
    tops = [(0.0, 1), (1.0, 2), (1.0, 4), (0.5, 1), (1.0, 1), (0.25, 2), (0.75, 1)]
    for turn, (share, factor) in enumerate(tops):
        sizes = {}
        for number, rule in enumerate(rules):
            # Every other dimension goes the other way, so that height and width differ.
            own = share if share in (0.0,) or (number + turn) % 2 else max(share - 0.5, 0.0)
            size = size_at(rule, own, max(factor * rule.example, rule.example + 2 * max(rule.step, 1)))
            sizes[rule.name] = size if turn < _ENDS else _uneven(rule, size)
        sizes = with_tied(rules, sizes)
        if affordable(subject, axes, sizes):
            yield sizes


def _uneven(rule: SizeRule, size: int) -> int:
    """Returns a valid size near one, an odd number of steps from the example: with it, halves are seen to be halves."""
    near = (size + sign * k * max(rule.step, 1) for k in range(1 + _ENDS) for sign in (1, -1))
    odd = (n for n in near if rule.takes(n) and (n - rule.example) // max(rule.step, 1) % 2)
    return next(odd, size if rule.takes(size) else rule.example)


def prove(path: Path, subject: Subject, axes: Axes, sizes: Sequence[Mapping[str, int]], limit: float) -> Proof:
    """Runs both at every size.

    Args:
        path: The ONNX file.
        subject: What was exported.
        axes: Its dynamic dimensions.
        sizes: Sizes to compare at.
        limit: Largest relative error that passes.

    Returns:
        What came of each run. A run that ONNX Runtime refuses where PyTorch does not counts as an infinite error, and
        so does a file that it cannot load; one with operators that are not ONNX's is not compared.
    """
    if not sizes:
        return Proof((), limit)
    loaded = run_file(path, lambda: _weights(subject))
    if isinstance(loaded, NotLoaded):
        return _not_loaded(subject, loaded, limit)
    runs = []
    for number, point in enumerate(sizes):
        shapes = axes.shapes(subject.inputs, point)
        is_example = dict(point) == dict(axes.example)
        difference, why = _compare_at(loaded, subject, shapes, None if is_example else number, loaded.limit(limit))
        runs.append(ProofRun(_named(subject, shapes), difference, why))
    return Proof(tuple(runs), loaded.limit(limit), widened=loaded.widened)


def prove_on(path: Path, subject: Subject, tensors: Sequence[torch.Tensor], limit: float) -> bool:
    """Whether a file, which can be loaded, gives what PyTorch does on some inputs."""
    loaded = run_file(path, lambda: _weights(subject))
    if isinstance(loaded, NotLoaded):
        return True
    error, _ = _compare(loaded, subject, tensors, subject.run(tensors))
    return error is not None and error <= loaded.limit(limit)


def _weights(subject: Subject) -> Weights:
    """Returns the weights of a module by name, without copies."""
    module, weights = subject.module, {}
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers()):
        with contextlib.suppress(RuntimeError, TypeError):  # elsewhere than in memory, or of a type of torch's own
            weights[name] = tensor.detach().numpy()
    return weights


def _not_loaded(subject: Subject, loaded: NotLoaded, limit: float) -> Proof:
    if loaded.foreign:
        return Proof((), limit, loaded.why)
    example = _named(subject, [decl.shape for decl in subject.inputs])
    return Proof((ProofRun(example, math.inf, loaded.why),), limit)


def _named(subject: Subject, shapes: Sequence[Shape]) -> dict[str, Shape]:
    return dict(zip((decl.name for decl in subject.inputs), shapes, strict=True))


def _compare_at(
    loaded: Running, subject: Subject, shapes: Sequence[Shape], seed: int | None, limit: float
) -> tuple[float | None, str]:
    """Compares on the example, or on random inputs; None where PyTorch refuses them.

    Where PyTorch's own outputs move as much when the inputs are nudged (two values that are all but equal, of which one
    is the maximum), the difference says nothing, and others are drawn.
    """
    error, why = None, ""
    for draw in range(_DRAWS):
        try:
            if seed is None and not draw:
                tensors, outputs = subject.example, subject.run(subject.example)
            else:
                number = (seed or 0) + draw * _APART
                tensors, outputs = inputs_that_run(subject.inputs, shapes, number, subject.run)
        except Exception as refused:
            return (None, f"PyTorch refuses it: {first_line(refused)}") if not draw else (error, why)
        error, why = _compare(loaded, subject, tensors, outputs)
        if error is None or error <= limit or not math.isfinite(error):
            break
        if _moved(subject, tensors, outputs) * _AS_MUCH < error:
            break
    return error, why


def _moved(subject: Subject, tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> float:
    """Returns how much PyTorch's own outputs move, at most, when the inputs are nudged by a few units of rounding."""
    generator, most = torch.Generator().manual_seed(0), 0.0
    for _ in range(_NUDGES):
        nudged = tuple(_nudged(tensor, generator) for tensor in tensors)
        with contextlib.suppress(Exception):
            moved = [(_array(a, False), _array(b, False)) for a, b in zip(outputs, subject.run(nudged), strict=True)]
            most = max([most, *(relative_error(a, b) for a, b in moved if a.shape == b.shape)])
    return most if math.isfinite(most) else 0.0


def _nudged(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not tensor.dtype.is_floating_point:
        return tensor
    size = _NUDGE * torch.finfo(tensor.dtype).eps
    return tensor + (size * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype) * tensor


def _compare(
    loaded: Running, subject: Subject, tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> tuple[float | None, str]:
    """Returns the largest relative error of all outputs, and what went wrong."""
    expected = [_array(tensor, loaded.widened) for tensor in outputs]
    pairs = zip(subject.inputs, tensors, strict=True)
    feeds = {decl.name: _array(t, loaded.widened) for decl, t in pairs if decl.name in loaded.inputs}
    try:
        actual = loaded.session.run(list(subject.outputs), feeds)
    except Exception as error:
        return math.inf, f"ONNX Runtime fails: {first_line(error)}"
    for name, a, b in zip(subject.outputs, expected, actual, strict=True):
        if a.shape != b.shape:
            return math.inf, f"output {name} is {times(b.shape)}, PyTorch makes {times(a.shape)}"
        if a.dtype != b.dtype:
            return math.inf, f"output {name} is {b.dtype}, PyTorch makes {a.dtype}"
    return max((relative_error(a, b) for a, b in zip(expected, actual, strict=True)), default=0.0), ""


def _array(tensor: torch.Tensor, widened: bool) -> NDArray[Any]:
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16 or (widened and tensor.dtype is torch.float64):
        tensor = tensor.float()
    # ascontiguousarray would make a vector of a scalar.
    return np.array(tensor.numpy(), order="C")
