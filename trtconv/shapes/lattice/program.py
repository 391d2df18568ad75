"""Reads a model's graph into nodes, and runs their shapes at many candidate sizes at once."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from trtconv.core import budget
from trtconv.core.findings import Location
from trtconv.graph.attributes import readable
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import python_line
from trtconv.graph.walk import constant_of, reads
from trtconv.shapes.lattice import elementwise, indexing, reducing, reshaping, windows
from trtconv.shapes.lattice.number import Num, is_mixed
from trtconv.shapes.lattice.reach import reach_of
from trtconv.shapes.lattice.registry import OPERATORS
from trtconv.shapes.lattice.repeats import Repeats
from trtconv.shapes.lattice.tensor import MAX_ELEMENTS, Tensor
from trtconv.shapes.lattice.trial import Node, Opaque, Trial

Revision = Callable[[int, Node, Mapping[str, Tensor]], Mapping[int, Tensor | None]]
"""Given a node's position, the node and the tensors before it, returns inputs to replace by their position."""
_MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    AssertionError,
    StopIteration,
)
_LOADED = (elementwise, indexing, reducing, reshaping, windows)
"""The modules that fill the table of operators."""


class Program:
    """The shapes of a network, ready to be run.

    Args:
        model: The model; not kept, not changed. Its model-local functions are inlined in a copy.
    """

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._work = 0
        self._repeats: Repeats
        # Of a run, which threads may ask for at the same time.
        self._lock = threading.RLock()
        graph = _inlined(model).graph if model.proto.functions else model.proto.graph
        indexed = not model.proto.functions
        self._opset = model.opset
        self.constants = {t.name: self._tensor(t) for t in graph.initializer}
        self._types = {v.name: _dtype(v.type.tensor_type.elem_type) for v in graph.input}
        # Sequences, and tensors of which not even the rank is declared.
        self._shapeless = {v.name for v in graph.input if not v.type.tensor_type.HasField("shape")}
        self.nodes = [self._node(i if indexed else None, n, "") for i, n in enumerate(graph.node)]
        self.outputs = {value.name for value in graph.output}
        self._subgraphs: dict[int, tuple[list[Node], dict[str, Tensor], list[str]]] = {}
        self.last_use = {name: i for i, n in enumerate(graph.node) for name in reads(n)}

    def run(
        self,
        rows: int,
        inputs: Mapping[str, Sequence[Num]],
        values: Mapping[str, Tensor] | None = None,
        *,
        keep: bool = False,
        revise: Revision | None = None,
    ) -> Trial:
        """Runs every node.

        Args:
            rows: Number of candidates.
            inputs: Shape of every input.
            values: Inputs whose elements are known.
            keep: Keep every tensor in the result, not just the outputs.
            revise: Asked before each node of the main graph for inputs to give it instead of its own.

        Returns:
            The conditions that the nodes imposed, and the tensors.
        """
        with self._lock:
            return self._run(Trial(rows), inputs, values or {}, keep, revise)

    def _run(
        self,
        trial: Trial,
        inputs: Mapping[str, Sequence[Num]],
        values: Mapping[str, Tensor],
        keep: bool,
        revise: Revision | None,
    ) -> Trial:
        self._work = 0
        self._repeats = Repeats(trial)
        tensors: dict[str, Tensor] = dict(self.constants)
        for name, dims in inputs.items():
            value = values.get(name)
            shape = None if name in self._shapeless else list(dims)
            if shape is None:
                trial.opaque[f"input {name}"] = "it does not declare a shape"
            tensors[name] = value if value is not None else Tensor(shape, None, self._types.get(name))
        for index, node in enumerate(self.nodes):
            self._step(trial, node, tensors, revise(index, node, tensors) if revise else {})
            if not keep:
                for name in node.inputs:
                    if self.last_use.get(name) == index and name not in self.outputs:
                        tensors.pop(name, None)
        trial.tensors = tensors if keep else {n: t for n, t in tensors.items() if n in self.outputs}
        return trial

    def _step(
        self, trial: Trial, node: Node, tensors: MutableMapping[str, Tensor], instead: Mapping[int, Tensor | None]
    ) -> None:
        trial.node = node
        inputs = [tensors.get(name) if name else None for name in node.inputs]
        for position, tensor in instead.items():
            inputs += [None] * (position + 1 - len(inputs))
            inputs[position] = tensor
        trial.compared += any(map(_is_choice, inputs))
        if node.op == "If" and node.domain == "":
            branch = self._branch(node, inputs)
            if branch is not None:
                self._run_branch(trial, node, branch, tensors)
                return
        outputs = self._outputs_of(trial, node, inputs)
        for position, name in enumerate(node.outputs):
            if name:
                tensors[name] = outputs[position] if position < len(outputs) else Tensor(None)

    def _outputs_of(self, trial: Trial, node: Node, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        try:
            outputs, is_new = self._repeats.outputs(node, inputs, lambda: _apply(trial, node, inputs))
        except Opaque as reason:
            return self._unknown(trial, node, inputs, str(reason))
        except _MALFORMED as error:
            # A malformed node must not pass for a valid one, nor stop the others from being looked at.
            return self._unknown(trial, node, inputs, f"it is malformed ({type(error).__name__})")
        self._work += (trial.rows if is_new else 1) * sum(1 + len(output.shape or ()) for output in outputs)
        budget.spend("candidates", self._work, f"looking at {trial.rows} sizes at once", node.location)
        blamed = any(other is node for other in trial.data_dependent) or any(map(_vague, inputs))
        if not blamed and any(map(_vague, outputs)):
            # An input whose elements are sizes, or sizes computed from data.
            trial.opaque.setdefault(node.label, "sizes of its output are known only at run time")
        return outputs

    def _unknown(self, trial: Trial, node: Node, inputs: Sequence[Tensor | None], reason: str) -> list[Tensor]:
        """Falls back on what ONNX's shape inference says; notes the node unless an earlier one is to blame."""
        blamed = any(t is not None and t.shape is None for t in inputs)
        if not blamed:
            trial.opaque.setdefault(node.label, reason)
        shapes = self._model.main.shapes if not node.location.graph else {}
        outputs = []
        for name in node.outputs:
            shape = shapes.get(name)
            outputs.append(Tensor(None if shape is None else [Num(None) if n is None else Num(n) for n in shape]))
        return outputs

    def _branch(self, node: Node, inputs: Sequence[Tensor | None]) -> Any:
        """Returns the branch of an If whose condition is the same at every candidate."""
        condition = inputs[0].data if inputs and inputs[0] is not None else None
        first = None if condition is None else next(iter(condition.flat), None)
        if first is None or not first.constant:
            return None
        return node.attrs.get("then_branch" if first.value else "else_branch")

    def _run_branch(self, trial: Trial, node: Node, graph: Any, tensors: MutableMapping[str, Tensor]) -> None:
        if id(graph) not in self._subgraphs:
            path = f"{node.location.node or f'If[{node.location.index}]'}/{graph.name}"
            nodes = [self._node(i, n, path) for i, n in enumerate(graph.node)]
            constants = {t.name: self._tensor(t) for t in graph.initializer}
            self._subgraphs[id(graph)] = nodes, constants, [v.name for v in graph.output]
        nodes, constants, results = self._subgraphs[id(graph)]
        inner: MutableMapping[str, Tensor] = ChainMap(dict(constants), tensors)
        for inner_node in nodes:
            self._step(trial, inner_node, inner, {})
        # A malformed branch may return more or fewer tensors than the node.
        for position, name in enumerate(node.outputs):
            result = results[position] if position < len(results) else ""
            tensors[name] = inner.get(result, Tensor(None))

    def _node(self, index: int | None, proto: Any, path: str) -> Node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attrs = {a.name: _attribute(a) for a in proto.attribute}
        if proto.op_type == "Constant" and not domain:
            constant = constant_of(proto)
            attrs["tensor"] = None if constant is None else self._tensor(constant)
        location = Location(path, index, proto.name, proto.op_type, source=python_line(proto))
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        return Node(proto.op_type, domain, inputs, outputs, attrs, location, self._opset, _short(location.source))

    def _tensor(self, proto: Any) -> Tensor:
        dtype = _dtype(proto.data_type)
        shape = [Num(n) for n in proto.dims]
        small = math.prod(proto.dims) <= MAX_ELEMENTS
        if not small or dtype is None or dtype.kind not in "iufb" or (uses_external_data(proto) and dtype.kind == "f"):
            return Tensor(shape, None, dtype)
        return Tensor.of_array(self._model.array(proto))


def _apply(trial: Trial, node: Node, inputs: Sequence[Tensor | None]) -> list[Tensor]:
    function = OPERATORS.get(f"{node.domain}::{node.op}" if node.domain else node.op)
    if function is None:
        raise Opaque("trtconv does not know the shapes of this operator")
    outputs = function(trial, node, inputs)
    if isinstance(outputs, list):
        return outputs
    if outputs.data is None and outputs.reach is None:
        outputs = dataclasses.replace(outputs, reach=reach_of(node, inputs, outputs))
    return [outputs]


def _is_choice(tensor: Tensor | None) -> bool:
    """Whether an element is the same number at every candidate of this run, and may be another at others."""
    return (
        tensor is not None
        and tensor.data is not None
        and any(n.constant and is_mixed(n.mask) for n in tensor.data.flat)
    )


def _vague(tensor: Tensor | None) -> bool:
    """Whether some size of a tensor is not known."""
    return tensor is not None and not tensor.is_known


def _inlined(model: OnnxModel) -> Any:
    copy = OnnxModel(model.skeleton(), model.path)
    copy.inline_functions()
    return copy.proto


def _dtype(code: int) -> np.dtype[Any] | None:
    try:
        dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
        return dtype
    except (KeyError, TypeError):
        return None


def _attribute(attribute: Any) -> Any:
    if attribute.HasField("g"):
        return attribute.g
    if attribute.HasField("t"):
        return _attribute_array(attribute.t)
    return _dtype(attribute.i) if attribute.name == "to" else readable(attribute)


def _attribute_array(tensor: Any) -> NDArray[Any] | None:
    if uses_external_data(tensor) or math.prod(tensor.dims) > MAX_ELEMENTS:
        return None
    values: NDArray[Any] = numpy_helper.to_array(tensor)
    return values


def _short(line: str) -> str:
    """Returns a line of Python without the folder of its file: "unet.py:47"."""
    return line.replace("\\", "/").rpartition("/")[2]
