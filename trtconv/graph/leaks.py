"""What of a model is still in what was made of it: its names, and runs of its weights."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.graph.anonymous import onnx_words, texts
from trtconv.graph.model import OnnxModel
from trtconv.graph.stand_ins import Constant, constants

_BITS = 48
"""A run of values that are worth so many bits is in two models by chance once in 10^14 places."""
_WINDOW = 8
_CHUNK = 1 << 22
_TRIED = 10_000
_TELLING = re.compile(r"(?=.*[A-Z_/.:\d\W]).{4,}", re.DOTALL)
"""A name that no sentence has by chance."""


@frozen
class Leaks:
    """What was looked for, and what was there.

    Args:
        names: Number of names and texts that were looked for.
        weight_bytes: Bytes of weights that were.
        leaked: What was there: names, and weights by their names.
    """

    names: int
    weight_bytes: int
    leaked: tuple[str, ...]


def find_leaks(model: OnnxModel, part: bytes, page: str, allowance: Collection[str]) -> Leaks:
    """Looks for a model's names and weights in what is made of it.

    Args:
        model: The model.
        part: The part of it, as bytes.
        page: What is written about the part.
        allowance: Names of the model, and of its operators, that the part may have.

    Raises:
        InputError: Weights cannot be read.
    """
    names = {name for name in {*texts(model.proto), model.path.stem} if name} - onnx_words() - set(allowance)
    there = set(texts(onnx.ModelProto.FromString(part)))
    everything = part.decode("latin-1") + page
    leaks = [name for name in sorted(names) if name in there or (_TELLING.fullmatch(name) and name in everything)]
    windows = _windows(np.frombuffer(part, np.uint8), 1)
    windows.sort()
    checked = 0
    for name, values in _weights(model):
        checked += values.nbytes
        if _has_run(values, part, windows):
            leaks.append(name)
    return Leaks(len(names), checked, tuple(leaks))


def _weights(model: OnnxModel) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for tensor in model.proto.graph.initializer:
        if not Constant(tensor.name, tensor).is_structure:
            yield tensor.name, model.array(tensor)
    rest = onnx.ModelProto()
    rest.CopyFrom(model.skeleton())
    del rest.graph.initializer[:]
    for constant in constants(rest):
        if not constant.is_external and not constant.is_structure:
            yield constant.name, constant.values


def _has_run(values: NDArray[np.generic], part: bytes, windows: NDArray[np.uint64]) -> bool:
    """Whether a run of values of a tensor is in a file."""
    flat = np.ascontiguousarray(values).ravel()
    size = flat.dtype.itemsize
    sample = flat[:_CHUNK].view(_unsigned(size))
    distinct = len(np.unique(sample))
    if distinct < 2:
        return False
    # Of values that hardly come twice, most bits are chance.
    bits = 6 * size if 2 * distinct > len(sample) else math.log2(distinct)
    count = max(math.ceil(_BITS / bits), -(-_WINDOW // size))
    if len(flat) < count:
        return False
    data = flat.view(np.uint8)
    step = size
    for begin in range(0, len(flat), _CHUNK):
        chunk = data[begin * step : (begin + _CHUNK + count) * step]
        starts = np.flatnonzero(_in_sorted(_windows(chunk, step), windows))
        for start in starts[:: max(1, len(starts) // _TRIED)] * step:
            run = chunk[start : start + count * step]
            if len(run) == count * step and run.tobytes() in part and len(np.unique(run)) > 1:
                return True
    return False


def _windows(data: NDArray[np.uint8], step: int) -> NDArray[np.uint64]:
    """Returns every eight bytes that begin at a multiple of `step`, as a number."""
    if len(data) < _WINDOW:
        return np.zeros(0, np.uint64)
    views = np.lib.stride_tricks.sliding_window_view(data, _WINDOW)[::step]
    return np.ascontiguousarray(views).view(np.uint64).ravel()


def _in_sorted(values: NDArray[np.uint64], reference: NDArray[np.uint64]) -> NDArray[np.bool_]:
    if not len(reference):
        return np.zeros(len(values), bool)
    places = np.searchsorted(reference, values).clip(max=len(reference) - 1)
    return np.asarray(reference[places] == values)


def _unsigned(size: int) -> type[np.generic]:
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(size, np.uint8)
