"""Types and shapes of tensors inside a model, as a run on ONNX Runtime has them, where inference does not tell."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from trtconv.core import budget, process
from trtconv.core.dims import Shape
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import first_line, raise_if_starved, random_feeds, session
from trtconv.runtimes.proof.places import apart
from trtconv.shapes.lattice.tensor import MAX_ELEMENTS
from trtconv.shapes.size_values import Answer

_SEEDS = (0, 1)
_MOST_TWICE = 9
"""The first sizes, which are run with other values too: what differs then is known by values alone."""
Seen = dict[str, tuple[int, Shape]]


def observe(model: OnnxModel, names: Sequence[str], sizes: Sequence[Mapping[str, Shape]]) -> list[Seen]:
    """Runs a model, in a process of its own, and looks at tensors inside it.

    Args:
        model: The model.
        names: Tensors of its main graph.
        sizes: Shapes of its inputs.

    Returns:
        For each size, name to ONNX element type and shape; a tensor whose shape is not the same for other values of
        the inputs is left out, and so are all where the model does not run. Empty where it is not even loaded.
    """
    task = (model.serialize(), str(model.path), list(names), [dict(shapes) for shapes in sizes])
    seconds, megabytes = budget.allowance(model.nbytes)
    rows: list[Mapping[str, Any]] = []
    # Of a run that is lost what came before it counts.
    with contextlib.suppress(process.Lost, process.WorkerBug):
        process.call("trtconv.runtimes.observed:serve", task, seconds, rows.append, megabytes)
    return [{name: (code, tuple(shape)) for name, (code, shape) in row["seen"].items()} for row in rows]


def serve(task: tuple[bytes, str, list[str], list[dict[str, Shape]]], tell: process.Tell) -> None:
    """Does the work of `observe`, in a process of its own; tells of each size."""
    data, path, names, sizes = task
    model = OnnxModel(onnx.load_model_from_string(data), Path(path))
    outputs = set(model.outputs)
    model.proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
    runs = session(model)
    if isinstance(runs, str):
        return
    for number, shapes in enumerate(sizes):
        seeds = _SEEDS if number < _MOST_TWICE else _SEEDS[:1]
        looks = [_look(runs, model, names, shapes, seed) for seed in seeds]
        same = {name: entry for name, entry in looks[0].items() if all(look.get(name) == entry for look in looks)}
        tell({"event": "size", "seen": {name: entry for name, entry in same.items() if entry is not None}})


def _look(runs: Any, model: OnnxModel, names: list[str], shapes: Mapping[str, Shape], seed: int) -> Any:
    try:
        values = runs.run(names, random_feeds(model.inputs, shapes, seed))
    except Exception as error:
        raise_if_starved(error)
        return {}
    codes = onnx.helper.np_dtype_to_tensor_dtype
    arrays = dict(zip(names, values, strict=True))
    # Sequences have no shape.
    return {
        name: (codes(array.dtype), list(array.shape)) if hasattr(array, "dtype") else None
        for name, array in arrays.items()
    }


def runs_at(model: OnnxModel, sizes: Sequence[Mapping[str, Shape]], seconds: float) -> bool:
    """Whether a model runs on ONNX Runtime at sizes, in a process of its own.

    Args:
        model: The model.
        sizes: Shapes of its inputs.
        seconds: How long it may take; longer is no.
    """
    _, megabytes = budget.allowance(model.nbytes)
    task = (model.serialize(), str(model.path), [dict(shapes) for shapes in sizes])
    try:
        return bool(process.call("trtconv.runtimes.observed:run", task, seconds, megabytes=megabytes))
    except (process.Lost, process.WorkerBug):
        return False


def run(task: tuple[bytes, str, list[dict[str, Shape]]], _: process.Tell) -> bool:
    """Does the work of `runs_at`, in a process of its own."""
    data, path, sizes = task
    model = OnnxModel(onnx.load_model_from_string(data), Path(path))
    runs = session(model)
    if isinstance(runs, str):
        return False
    for shapes in sizes:
        try:
            runs.run(None, apart(model, random_feeds(model.inputs, shapes)))
        except Exception as error:
            raise_if_starved(error)
            return False
    return True


class NodeRuns(contextlib.AbstractContextManager["NodeRuns"]):
    """Runs a few nodes with many inputs, in a process of its own, which is started with the first of them."""

    def __init__(self) -> None:
        _, megabytes = budget.allowance(0)
        self._process = process.Process("trtconv.runtimes.observed:answer", megabytes)

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def __call__(self, part: OnnxModel, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> list[Answer | None]:
        """Runs a model of one output with each of some inputs.

        Returns:
            The output's shape and its elements, None where these are many; None where it does not run. Fewer than the
            inputs where it was stopped.
        """
        data = part.serialize()
        seconds, _ = budget.allowance(len(data))
        rows: list[Mapping[str, Any]] = []
        with contextlib.suppress(process.Lost, process.WorkerBug):
            self._process.call((data, list(feeds)), seconds, rows.append)
        return [None if row["shape"] is None else (tuple(row["shape"]), row["elements"]) for row in rows]


def answer(task: tuple[bytes, list[Mapping[str, NDArray[Any]]]], tell: process.Tell) -> None:
    """Does the work of `NodeRuns`, in a process of its own; tells of each result."""
    data, feeds = task
    runs = session(OnnxModel(onnx.load_model_from_string(data), Path("part.onnx")))
    for feed in [] if isinstance(runs, str) else feeds:
        try:
            (value,) = runs.run(None, feed)
        except Exception as error:
            raise_if_starved(error)
            value = None
        shape = list(value.shape) if hasattr(value, "shape") else None
        is_small = shape is not None and value.size <= MAX_ELEMENTS
        tell({"event": "value", "shape": shape, "elements": value.ravel().tolist() if is_small else None})


def why_not_loaded(data: bytes, path: Path) -> str:
    """Returns why ONNX Runtime does not load a model, in a process of its own; empty where it does.

    Args:
        data: The model, serialized.
        path: Where it came from.
    """
    seconds, megabytes = budget.allowance(len(data))
    try:
        return str(process.call("trtconv.runtimes.observed:load", (data, str(path)), seconds, megabytes=megabytes))
    except (process.Lost, process.WorkerBug) as error:
        return f"ONNX Runtime broke down on it ({first_line(error)})"


def load(task: tuple[bytes, str], _: process.Tell) -> str:
    """Does the work of `why_not_loaded`, in a process of its own."""
    data, path = task
    loaded = session(OnnxModel(onnx.load_model_from_string(data), Path(path)))
    return f"ONNX Runtime does not load it: {loaded}" if isinstance(loaded, str) else ""
