"""A model run once more, with the tensors inside: what each layer of its network is held to."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from trtconv.core.dims import Shape
from trtconv.core.process import Process
from trtconv.graph.model import OnnxModel
from trtconv.graph.wide_floats import emulation_in_float32, in_float32
from trtconv.runtimes.proof import SERVE
from trtconv.runtimes.proof.meaning import Meaning
from trtconv.runtimes.proof.reference import Expected, Wanted, expect
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

LOOKING_SECONDS = 30.0
"""How long the layer at fault may be looked for; that there is one is then known."""
_GROUP_SHARE = 0.125
"""Of the memory that a run may take: what the tensors of a group take."""
_MOST_GROUPS = 16
_GROUPS_SECONDS = 90.0
"""How long all groups together may take."""
_ELEMENT_BYTES = 4


def groups_of(network: ReadNetwork, shapes: Mapping[str, Shape], megabytes: float) -> Sequence[tuple[str, ...]]:
    """Returns the names of all tensors in groups that take a part of the memory each; none where these are too many."""
    widest = max((side for shape in shapes.values() for side in shape), default=1)
    batch = max((shape[0] for shape in shapes.values() if shape), default=1)
    groups: list[list[str]] = [[]]
    left = most = megabytes * 1e6 * _GROUP_SHARE / _ELEMENT_BYTES
    for tensor in network.tensors:
        sides = enumerate(tensor.shape or ())
        elements = math.prod(side if side >= 0 else (widest if axis else batch) for axis, side in sides)
        if elements > left and groups[-1]:
            groups.append([])
            left = most
        groups[-1].append(tensor.name)
        left -= elements
    return tuple(map(tuple, groups)) if len(groups) <= _MOST_GROUPS else ()


def run_again(
    meaning: Meaning, goal: Wanted, groups: Sequence[tuple[str, ...]], folder: Path, deadline: float
) -> tuple[Expected, Expected]:
    """Runs a model once more; returns what each tensor of the network is held to, and what the file's outputs are.

    The tensors of a cast have other names and less precision, which adds up: they are held to the cast's own, and what
    the cast computes but for its rounding to the file.
    """
    if meaning.edited is not None and not meaning.same_numbers:
        before = OnnxModel(onnx.load_model_from_string(meaning.serialize()), meaning.parsed.path)
        exact = dataclasses.replace(goal, model=in_float32(meaning.parsed, before).serialize(), inner=())
        outer = _rerun(exact, (), folder / "exact", deadline, meaning.megabytes)
        # ONNX Runtime has hardly a kernel for bfloat16.
        cast = dataclasses.replace(goal, model=emulation_in_float32(meaning.parsed).serialize())
        inner = _rerun(cast, groups, folder / "cast", deadline, meaning.megabytes)
        if not (inner.why or outer.why):
            return inner, outer
    goal = dataclasses.replace(goal, model=meaning.serialize())
    rerun = _rerun(goal, groups, folder / "given", deadline, meaning.megabytes)
    return rerun, rerun


def _rerun(
    goal: Wanted, groups: Sequence[tuple[str, ...]], folder: Path, deadline: float, megabytes: float
) -> Expected:
    """Runs a model in a process of its own: once, or once for each group of tensors where all take too much memory."""
    until = max(deadline, time.monotonic() + LOOKING_SECONDS)
    expected = _run_once(goal, folder, until, megabytes)
    if not expected.why or len(groups) < 2:
        return expected
    tensors: dict[str, NDArray[Any]] = {}
    until = time.monotonic() + _GROUPS_SECONDS
    for number, group in enumerate(groups):
        part = dataclasses.replace(goal, inner=group)
        expected = _run_once(part, folder / str(number), until, megabytes)
        if expected.why:
            return expected
        tensors |= expected.tensors
    return dataclasses.replace(expected, tensors=tensors)


def _run_once(goal: Wanted, folder: Path, until: float, megabytes: float) -> Expected:
    folder.mkdir(parents=True)
    reruns: list[Expected] = []
    with Process(SERVE, megabytes) as runner:
        expect(runner, goal, folder, max(until - time.monotonic(), 1.0), reruns, [])
    return next(iter(reruns), Expected(why="there was no time to look for it"))
