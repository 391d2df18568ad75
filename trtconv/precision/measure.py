"""Runs a model and its cast on ONNX Runtime: what ranges its tensors have, and how far the cast is from it.

It happens in a process of its own, because some models end the process that ONNX Runtime runs in. The process keeps the
original's results between the two questions, so that the original runs once.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from trtconv.core.dims import ShapeProfile
from trtconv.core.frozen import frozen
from trtconv.core.process import python
from trtconv.graph.model import OnnxModel
from trtconv.runtimes import onnxruntime

SECONDS = 600.0
"""How long the original and the cast may each run."""
_MOST_ELEMENTS = 1 << 28
"""Elements of all inputs together beyond which nothing is run."""
_REDUCTION = "trtconv.range"


@frozen
class Ranges:
    """What a run of a model showed.

    Args:
        largest: Tensor of the main graph to its largest magnitude; tensors that were not measured are left out.
        why: Why nothing was measured; empty where it was.
    """

    largest: Mapping[str, float]
    why: str = ""


class Referee(contextlib.AbstractContextManager["Referee"]):
    """A process that runs a model and then its cast on the same inputs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            python("trtconv.precision.measure:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def measure(self, model: OnnxModel, profile: ShapeProfile) -> Ranges:
        """Runs the model on seeded inputs of the profile's optimal sizes.

        Args:
            model: The model in float32.
            profile: Sizes of the inputs, and values of those that hold sizes.
        """
        shapes = {name: bounds.opt for name, bounds in profile.inputs.items()}
        values = {name: bounds.opt for name, bounds in profile.values.items()}
        answer = self._ask((model.serialize(), str(model.path), shapes, values))
        return answer if isinstance(answer, Ranges) else Ranges({}, str(answer))

    def compare(self, cast: OnnxModel) -> dict[str, Any]:
        """Runs the cast on the inputs of `measure`.

        Args:
            cast: The model after the cast, with the original's inputs and outputs.

        Returns:
            {"max_relative_error": the largest of all outputs, None where it was not run, "why": reason for None,
            "outputs": {name: relative error, or share of integers that differ}}. An error is infinite where one of
            the two has values that are not finite.
        """
        answer = self._ask((cast.serialize(), str(cast.path)))
        return answer if isinstance(answer, dict) else _not_run(str(answer))

    def _ask(self, task: tuple[Any, ...]) -> Any:
        """Sends a task. Returns the answer, or why there is none as a text."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            late = not watch.is_alive()
            return f"ONNX Runtime took more than {SECONDS:.0f} s" if late else "ONNX Runtime broke down on the model"
        finally:
            watch.cancel()


def _not_run(why: str) -> dict[str, Any]:
    return {"max_relative_error": None, "why": why, "outputs": {}}


def serve() -> None:
    """Answers the two tasks of a `Referee`, on stdin and stdout."""
    feeds: dict[str, NDArray[Any]] = {}
    expected: dict[str, Any] = {}
    answers = sys.stdout.buffer
    with contextlib.suppress(EOFError):
        data, path, shapes, values = pickle.load(sys.stdin.buffer)
        model = OnnxModel(onnx.load_model_from_string(data), Path(path))
        try:
            feeds = _feeds(model, shapes, values)
            ranges, expected = _measure(model, feeds)
        except (RuntimeError, MemoryError, ValueError, KeyError) as error:
            ranges = Ranges({}, onnxruntime.first_line(error))
        pickle.dump(ranges, answers)
        answers.flush()
        data, path = pickle.load(sys.stdin.buffer)
        cast = OnnxModel(onnx.load_model_from_string(data), Path(path))
        pickle.dump(_compare(cast, feeds, expected) if expected else _not_run(ranges.why), answers)
        answers.flush()


def _feeds(
    model: OnnxModel, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[Any]]:
    fixed = {spec.name: tuple(size for size in spec.dims if isinstance(size, int)) for spec in model.inputs}
    sizes = {name: shapes.get(name, size) for name, size in fixed.items()}
    if sum(math.prod(shape) for shape in sizes.values()) > _MOST_ELEMENTS:
        raise ValueError("its inputs are too large")
    feeds = onnxruntime.random_feeds(model.inputs, sizes)
    for name, given in values.items():
        feeds[name] = np.asarray(given, feeds[name].dtype).reshape(feeds[name].shape)
    return feeds


def _measure(model: OnnxModel, feeds: dict[str, NDArray[Any]]) -> tuple[Ranges, dict[str, Any]]:
    """Runs the model with the largest magnitude of every tensor as further outputs, which take no memory."""
    outputs = list(model.outputs)
    names = _measurable(model)
    why = ""
    # A reduction refuses a tensor that is empty: with a zero put beside it none is, at the price of a copy.
    for padded in (False, True):
        session = onnxruntime.session(_with_ranges(model, names, padded))
        if isinstance(session, str):
            why = f"ONNX Runtime does not load the model: {session}"
            continue
        try:
            results = session.run(None, feeds)
        except Exception as error:  # It raises its own types, one for each status.
            why = f"ONNX Runtime does not run the model: {onnxruntime.first_line(error)}"
            continue
        measured = [float(value) for value in results[len(outputs) :]]
        largest = {name: value for name, value in zip(names, measured, strict=True) if value != -math.inf}
        return Ranges(largest), dict(zip(outputs, results, strict=False))
    raise RuntimeError(why)


def _measurable(model: OnnxModel) -> list[str]:
    """Returns the float32 tensors of the main graph that inputs or nodes make."""
    types = model.inferred_types[0]
    given = [spec.name for spec in model.inputs]
    made = [name for node in model.proto.graph.node for name in node.output if name and node.op_type != "Constant"]
    return [name for name in (*given, *made) if types.get(name) == onnx.TensorProto.FLOAT]


def _with_ranges(model: OnnxModel, names: list[str], padded: bool) -> OnnxModel:
    """Returns a copy with the largest magnitude of each tensor as a further output."""
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
        graph.output.append(helper.make_tensor_value_info(at, onnx.TensorProto.FLOAT, []))
    return OnnxModel(proto, model.path)


def _compare(cast: OnnxModel, feeds: dict[str, NDArray[Any]], expected: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.session(cast)
    if isinstance(session, str):
        return _not_run(f"ONNX Runtime does not load the cast model: {session}")
    try:
        results = session.run(list(expected), feeds)
    except Exception as error:
        return _not_run(f"ONNX Runtime does not run the cast model: {onnxruntime.first_line(error)}")
    errors = {name: _difference(expected[name], got) for name, got in zip(expected, results, strict=True)}
    return {"max_relative_error": max(errors.values(), default=0.0), "why": None, "outputs": errors}


def _difference(expected: Any, got: Any) -> float:
    """Returns the relative error of floats, and for other types the share of elements that differ."""
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        return 0.0
    if expected.dtype.kind == "f":
        return onnxruntime.relative_error(expected, got)
    # How many there are may depend on the values, as of the boxes that a detector finds.
    return float(np.mean(expected != got)) if expected.shape == got.shape and expected.size else 0.0
