"""Runs a model on ONNX Runtime in a process of its own, and returns what it computes, inner tensors too.

What ONNX Runtime cannot load is run by ONNX's own reference implementation. Arrays come back through files, since they
may be large.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core import process
from trtconv.core.dims import InputSpec
from trtconv.core.errors import TrtconvError
from trtconv.core.frozen import frozen
from trtconv.graph.light_file import light_model
from trtconv.graph.model import OnnxModel
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.graph.types import undefined_opset
from trtconv.graph.walk import all_nodes
from trtconv.runtimes.light_session import give_values
from trtconv.runtimes.onnxruntime import first_line, numpy_type, session
from trtconv.runtimes.proof.feeds import sizes
from trtconv.runtimes.proof.places import apart
from trtconv.runtimes.proof.roles import sizing_inputs

_MOST_DRAWS = 400
"""How many values are tried of integers that decide sizes."""
READING = threading.Lock()
"""Held while headers of NumPy files are read: CPython 3.11 may fail in its own parser where two threads use it."""
MOST_BYTES = 1 << 30
"""Of inner tensors that are kept; further ones are left out."""


@frozen
class Wanted:
    """What a model is to be run for.

    Args:
        path: Where the model lies; external data is looked up beside it.
        model: Serialized model; None: the file itself.
        shapes: For each run the shape of every input.
        seed: Of the inputs.
        values: Inputs whose elements are given, for each run.
        inner: Names of tensors that are wanted beside the outputs.
        plain: Only fill integer inputs with ones.
        spans: For integer inputs of which that is known, the values that make sense.
        groups: For each run which others it stands in for: of a group the first that the model takes is enough. Empty:
            each is wanted.
        magnitudes: For each run of what magnitude floats are, and positive where that is not 1. Empty: of 1.
    """

    path: str
    model: bytes | None
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]
    seed: int = 0
    values: tuple[Mapping[str, Any], ...] = ()
    inner: tuple[str, ...] = ()
    plain: bool = False
    spans: Mapping[str, range] = dataclasses.field(default_factory=dict)
    groups: tuple[str, ...] = ()
    magnitudes: tuple[float, ...] = ()

    def feeds(self, number: int) -> Mapping[str, Any]:
        """Returns the inputs of a run whose elements are given."""
        return self.values[number] if self.values else {}

    def group(self, number: int) -> str:
        """Returns what the run of that number stands for."""
        return self.groups[number] if self.groups else str(number)


@frozen
class Expected:
    """What a model computes at one size.

    Args:
        number: Of the run.
        feeds: Its inputs.
        tensors: Names of outputs and inner tensors to what they are; arrays lie in files until they are read.
        why: Why there is nothing; empty where there is.
    """

    number: int = 0
    feeds: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    tensors: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    why: str = ""


def feeds_of(
    goal: Wanted,
    number: int,
    inputs: Sequence[InputSpec],
    draw: int = 0,
    sizing: Container[str] = (),
    stated: Collection[int] = (),
) -> dict[str, NDArray[Any]]:
    """Makes inputs in which places can be told apart; the same ones each time.

    Args:
        goal: What they are for; where it is `plain`, integers are 1, which is valid as index, token or divisor, else
            they are small and differ.
        number: Of the run.
        inputs: The model's inputs.
        draw: Beyond 0, another draw of those values that decide sizes.
        sizing: Names of the inputs that hold them.
        stated: Sizes that the model states of its outputs.
    """
    random = np.random.default_rng(goal.seed + number)
    magnitude = goal.magnitudes[number] if goal.magnitudes else 1.0
    goal_feeds = goal.feeds(number)
    feeds: dict[str, NDArray[Any]] = {}
    for spec in inputs:
        dtype, shape = numpy_type(spec), tuple(goal.shapes[number][spec.name])
        if draw and spec.name in sizing:
            feeds[spec.name] = sizes(shape, dtype, np.random.default_rng([draw, len(feeds)]), stated)
        elif dtype.kind == "b":
            feeds[spec.name] = random.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            span = goal.spans.get(spec.name, range(256 if dtype == np.uint8 else 4))
            drawn = random.integers(span.start, span.stop, shape)
            feeds[spec.name] = np.ones(shape, dtype) if goal.plain else drawn.astype(dtype)
        else:
            normal = random.standard_normal(shape)
            feeds[spec.name] = (normal if magnitude == 1 else np.abs(normal) * magnitude).astype(dtype)
    return {
        name: np.asarray(goal_feeds[name], values.dtype) if name in goal_feeds else values
        for name, values in feeds.items()
    }


def expect(
    runner: process.Process, goal: Wanted, folder: Path, seconds: float, results: list[Expected], loaded: list[float]
) -> None:
    """Runs a model in a process of its own.

    Args:
        runner: The process, of `SERVE`.
        goal: What for.
        folder: An empty folder, for files that the arrays are read from.
        seconds: How long it may take.
        results: Where what comes of each run is put, in order, as soon as it is there; fewer where the time did not
            suffice.
        loaded: Where the time (on the clock of `time.monotonic`) is put at which the model was loaded.
    """
    for plain in (False, True):
        del results[:]
        why = _attempt(runner, dataclasses.replace(goal, plain=plain), folder, seconds, results, loaded)
        if not why:
            return
    if not results:
        results.append(Expected(why=why))


def _attempt(
    runner: process.Process, goal: Wanted, folder: Path, seconds: float, results: list[Expected], loaded: list[float]
) -> str:
    """Adds what came of each run; returns why not all of them could be done."""

    def hear(event: Mapping[str, Any]) -> None:
        if event["event"] == "loaded":
            loaded.append(time.monotonic())
        else:
            results.append(_read(folder, event))

    try:
        runner.call((goal, str(folder), seconds), seconds + 1, hear)
    except process.Lost as lost:
        return "" if lost.cause == "time" and results else f"ONNX Runtime broke down on the model ({lost.why})"
    except process.WorkerBug as bug:
        return f"ONNX Runtime broke down on the model ({bug.summary})"
    except TrtconvError as error:
        # The model was read before, but whoever asked may have given up since and taken the file away.
        return f"the model could not be read again ({error})"
    first = [result.why for result in results if goal.group(result.number) == goal.group(0)]
    return first[0] if first and all(first) else ""


def _read(folder: Path, event: Mapping[str, Any]) -> Expected:
    def load(files: Mapping[str, Sequence[str]]) -> dict[str, NDArray[Any]]:
        with READING:
            return {name: typed(np.load(folder / file, mmap_mode="r"), dtype) for name, (file, dtype) in files.items()}

    return Expected(event["number"], load(event["feeds"]), load(event["tensors"]), event["why"])


def typed(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Returns an array with the type that it was saved with; files know those of ml_dtypes as raw bytes only."""
    if str(values.dtype) == dtype:
        return values
    import ml_dtypes

    return values.view(np.dtype(getattr(ml_dtypes, dtype)))


