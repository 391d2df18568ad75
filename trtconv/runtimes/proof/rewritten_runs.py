"""The pieces that passes changed, either side of each, on ONNX Runtime: what the other process does of `rewritten`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core import process
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import all_nodes
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.onnxruntime import first_line, numpy_type, session
from trtconv.runtimes.proof.feeds import sizes as feed_sizes
from trtconv.runtimes.proof.numbers import numbers_of
from trtconv.runtimes.proof.reference import has_shape, stated_shapes, stated_sizes
from trtconv.runtimes.proof.roles import integers_of, sizing_inputs

_MOST_DRAWS = 400
"""How many values are tried of integers that decide sizes."""
_MORE_DRAWS = 2
"""Of integers that all differ."""
_INTEGERS = 4
"""Below which integers are drawn that are no codes."""
_MOST_MET = 1e18
"""Of the numbers that inputs are set to: products of larger ones, as masks have them, are not finite on either side."""
_LEAST_ERROR = 2e-5
"""From which on it is looked at what rounding makes of it."""
_SCALES = (1.0, 2.0**-3, 2.0**-6)
"""By which inputs are made smaller to see less of it."""
_MOST_MOVEMENTS = 16
"""How much further sums of many products may take a result than a step of each input does."""
_STEPS = frozenset(
    (  # noqa: SIM905
        "Ceil Equal Floor Greater GreaterOrEqual Less LessOrEqual Mod Round Shrink Sign ThresholdedRelu Where"
    ).split()
)
"""Operators whose result jumps where what they read is exactly a certain number."""


@frozen
class Pairs:
    """What the process is to compare.

    Args:
        pieces: The name of the tensor that a piece computes, and the piece of either model, serialized.
        path: Where the model lies; external data is looked up beside it.
    """

    pieces: Sequence[tuple[str, bytes, bytes]]
    path: str


def serve(pairs: Pairs, tell: process.Tell) -> None:
    """Is the other process of `kept`: runs both sides of each piece on ONNX Runtime."""
    for number, (target, *sides) in enumerate(pairs.pieces):
        models = [OnnxModel(onnx.load_model_from_string(data), Path(pairs.path)) for data in sides]
        try:
            error, why = str(_error(models, target, number)), ""
        except Exception as failure:  # ONNX Runtime raises its own types, one for each status.
            error, why = "nan", first_line(failure) or type(failure).__name__
        tell({"event": "piece", "target": target, "error": error, "why": why})


def _error(models: Sequence[OnnxModel], target: str, seed: int) -> float:
    sessions = [session(model, small=True) for model in models]
    for runner in sessions:
        if isinstance(runner, str):
            raise ValueError(runner)
    nodes = all_nodes(models[0].proto.graph.node)
    sizing = sizing_inputs(nodes, models[0].inputs)
    shape, stated = stated_shapes(models[0]).get(target), stated_sizes(models[0])
    for draw in range(1 + _MOST_DRAWS if sizing else 1):
        feeds = _feeds(models, np.random.default_rng([seed, draw]), sizing if draw else frozenset(), stated)
        with contextlib.suppress(*((Exception,) if sizing else ())):
            expected = _outcome(sessions[0], target, feeds)
            if sizing and not has_shape(expected, shape):
                continue
            got = _outcome(sessions[1], target, feeds)
            # Axes that the passes took from a shape further on are some of those that make that shape.
            if not sizing or np.shape(got) == np.shape(expected):
                error = relative_error(expected, got)
                if error > _LEAST_ERROR:
                    error = _calmest_error(sessions, target, feeds, np.random.default_rng([seed, draw]))
                met = _meeting(models, feeds, np.random.default_rng([seed, draw]))
                errors = [error, *([_error_at(sessions, target, met)] if met else [])]
                for more in _different_integers(models, feeds, sizing, np.random.default_rng([seed, draw])):
                    # Too large for what nobody knows to be a place.
                    with contextlib.suppress(Exception):
                        errors.append(_error_at(sessions, target, more))
                return max(errors)
    raise ValueError(f"no values of {min(sizing)!r} were found for which it has the shape that the model states")


def _different_integers(
    models: Sequence[OnnxModel], feeds: Mapping[str, NDArray[Any]], sizing: Container[str], random: np.random.Generator
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields inputs whose integers all differ, where they are numbers as far as is known: of small ones many are
    equal, and one in another's place is not seen."""
    spans = {name for model in models for name in integers_of(model)}
    numbers = {
        name
        for name, values in feeds.items()
        if values.dtype in (np.int32, np.int64) and name not in spans and name not in sizing
    }
    for _ in range(_MORE_DRAWS if numbers else 0):
        yield {
            name: random.permutation(values.size).astype(values.dtype).reshape(values.shape)
            if name in numbers
            else values
            for name, values in feeds.items()
        }


