"""Runs a model on ONNX Runtime in a process of its own, and returns what it computes, inner tensors too.

What ONNX Runtime cannot load is run by ONNX's own reference implementation. Arrays come back through files, since they
may be large.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core import process
from trtconv.core.dims import InputSpec
from trtconv.core.errors import TrtconvError
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import first_line, numpy_type, session

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
        below: For integer inputs of which that is known, below which number their values make sense.
        first: Stop at the first shapes that the model takes.
    """

    path: str
    model: bytes | None
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]
    seed: int = 0
    values: tuple[Mapping[str, Any], ...] = ()
    inner: tuple[str, ...] = ()
    plain: bool = False
    below: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first: bool = False


@frozen
class Expected:
    """What a model computes at one size.

    Args:
        feeds: Its inputs.
        tensors: Names of outputs and inner tensors to what they are; arrays lie in files until they are read.
        why: Why there is nothing; empty where there is.
    """

    feeds: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    tensors: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    why: str = ""


def feeds_of(wanted: Wanted, number: int, inputs: Sequence[InputSpec]) -> dict[str, NDArray[Any]]:
    """Makes inputs in which places can be told apart; the same ones each time.

    Args:
        wanted: What they are for; where it is `plain`, integers are 1, which is valid as index, token or divisor, else
            they are small and differ.
        number: Of the run.
        inputs: The model's inputs.
    """
    random = np.random.default_rng(wanted.seed + number)
    given = wanted.values[number] if wanted.values else {}
    feeds: dict[str, NDArray[Any]] = {}
    for spec in inputs:
        dtype, shape = numpy_type(spec), tuple(wanted.shapes[number][spec.name])
        if dtype.kind == "b":
            feeds[spec.name] = random.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            high = wanted.below.get(spec.name, 256 if dtype == np.uint8 else 4)
            feeds[spec.name] = np.ones(shape, dtype) if wanted.plain else random.integers(0, high, shape).astype(dtype)
        else:
            feeds[spec.name] = random.standard_normal(shape).astype(dtype)
    return {name: np.asarray(given[name], each.dtype) if name in given else each for name, each in feeds.items()}


def expect(
    runner: process.Process, wanted: Wanted, folder: Path, seconds: float, found: list[Expected], loaded: list[float]
) -> None:
    """Runs a model in a process of its own.

    Args:
        runner: The process, of `SERVE`.
        wanted: What for.
        folder: An empty folder, for files that the arrays are read from.
        seconds: How long it may take.
        found: Where what comes of each run is put, in order, as soon as it is there; fewer where the time did not
            suffice.
        loaded: Where the time (on the clock of `time.monotonic`) is put at which the model was loaded.
    """
    for plain in (False, True):
        del found[:]
        why = _attempt(runner, dataclasses.replace(wanted, plain=plain), folder, seconds, found, loaded)
        if not why:
            return
    if not found:
        found.append(Expected(why=why))


def _attempt(
    runner: process.Process, wanted: Wanted, folder: Path, seconds: float, found: list[Expected], loaded: list[float]
) -> str:
    """Adds what came of each run; returns why not all of them could be done."""

    def hear(event: Mapping[str, Any]) -> None:
        if event["event"] == "loaded":
            loaded.append(time.monotonic())
        else:
            found.append(_read(folder, event))

    try:
        runner.call((wanted, str(folder), seconds), seconds + 1, hear)
    except process.Lost as lost:
        return "" if lost.cause == "time" and found else f"ONNX Runtime broke down on the model ({lost.why})"
    except process.WorkerBug as bug:
        return f"ONNX Runtime broke down on the model ({bug.summary})"
    except TrtconvError as error:
        # The model was read before, but whoever asked may have given up since and taken the file away.
        return f"the model could not be read again ({error})"
    return found[0].why if found and all(each.why for each in found) else ""