def serve(task: tuple[Wanted, str, float], tell: process.Tell, file: OnnxModel | None = None) -> None:
    """Is the other process of `expect`: tells of each run as soon as it is done.

    Args:
        task: What is wanted, a folder for arrays, and how long it may take.
        tell: Hears what came of each run.
        file: The model, where that is its file, and was read before.
    """
    goal, folder, seconds = task
    deadline = time.monotonic() + seconds
    model = file or _load(goal)
    inputs = model.inputs
    computes = runs(model, goal.inner)
    tell({"event": "loaded"})
    groups: set[str] = set()
    for number in range(len(goal.shapes)):
        if number and time.monotonic() > deadline:
            return
        if goal.group(number) in groups:
            continue
        files = _Files(Path(folder), number)
        feeds, result = _ran(model, goal, number, inputs, computes)
        why, tensors = (result, {}) if isinstance(result, str) else ("", files.save(result, MOST_BYTES))
        saved = files.save(feeds.items())
        tell({"event": "run", "number": number, "feeds": saved, "tensors": tensors, "why": why})
        if not why:
            groups.add(goal.group(number))


def _ran(
    model: OnnxModel, goal: Wanted, number: int, inputs: Sequence[InputSpec], computes: Any
) -> tuple[dict[str, NDArray[Any]], list[tuple[str, Any]] | str]:
    """Returns the inputs of a run, and what the model makes of them as (name, values), or why it makes nothing."""
    feeds = _settled(model, goal, number, feeds_of(goal, number, inputs))
    if isinstance(computes, str):
        return feeds, computes
    why = ""
    sizing = sizing_inputs(all_nodes(model.proto.graph.node), inputs) - goal.feeds(number).keys()
    stated = stated_sizes(model)
    for draw in range(1 + _MOST_DRAWS if sizing else 1):
        feeds = _settled(model, goal, number, feeds_of(goal, number, inputs, draw, sizing, stated))
        try:
            tensors = list(computes(feeds))
        except Exception as error:  # ONNX Runtime raises its own types, one for each status.
            why = why or f"ONNX Runtime does not run the model: {first_line(error)}"
            continue
        if not sizing or all(has_shape(values, stated_shapes(model).get(name)) for name, values in tensors):
            return feeds, tensors
        why = f"no values of {min(sizing)!r} were found for which results have the shapes that the model states"
    return feeds, why