def _error_at(sessions: Sequence[Any], target: str, feeds: Mapping[str, NDArray[Any]]) -> float:
    expected, got = (_outcome(runner, target, feeds) for runner in sessions)
    return relative_error(expected, got)


def _calmest_error(
    sessions: Sequence[Any], target: str, feeds: Mapping[str, NDArray[Any]], random: np.random.Generator
) -> float:
    """Returns how far both sides are apart where rounding takes them least: the softmax of sums of a thousand products
    moves by much more than these do.

    Where they are further apart than rounding takes one of them, that counts.
    """
    errors: list[float] = []
    for scale in _SCALES:
        smaller = _with_floats(feeds, functools.partial(_scaled, scale=scale))
        moved = _with_floats(smaller, functools.partial(_beside, random=random))
        expected = _outcome(sessions[0], target, smaller)
        if errors and not np.count_nonzero(expected):
            # Too small to say anything.
            break
        errors.append(relative_error(expected, _outcome(sessions[1], target, smaller)))
        movement = relative_error(expected, _outcome(sessions[0], target, moved))
        if not errors[-1] <= _MOST_MOVEMENTS * movement:
            return errors[-1]
    return min(errors)


def _with_floats(
    feeds: Mapping[str, NDArray[Any]], change: Callable[[NDArray[Any]], NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    return {name: change(values) if values.dtype.kind == "f" else values for name, values in feeds.items()}


def _scaled(values: NDArray[Any], scale: float) -> NDArray[Any]:
    return np.asarray(values * values.dtype.type(scale))


def _beside(values: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Returns numbers each of which is the next one of its type, larger or smaller."""
    return np.asarray(np.nextafter(values, random.choice([-np.inf, np.inf], values.shape).astype(values.dtype)))


def _outcome(runner: Any, target: str, feeds: Mapping[str, NDArray[Any]]) -> Any:
    return runner.run([target], {value.name: feeds[value.name] for value in runner.get_inputs()})[0]


def _feeds(
    models: Sequence[OnnxModel], random: np.random.Generator, sizing: Container[str], stated: Collection[int]
) -> dict[str, NDArray[Any]]:
    feeds: dict[str, NDArray[Any]] = {}
    # What the model reads as an index may be compared with numbers in what the passes wrote, as a mask is.
    spans = {name: span for model in reversed(models) for name, span in integers_of(model).items()}
    for spec in (entry for model in models for entry in model.inputs):
        dtype, shape = numpy_type(spec), tuple(int(size) for size in spec.dims)
        if spec.name in sizing:
            values = feed_sizes(shape, dtype, random, stated)
        elif dtype.kind in "iu":
            span = spans.get(spec.name, range(256 if dtype.itemsize == 1 else _INTEGERS))
            values = random.integers(span.start, span.stop, shape).astype(dtype)
        else:
            values = (random.standard_normal(shape) if dtype.kind != "b" else random.random(shape) < 0.5).astype(dtype)
        # Of no axes, NumPy makes a number of its own type of it, which ONNX Runtime does not take.
        feeds.setdefault(spec.name, np.asarray(values))
    return feeds


def _meeting(
    models: Sequence[OnnxModel], feeds: Mapping[str, NDArray[Any]], random: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Returns inputs that are exactly the numbers that either side holds; none where nothing jumps there."""
    numbers: list[float] = []
    steps = False
    for model in models:
        nodes = list(all_nodes(model.proto.graph.node))
        steps = steps or any(node.op_type in _STEPS for node in nodes)
        numbers += numbers_of(model, nodes)
    around = [
        sign * number for number in dict.fromkeys(numbers) if number and abs(number) < _MOST_MET for sign in (1, -1)
    ]
    if not steps or not around:
        return {}

    def met(values: NDArray[Any]) -> NDArray[Any]:
        if values.dtype.kind != "f":
            return values
        with np.errstate(over="ignore"):
            exact = random.choice(around, values.shape).astype(values.dtype)
        return np.where((random.random(values.shape) < 0.5) & np.isfinite(exact), exact, values)

    return {name: met(values) for name, values in feeds.items()}