def _read(folder: Path, event: Mapping[str, Any]) -> Expected:
    def load(files: Mapping[str, Sequence[str]]) -> dict[str, NDArray[Any]]:
        return {name: typed(np.load(folder / file, mmap_mode="r"), dtype) for name, (file, dtype) in files.items()}

    return Expected(load(event["feeds"]), load(event["tensors"]), event["why"])


def typed(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Returns an array with the type that it was saved with; files know those of ml_dtypes as raw bytes only."""
    if str(values.dtype) == dtype:
        return values
    import ml_dtypes

    return values.view(np.dtype(getattr(ml_dtypes, dtype)))


def serve(task: tuple[Wanted, str, float], tell: process.Tell) -> None:
    """Is the other process of `expect`: tells of each run as soon as it is done."""
    wanted, folder, seconds = task
    deadline = time.monotonic() + seconds
    model = _load(wanted)
    inputs = model.inputs
    computes = runs(model, wanted.inner)
    tell({"event": "loaded"})
    for number in range(len(wanted.shapes)):
        if number and time.monotonic() > deadline:
            return
        files = _Files(Path(folder), number)
        feeds = feeds_of(wanted, number, inputs)
        why, tensors = "", {}
        if isinstance(computes, str):
            why = computes
        else:
            try:
                tensors = files.save(computes(feeds), MOST_BYTES)
            except Exception as error:  # ONNX Runtime raises its own types, one for each status.
                why = f"ONNX Runtime does not run the model: {first_line(error)}"
        tell({"event": "run", "feeds": files.save(feeds.items()), "tensors": tensors, "why": why})
        if wanted.first and not why:
            return


def _load(wanted: Wanted) -> OnnxModel:
    if wanted.model is None:
        return OnnxModel.load(Path(wanted.path))
    return OnnxModel(onnx.load_model_from_string(wanted.model), Path(wanted.path))


def runs(model: OnnxModel, inner: Iterable[str]) -> Any:
    """Returns what runs a model, as a function from feeds to (name, array) pairs; as a text why nothing does."""
    outputs = list(model.outputs)
    made = {name for node in model.proto.graph.node for name in node.output if name}
    extra = [name for name in dict.fromkeys(inner) if name in made and name not in outputs]
    for name in extra:
        model.proto.graph.output.add().name = name
    loaded = session(model)
    names = [*outputs, *extra]
    if not isinstance(loaded, str):
        return lambda feeds: zip(names, loaded.run(names, feeds), strict=True)
    return _by_definition(model, names) or f"ONNX Runtime does not load the model: {loaded}"


_MOST_NODES = 200
"""Beyond, ONNX's reference implementation takes too long to be tried."""


def _by_definition(model: OnnxModel, names: list[str]) -> Any:
    from onnx.reference import ReferenceEvaluator

    if len(model.proto.graph.node) > _MOST_NODES:
        return None
    try:
        onnx.load_external_data_for_model(model.proto, str(Path(model.path).parent))
        evaluator = ReferenceEvaluator(model.proto, new_ops=[_one_hot()])
    except Exception:  # It raises whatever its operators do.
        return None
    return lambda feeds: zip(names, evaluator.run(names, feeds), strict=True)


def _one_hot() -> Any:
    """Returns OneHot as ONNX defines it: the reference implementation compares classes that are no integers as is,
    and takes no depth of rank 1."""
    from onnx.reference.op_run import OpRun

    class OneHot(OpRun):  # type: ignore[misc]
        def _run(self, classes: Any, depth: Any, values: Any, axis: int = -1) -> Any:
            count = int(depth.reshape(()))
            at = classes.astype(np.int64)
            axis %= at.ndim + 1
            grid = np.arange(count).reshape([count if each == axis else 1 for each in range(at.ndim + 1)])
            return (np.where(np.expand_dims(np.where(at < 0, at + count, at), axis) == grid, values[1], values[0]),)

    return OneHot


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
            if total > most:
                continue
            file = f"{self._number}-{self._count}.npy"
            self._count += 1
            np.save(self._folder / file, values)
            saved[name] = (file, str(values.dtype))
        return saved
