"""How often a Loop is gone through whose condition counts from constants to constants."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.arrays import Array
from trtconv.graph.attributes import attribute
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import constant_of
from trtconv.passes.spelling.writer import Writer

_MOST_ROUNDS = 10_000
_MOST_NODES = 64
_COUNTING: Mapping[str, Callable[..., Any]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum},
    **{"Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal},
    **{"Equal": np.equal, "And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not},
    **dict.fromkeys(("Cast", "Identity"), np.asarray),
}
"""Operators that a condition is made of."""
_JOINING = ("Max", "Min")


def trip_count(scope: Scope, loop: onnx.NodeProto, opsets: Iterable[Any]) -> int | None:
    """Returns how often a Loop without a trip count is gone through; None where that is known only at run time.

    Args:
        opsets: The model's.
    """
    counting = _Counting(scope, loop, list(opsets))
    begin = counting.constant(loop.input[1]) if len(loop.input) > 1 and loop.input[1] else np.array(True)
    if begin is None or not begin.all():
        return None
    try:
        return counting.rounds()
    except _Unknown:
        return None


def goes_on(writer: Writer) -> bool:
    """Whether the condition that the body of a Loop makes is the one that it is given, or true."""
    body: onnx.GraphProto = writer.attrs["body"]
    makers = {name: node for node in body.node if node.domain in ONNX_DOMAINS for name in node.output}
    name = source = body.output[0].name
    while source in makers and makers[source].op_type in ("Identity", "Cast"):
        source = makers[source].input[0]
    if source == body.input[1].name:
        return True
    inner = next(
        (scope for scope in writer.model.scopes if scope.parent is writer.scope and scope.graph == body), writer.scope
    )
    values = resolved(inner, name, writer.model.proto.opset_import)
    return values is not None and bool(values.all())


class _Unknown(Exception):
    """The condition hangs on what is known only at run time."""


class _Counting:
    """What the condition of a Loop is computed by, from one round to the next.

    Args:
        scope: The graph that the loop is in.
        loop: The node.
        opsets: The model's.
    """

    def __init__(self, scope: Scope, loop: onnx.NodeProto, opsets: list[Any]) -> None:
        self._scope = scope
        self._loop = loop
        self._opsets = opsets
        self._body = attribute(loop, "body")
        self._makers = {name: node for node in self._body.node for name in node.output if name}
        self._initializers = {tensor.name: tensor for tensor in self._body.initializer}
        self._values: dict[str, Array] = {}
        self._steps: dict[str, onnx.NodeProto | None] = {}
        """Tensors to the nodes that make them, in order; None while one is looked at."""
        self._carried: dict[str, str] = {}
        """States that the condition hangs on, to what the body makes of each."""

    def constant(self, name: str) -> Array | None:
        """Returns what the graph around the loop has of a name; None where that is known only at run time."""
        return resolved(self._scope, name, self._opsets)

    def rounds(self) -> int | None:
        """Returns the number of rounds; None: more than are tried.

        Raises:
            _Unknown: The condition hangs on what is known only at run time.
        """
        condition = self._body.output[0].name
        open_ = [condition]
        while open_:
            self._visit(open_.pop(), open_)
        values = self._values
        steps = [(name, node) for name, node in self._steps.items() if node is not None]
        for count in range(_MOST_ROUNDS):
            values[self._body.input[0].name] = np.array(count, np.int64)
            for name, node in steps:
                values[name] = _computed(node, [values[source] for source in node.input])
            if not values[condition].all():
                return count + 1
            values.update({state: values[after] for state, after in self._carried.items()})
        return None

    def _visit(self, name: str, later: list[str]) -> None:
        """Collects what a tensor is made of, each node behind what it reads; puts off what a state becomes."""
        if name in self._values or name in self._steps:
            return
        node = self._makers.get(name)
        constant = None if node is None else constant_of(node)
        if node is None or constant is not None:
            self._values[name] = self._begin(name, later) if constant is None else self._scope.whole.array(constant)
            return
        if len(self._steps) >= _MOST_NODES or node.domain not in ONNX_DOMAINS or node.op_type not in _COUNTING:
            raise _Unknown
        self._steps[name] = None
        for source in node.input:
            self._visit(source, later)
        # Behind what it reads.
        del self._steps[name]
        self._steps[name] = node

    def _begin(self, name: str, later: list[str]) -> Array:
        """Returns what a tensor that no node of the body makes is in the first round."""
        places = [value.name for value in self._body.input]
        if name in places[:2]:
            return np.array(0 if name == places[0] else True)
        if name in self._initializers:
            return self._scope.whole.array(self._initializers[name])
        source = name
        if name in places:
            slot = places.index(name)
            source, self._carried[name] = self._loop.input[slot], self._body.output[slot - 1].name
            later.append(self._carried[name])
        value = self.constant(source)
        if value is None or value.size != 1:
            raise _Unknown
        return value


def _computed(node: onnx.NodeProto, inputs: list[Array]) -> Array:
    if node.op_type == "Cast":
        return np.asarray(inputs[0], helper.tensor_dtype_to_np_dtype(attribute(node, "to")))
    function = _COUNTING[node.op_type]
    with np.errstate(all="ignore"):
        # Max and Min have any number of inputs.
        return np.asarray(functools.reduce(function, inputs) if node.op_type in _JOINING else function(*inputs))
