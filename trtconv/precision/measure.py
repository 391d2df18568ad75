"""Runs a model and its cast on ONNX Runtime: what ranges its tensors have, and how far the cast is from it.

It happens in a process of its own, because some models end the process that ONNX Runtime runs in. The process keeps the
original's results between the two questions, so that the original runs once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from trtconv.core import budget
from trtconv.core.decode import Measured, decoded
from trtconv.core.dims import ShapeProfile, dynamic_dims, elements_of
from trtconv.core.documents.build import CastCheck
from trtconv.core.encode import strict
from trtconv.core.frozen import frozen
from trtconv.core.process import Lost, Process, Tell, WorkerBug
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.runtimes import onnxruntime
from trtconv.runtimes.compare import relative_error

_MOST_ELEMENTS = 1 << 28
"""Elements of all inputs together beyond which nothing is run."""
_REDUCTION = "trtconv.range"


@frozen
class Ranges:
    """What a run of a model showed.

    Args:
        largest: Tensor of the main graph to its largest magnitude, infinite or NaN where a value is; tensors that were
            not measured are left out.
        why: Why nothing was measured; empty where it was.
        elements: Tensor to the number of its elements.
    """

    largest: Mapping[str, Measured]
    why: str = ""
    elements: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Referee(contextlib.AbstractContextManager["Referee"]):
    """A process that runs a model and then its cast on the same inputs.

    Args:
        original: The model, by whose size the process is given time and memory.
    """

    def __init__(self, original: OnnxModel) -> None:
        self._seconds, self._megabytes = budget.allowance(original.nbytes)
        self._process = Process("trtconv.precision.measure:OriginalAndCast", self._megabytes)

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def measure(self, model: OnnxModel, inputs: ShapeProfile | Feeds) -> Ranges:
        """Runs the model.

        Args:
            model: The model in float32.
            inputs: By their names; or a profile: seeded ones of its optimal sizes, and values of those that hold sizes.

        Raises:
            BudgetExceeded: The model asks for more time or memory than it may have.
        """
        task: Any = inputs
        if isinstance(inputs, ShapeProfile):
            ranges = inputs.inputs, inputs.values
            task = tuple({name: bounds.opt for name, bounds in part.items()} for part in ranges)
        return decoded(Ranges, self._ask(model, task, lambda why: {"largest": {}, "why": why}))

    def compare(self, cast: OnnxModel) -> CastCheck:
        """Runs the cast on the inputs of `measure`.

        Args:
            cast: The model after the cast, with the original's inputs and outputs.

        Returns:
            What was found. An error is infinite where one of the two has values that are not finite.

        Raises:
            BudgetExceeded: As for `measure`.
        """
        return decoded(CastCheck, self._ask(cast, None, lambda why: CastCheck(why=why).to_json()))

    def _ask(self, model: OnnxModel, inputs: Any, unanswered: Callable[[str], dict[str, object]]) -> dict[str, object]:
        try:
            answer: dict[str, object] = self._process.call((model.serialize(), str(model.path), inputs), self._seconds)
        except Lost as lost:
            onnxruntime.blame_file(lost, model, self._seconds, self._megabytes, fixed=not dynamic_dims(model.inputs))
            why = {
                "time": f"took more than {self._seconds:.0f} s",
                "memory": "ran out of memory",
                "file": f"broke down: {lost.why}",
                "crash": "broke down on the model",
            }
            return unanswered(f"ONNX Runtime {why[lost.cause]}")
        except WorkerBug as bug:
            return unanswered(f"ONNX Runtime broke down on the model ({bug.summary})")
        return answer


class OriginalAndCast:
    """The two tasks of a `Referee`, in its process: the first call runs the original, the second one the cast."""

    def __init__(self) -> None:
        self._feeds: dict[str, NDArray[Any]] = {}
        self._expected: dict[str, NDArray[Any]] = {}
        self._why = "the original was not run"

    def __call__(self, task: tuple[bytes, str, Any], _: Tell) -> dict[str, object]:
        """Answers as `measure` or, without inputs or their sizes, as `compare`."""
        data, path, inputs = task
        model = OnnxModel(onnx.load_model_from_string(data), Path(path))
        if inputs is None:
            check = _compare(model, self._feeds, self._expected) if self._expected else CastCheck(why=self._why)
            return check.to_json()
        largest: dict[str, float] = {}
        try:
            self._feeds = _feeds(model, *inputs) if isinstance(inputs, tuple) else dict(inputs)
            ranges, self._expected = _measure(model, [self._feeds])
            largest, self._why = dict(ranges.largest), ""
        except (RuntimeError, ValueError, KeyError) as error:
            self._why = onnxruntime.first_line(error)
        return {"largest": strict(largest), "why": self._why}


def _feeds(
    model: OnnxModel, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[Any]]:
    fixed = {spec.name: tuple(size for size in spec.dims if isinstance(size, int)) for spec in model.inputs}
    sizes = {name: shapes.get(name, size) for name, size in fixed.items()}
    if elements_of(sizes) > _MOST_ELEMENTS:
        raise ValueError("its inputs are too large")
    feeds = onnxruntime.random_feeds(model.inputs, sizes)
    for name, value in values.items():
        feeds[name] = np.asarray(value, feeds[name].dtype).reshape(feeds[name].shape)
    return feeds


def survey(model: OnnxModel, samples: Sequence[Feeds]) -> Ranges:
    """Runs a model on samples in this process; the magnitudes and the sizes are the largest of all.

    Raises:
        RuntimeError: It does not run on them.
    """
    return _measure(model, samples)[0]


def _measure(model: OnnxModel, samples: Sequence[Feeds]) -> tuple[Ranges, dict[str, NDArray[Any]]]:
    """Runs the model with the largest magnitude and the size of every tensor as further outputs, which take no memory.

    Also returns the outputs of the last sample.
    """
    outputs = list(model.outputs)
    names = _measurable(model)
    why = ""
    # A reduction refuses a tensor that is empty: with a zero put beside it none is, at the price of a copy.
    for padded in (False, True):
        session = onnxruntime.session(_with_ranges(model, names, padded))
        if isinstance(session, str):
            why = f"ONNX Runtime does not load the model: {session}"
            continue
        largest, elements = dict.fromkeys(names, -math.inf), dict.fromkeys(names, 0)
        try:
            for feeds in samples:
                results = session.run(None, dict(feeds))
                measured = iter(results[len(outputs) :])
                for name, value, size in zip(names, measured, measured, strict=True):
                    # Nothing is larger than what is no number.
                    largest[name] = float(value) if not value <= largest[name] else largest[name]
                    elements[name] = max(elements[name], int(size))
        except Exception as error:  # It raises its own types, one for each status.
            onnxruntime.raise_if_starved(error)
            why = f"ONNX Runtime does not run the model: {onnxruntime.first_line(error)}"
            continue
        magnitudes = {name: value for name, value in largest.items() if value != -math.inf}
        return Ranges(magnitudes, elements=elements), dict(zip(outputs, results, strict=False))
    raise RuntimeError(why)


def _measurable(model: OnnxModel) -> list[str]:
    """Returns the float32 tensors of the main graph that inputs or nodes make."""
    types = model.main.types
    inputs = [spec.name for spec in model.inputs]
    outputs = [name for node in model.proto.graph.node for name in node.output if name and node.op_type != "Constant"]
    return [name for name in (*inputs, *outputs) if types.get(name) == onnx.TensorProto.FLOAT]


def _with_ranges(model: OnnxModel, names: list[str], padded: bool) -> OnnxModel:
    """Returns a copy with the largest magnitude of each tensor, and its size, as further outputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1, np.float32), f"{_REDUCTION}.zero"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1], np.int64), f"{_REDUCTION}.flat"))
    for number, name in enumerate(names):
        at = f"{_REDUCTION}.{number}"
        graph.node.append(helper.make_node("Abs", [name], [f"{at}.abs"]))
        source = f"{at}.abs"
        if padded:
            graph.node.append(helper.make_node("Reshape", [source, f"{_REDUCTION}.flat"], [f"{at}.flat"]))
            source = f"{at}.all"
            graph.node.append(helper.make_node("Concat", [f"{at}.flat", f"{_REDUCTION}.zero"], [source], axis=0))
        graph.node.append(helper.make_node("ReduceMax", [source], [at], keepdims=0))
        graph.node.append(helper.make_node("Size", [name], [f"{at}.size"]))
        graph.output.append(helper.make_tensor_value_info(at, onnx.TensorProto.FLOAT, []))
        graph.output.append(helper.make_tensor_value_info(f"{at}.size", onnx.TensorProto.INT64, []))
    return OnnxModel(proto, model.path)


def _compare(cast: OnnxModel, feeds: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]) -> CastCheck:
    session = onnxruntime.session(cast)
    if isinstance(session, str):
        return CastCheck(why=f"ONNX Runtime does not load the cast model: {session}")
    try:
        results = session.run(list(expected), feeds)
    except Exception as error:
        onnxruntime.raise_if_starved(error)
        return CastCheck(why=f"ONNX Runtime does not run the cast model: {onnxruntime.first_line(error)}")
    errors = {name: _difference(expected[name], got) for name, got in zip(expected, results, strict=True)}
    return CastCheck(max(errors.values(), default=0.0), outputs=errors)


def _difference(expected: Any, got: Any) -> float:
    """Returns the relative error of floats, and for other types the share of elements that differ."""
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        return 0.0
    if expected.dtype.kind == "f":
        return relative_error(expected, got)
    # How many there are may depend on the values, as of the boxes that a detector finds.
    return float(np.mean(expected != got)) if expected.shape == got.shape and expected.size else 0.0