def _settled(model: OnnxModel, goal: Wanted, number: int, feeds: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns inputs at which it is settled what the model computes; those that were given stay."""
    goal_feeds = {name: values for name, values in feeds.items() if name in goal.feeds(number)}
    return {**apart(model, feeds, goal.seed + number), **goal_feeds}


def stated_shapes(model: OnnxModel) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that a model states of its tensors, -1 where one leaves a size open."""
    values = (*model.proto.graph.value_info, *model.proto.graph.output)
    stated = {value.name: value.type.tensor_type for value in values}
    return {
        name: tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
        for name, tensor in stated.items()
        if tensor.HasField("shape")
    }


def stated_sizes(model: OnnxModel) -> frozenset[int]:
    """Returns the sizes that a model states of its outputs."""
    shapes = stated_shapes(model)
    sizes = (size for value in model.proto.graph.output for size in shapes.get(value.name, ()))
    return frozenset(size for size in sizes if size >= 0)


def has_shape(values: Any, partial_shape: Sequence[int] | None) -> bool:
    """Whether a result may have the shape that is known of it, -1 where a size is not."""
    shape = np.shape(values)
    return partial_shape is None or (
        len(partial_shape) == len(shape) and all(a in (-1, b) for a, b in zip(partial_shape, shape, strict=True))
    )


def _load(goal: Wanted) -> OnnxModel:
    if goal.model is None:
        return light_model(Path(goal.path))
    return OnnxModel(onnx.load_model_from_string(goal.model), Path(goal.path))


def runs(
    model: OnnxModel, inner: Iterable[str], weights: Mapping[str, NDArray[Any]] | None = None, *, small: bool = False
) -> Any:
    """Returns what runs a model, as a function from feeds to (name, array) pairs; as a text why nothing does.

    Args:
        model: The model; what is wanted of it becomes outputs.
        inner: Further tensors that are wanted.
        weights: As for `session`.
        small: As for `session`.
    """
    outputs = list(model.outputs)
    tensors = {name for node in model.proto.graph.node for name in node.output if name}
    extra = [name for name in dict.fromkeys(inner) if name in tensors and name not in outputs]
    for name in extra:
        model.proto.graph.output.add().name = name
    loaded = session(model, weights=weights, small=small)
    names = [*outputs, *extra]
    if not isinstance(loaded, str):
        return lambda feeds: zip(names, loaded.run(names, feeds), strict=True)
    return _by_definition(model, names, weights or {}) or f"ONNX Runtime does not load the model: {loaded}"


_MOST_NODES = 200
"""Beyond, ONNX's reference implementation takes too long to be tried."""


def _by_definition(model: OnnxModel, names: list[str], weights: Mapping[str, NDArray[Any]]) -> Any:
    if len(model.proto.graph.node) > _MOST_NODES:
        return None
    why_not = undefined_opset(model.proto.opset_import)
    if why_not:
        return why_not
    try:
        for tensor in (initializer for initializer in model.proto.graph.initializer if initializer.name in weights):
            give_values(tensor, weights[tensor.name])
        onnx.load_external_data_for_model(model.proto, str(Path(model.path).parent))
        # It runs nodes, too, that mean nothing: with lists of the wrong length, or attributes of other operators.
        onnx.checker.check_model(model.proto, full_check=True)
        evaluator = reference_evaluator(model.proto)
    except Exception:  # It raises whatever its operators do.
        return None
    return lambda feeds: zip(names, evaluator.run(names, feeds), strict=True)


class _Files:
    """Arrays of one run, saved one in a file."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._count = 0

    def save(self, arrays: Iterable[tuple[str, Any]], most: float = float("inf")) -> dict[str, tuple[str, str]]:
        """Saves arrays as long as they are no more than so many bytes; returns for each its file and type."""
        saved = {}
        total = 0
        for name, values in arrays:
            if not isinstance(values, np.ndarray) or values.dtype.kind in "OUS":
                continue
            total += values.nbytes
            if total <= most:
                file = f"{self._number}-{self._count}.npy"
                self._count += 1
                np.save(self._folder / file, values)
                saved[name] = (file, str(values.dtype))
        return saved
