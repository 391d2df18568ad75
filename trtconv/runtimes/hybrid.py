"""A model with operators that are not ONNX's: ONNX Runtime runs what lies between them, references run them.

The main graph is divided into stages. A stage has the nodes that need the results of as many such operators one after
the other; ONNX Runtime runs it as a model of its own, then the references run that are next. An If, Loop or Scan with
such operators inside counts as one of them, and its graphs run in the same way. What types the results of references
have is seen when they are there, so that the sessions of later stages are made at the first run.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.arrays import Array
from trtconv.graph.external_data import array_of
from trtconv.graph.walk import reads
from trtconv.runtimes.foreign_nodes import ForeignNode, ReferenceFailed
from trtconv.runtimes.hybrid_bodies import Body, Key, run_control

Load = Callable[[onnx.ModelProto], Any]
"""Makes a session of a model of ONNX's operators alone; a text says why it cannot."""


class Named(NamedTuple):
    """An output, as sessions of ONNX Runtime tell of one."""

    name: str


class HybridSession:
    """Runs such a model as an InferenceSession would.

    Args:
        model: The model; its nodes must be in an order in which they can run.
        foreign: The nodes that references run, by position.
        holders: The nodes in whose graphs there are such ones.
        folder: Where external data lies.
        load: Makes a session of a stage.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        foreign: Mapping[int, ForeignNode],
        holders: Collection[int],
        folder: Path,
        load: Load,
    ) -> None:
        self._model = model
        self._foreign = foreign
        self._apart = {*foreign, *holders}
        self._folder = folder
        self._load = load
        self._outputs = [value.name for value in model.graph.output]
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in model.graph.sparse_initializer}
        self._stages, self._calls = self._divide()
        self._sessions: dict[tuple[Any, ...], Any] = {}
        self._bodies: dict[Key, Any] = {}

    def get_inputs(self) -> list[Named]:
        """Returns the inputs."""
        return [Named(value.name) for value in self._model.graph.input if value.name not in self._weights]

    def get_outputs(self) -> list[Named]:
        """Returns the outputs."""
        return [Named(name) for name in self._outputs]

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Runs the model.

        Args:
            names: Outputs that are wanted; None: all.
            feeds: Its inputs.

        Raises:
            ReferenceFailed: A reference raised.
            Exception: Whatever ONNX Runtime raises.
        """
        values: dict[str, Any] = dict(feeds)
        for stage, calls in zip(self._stages, self._calls, strict=True):
            needs = self._needs(stage)
            if needs:
                values.update(zip(needs, self._run(stage, needs, values), strict=True))
            for index in calls:
                if index in self._foreign:
                    self._call(self._foreign[index], values)
                else:
                    self._control(self._model.graph.node[index], values)
        return [values[name] if name in values else self._constant(name) for name in (names or self._outputs)]

    def _divide(self) -> tuple[list[list[int]], list[list[int]]]:
        """Returns for each stage its nodes, and the calls of references that follow."""
        levels: dict[str, int] = collections.defaultdict(int)
        stages: dict[int, list[int]] = collections.defaultdict(list)
        calls: dict[int, list[int]] = collections.defaultdict(list)
        for index, node in enumerate(self._model.graph.node):
            level = max((levels[name] for name in reads(node)), default=0)
            (calls if index in self._apart else stages)[level].append(index)
            levels.update(dict.fromkeys(filter(None, node.output), level + (index in self._apart)))
        count = max([*stages, *calls], default=0) + 1
        return [stages[level] for level in range(count)], [calls[level] for level in range(count)]

    def _needs(self, stage: Sequence[int]) -> list[str]:
        """Returns what others need of a stage."""
        nodes = self._model.graph.node
        inside = set(stage)
        needed = set(self._outputs).union(*(reads(node) for i, node in enumerate(nodes) if i not in inside))
        return [name for index in stage for name in nodes[index].output if name in needed]

    def _run(self, stage: Sequence[int], names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
        nodes = [self._model.graph.node[index] for index in stage]
        outputs = {name for node in nodes for name in node.output}
        inputs = sorted({name for node in nodes for name in reads(node)} - outputs)
        feeds = {name: np.asarray(values[name]) for name in inputs if name in values}
        key = (stage[0], tuple((name, str(array.dtype)) for name, array in feeds.items()))
        if key not in self._sessions:
            self._sessions[key] = self._load(self._part(nodes, inputs, feeds, names))
        session = self._sessions[key]
        if isinstance(session, str):
            raise ValueError(session)
        results: list[Any] = session.run(list(names), feeds)
        return results

    def _part(
        self, nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], feeds: Mapping[str, Array], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        """Returns a stage as a model."""
        part = onnx.ModelProto(ir_version=self._model.ir_version)
        part.opset_import.extend(self._model.opset_import)
        part.functions.extend(self._model.functions)
        part.graph.name = "stage"
        part.graph.node.extend(nodes)
        for name in inputs:
            if name in feeds:
                kind = helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
                part.graph.input.add(name=name).type.tensor_type.elem_type = kind
            elif name in self._weights:
                part.graph.initializer.add().CopyFrom(self._weights[name])
            elif name in self._sparse:
                part.graph.sparse_initializer.add().CopyFrom(self._sparse[name])
        part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return part

    def _control(self, node: onnx.NodeProto, values: dict[str, Any]) -> None:
        """Runs an If, Loop or Scan."""

        def outside(name: str) -> Array:
            return np.asarray(values[name]) if name in values else self._constant(name)

        inputs = [outside(name) if name else None for name in node.input]
        results = run_control(
            node, inputs, lambda name, graph: Body(self._model, graph, outside, (*node.output, name), self._run_body)
        )
        values.update((name, value) for name, value in zip(node.output, results, strict=True) if name)

    def _run_body(self, key: Key, make: Callable[[], onnx.ModelProto], feeds: Mapping[str, Array]) -> list[Any]:
        if key not in self._bodies:
            self._bodies[key] = self._load(make())
        session = self._bodies[key]
        if isinstance(session, str):
            raise ValueError(session)
        results: list[Any] = session.run(None, dict(feeds))
        return results

    def _call(self, call: ForeignNode, values: dict[str, Any]) -> None:
        node = call.node
        inputs = [None if not name else values[name] if name in values else self._constant(name) for name in node.input]
        try:
            results = call.reference(inputs, call.attributes)
        except Exception as error:  # It is the user's code.
            why = f"the reference of {node.op_type} raised {type(error).__name__}: {error}"
            raise ReferenceFailed(why) from error
        if len(results) < len(node.output):
            raise ReferenceFailed(
                f"the reference of {node.op_type} returns {len(results)} arrays for {len(node.output)} outputs"
            )
        values.update((name, value) for name, value in zip(node.output, results, strict=False) if name)

    def _constant(self, name: str) -> Array:
        return array_of(self._weights[name], self._folder / "model.onnx")
