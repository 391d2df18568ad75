"""If, Loop and Scan whose graphs hold operators that references run: each graph runs by itself, the rest is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.arrays import Array
from trtconv.graph.attributes import attributes_of
from trtconv.graph.walk import captured

Key = tuple[object, ...]
Run = Callable[[Key, Callable[[], onnx.ModelProto], Mapping[str, Array]], list[Array]]
"""Runs a graph as a model of its own: the same key stands for the same model."""
CONTROL = ("If", "Loop", "Scan")


class Body:
    """A graph inside a node, which sees tensors around it.

    Args:
        whole: The model.
        graph: The graph.
        outside: Returns a tensor around it.
        key: Tells it from other graphs of the model.
        run: Runs a model.
    """

    def __init__(
        self, whole: onnx.ModelProto, graph: onnx.GraphProto, outside: Callable[[str], Array], key: Key, run: Run
    ) -> None:
        self._whole = whole
        self._key = key
        self._graph = graph
        self._run = run
        self._around = {name: outside(name) for name in sorted(captured(graph)) if name}
        self.outputs = len(graph.output)

    def __call__(self, *inputs: Any) -> list[Array]:
        """Runs it."""
        names = [value.name for value in self._graph.input]
        own = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True)}
        feeds = {**self._around, **own}
        types = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
        return self._run((*self._key, *types.items()), lambda: self._model(types), feeds)

    def _model(self, types: Mapping[str, int]) -> onnx.ModelProto:
        model = onnx.ModelProto(ir_version=self._whole.ir_version)
        model.opset_import.extend(self._whole.opset_import)
        model.functions.extend(self._whole.functions)
        model.graph.CopyFrom(self._graph)
        del model.graph.input[:]
        model.graph.input.extend(helper.make_tensor_value_info(name, kind, None) for name, kind in types.items())
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        return model


def run_control(
    node: onnx.NodeProto, inputs: Sequence[Any], body: Callable[[str, onnx.GraphProto], Body]
) -> list[Array]:
    """Returns the outputs of an If, Loop or Scan.

    Args:
        node: The node.
        inputs: Its inputs, None for one that is left out.
        body: Makes what runs a graph of it, by the attribute that it is.
    """
    attributes = attributes_of(node)
    if node.op_type == "If":
        name = "then_branch" if np.asarray(inputs[0]).reshape(-1)[0] else "else_branch"
        return body(name, attributes[name])()
    if node.op_type == "Loop":
        return _loop(body("body", attributes["body"]), inputs)
    return _scan(body("body", attributes["body"]), inputs, attributes)


def _loop(body: Body, inputs: Sequence[Any]) -> list[Array]:
    most, goes_on, *states = inputs
    count = None if most is None else int(np.asarray(most).reshape(-1)[0])
    goes_on, number = True if goes_on is None else np.asarray(goes_on).reshape(-1)[0], 0
    rows: list[list[Array]] = [[] for _ in range(body.outputs - 1 - len(states))]
    while goes_on and (count is None or number < count):
        condition, *outputs = body(np.array(number, np.int64), np.array(True), *states)
        goes_on, number = np.asarray(condition).reshape(-1)[0], number + 1
        states = outputs[: len(states)]
        for row, value in zip(rows, outputs[len(states) :], strict=True):
            row.append(value)
    return [*states, *(np.stack(row) if row else np.zeros(0, np.float32) for row in rows)]


def _scan(body: Body, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Array]:
    scanned = attributes["num_scan_inputs"]
    states, sequences = list(inputs[: len(inputs) - scanned]), inputs[len(inputs) - scanned :]
    results = body.outputs - len(states)
    axes = attributes.get("scan_input_axes", [0] * scanned)
    turned = attributes.get("scan_input_directions", [0] * scanned)
    rows: list[list[Array]] = [[] for _ in range(results)]
    steps = [np.moveaxis(np.asarray(sequence), axis, 0) for sequence, axis in zip(sequences, axes, strict=True)]
    steps = [step[::-1] if back else step for step, back in zip(steps, turned, strict=True)]
    for number in range(len(steps[0])):
        outputs = body(*states, *(step[number] for step in steps))
        states = outputs[: len(states)]
        for row, value in zip(rows, outputs[len(states) :], strict=True):
            row.append(value)
    ends = attributes.get("scan_output_axes", [0] * results)
    back = attributes.get("scan_output_directions", [0] * results)
    stacked = (
        np.stack(row[::-1] if reverse else row, axis) for row, axis, reverse in zip(rows, ends, back, strict=True)
    )
    return [*states, *stacked]
