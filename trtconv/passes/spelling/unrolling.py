"""Loops over sequences, which no parser has, as what they do, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from trtconv.core.target import Target
from trtconv.graph.bodies import renamed
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.graph.walk import all_nodes
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_NUMBER, _CONDITION = 0, 1
_MOST_STEPS = 256
_MOST_NODES = 20_000
"""Of all steps together."""


class UnrollLoops(Spelling):
    """Writes a Loop that has sequences inside, and a fixed number of steps, as the nodes of each step.

    TensorRT's parser has no sequences: once there is no loop around them, unpack-sequences writes them as the tensors
    that they hold. torch's older exporter writes such a loop for a split at places of its own, and for each loop of a
    scripted module that goes through a list.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, float[4] z) => (float[4] y) <int64 two = {2}, bool on = {1}> {
          y = Loop <body = b (int64 i, bool c, float[4] p) => (bool d, float[4] q)
                           { s = SequenceConstruct (p, x)  t = SequenceAt (s, i)  q = Neg (t)  d = Identity (c) }>
              (two, on, z)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, float[4] z) => (float[4] y) <int64 zero = {0}, int64 one = {1}> {
          s = SequenceConstruct (z, x)  t = SequenceAt (s, zero)  p = Neg (t)
          r = SequenceConstruct (p, x)  u = SequenceAt (r, one)   q = Neg (u)  y = Identity (q)
        }
    """

    name = "unroll-loops"
    ops = frozenset({"Loop"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return any(
            "Sequence" in node.op_type
            for attribute in scope.columns.attributes[index]
            if attribute.name == "body"
            for node in attribute.g.node
        )

    def write(self, writer: Writer, target: Target) -> str | None:
        body: onnx.GraphProto = writer.attrs["body"]
        steps = _steps(writer, body)
        if steps > _MOST_STEPS or steps * len(body.node) > _MOST_NODES:
            raise Unwritable(f"its {steps} steps of {len(body.node)} nodes are too many to be written one by one")
        states = list(writer.node.input[2:])
        stacks: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(states))]
        for number in range(steps):
            results = _step(writer, body, number, states)
            states = results[: len(states)]
            for stack, tensor in zip(stacks, results[len(states) :], strict=True):
                stack.append(tensor)
        for slot, state in enumerate(states):
            if writer.output(slot):
                writer("Identity", state, to=writer.output(slot))
        for slot, stack in enumerate(stacks, len(states)):
            if writer.output(slot):
                rows = [writer.unsqueeze(tensor, [0]) for tensor in stack]
                writer("Concat", *rows, axis=0, to=writer.output(slot))
        return f"its {steps} steps written one after the other"


def _steps(writer: Writer, body: onnx.GraphProto) -> int:
    """Returns how often a Loop is gone through."""
    if not writer.input(_NUMBER):
        raise Unwritable("how many steps it takes is known only at run time")
    steps = int(writer.values(_NUMBER, "steps").reshape(()))
    begins = writer.values(_CONDITION, "condition").all() if writer.input(_CONDITION) else True
    if steps <= 0 or not begins:
        raise Unwritable("it takes no step")
    if not _goes_on(writer, body):
        raise Unwritable("whether a condition ends it is known only at run time")
    return steps


def _goes_on(writer: Writer, body: onnx.GraphProto) -> bool:
    """Whether the condition that the body makes is the one that it is given, or true."""
    makers: Mapping[str, onnx.NodeProto] = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type in ("Identity", "Cast"):
        name = makers[name].input[0]
    if name == body.input[_CONDITION].name:
        return True
    inner = next(
        (scope for scope in writer.model.scopes if scope.parent is writer.scope and scope.graph == body), writer.scope
    )
    values: NDArray[np.generic] | None = resolved(inner, name, writer.model.proto.opset_import)
    return values is not None and bool(values.all())


def _step(writer: Writer, body: onnx.GraphProto, number: int, states: list[str]) -> list[str]:
    """Writes one step; returns the states behind it, and what it adds to each stack."""
    own = {
        body.input[_NUMBER].name: writer.constant(_as_declared(body.input[_NUMBER], number, np.int64)),
        body.input[_CONDITION].name: writer.constant(_as_declared(body.input[_CONDITION], True, np.bool_)),
        **{value.name: state for value, state in zip(body.input[2:], states, strict=True)},
    }
    stem = f"{writer.node.name or writer.node.output[0]}/{number}"
    results = [writer.model.fresh_name(f"{stem}/{value.name}") for value in body.output]
    step = helper.make_node("Loop", [], results, name=stem)
    nodes, constants = renamed(body, step, writer.model.fresh_name, own)
    # That it goes on, nobody asks any more.
    is_asked = any(results[0] in node.input for node in all_nodes(nodes))
    writer.nodes += [node for node in nodes if is_asked or list(node.output) != results[:1]]
    writer.initializers += constants
    return results[1:]


def _as_declared(value: onnx.ValueInfoProto, content: object, dtype: type[np.generic]) -> NDArray[np.generic]:
    """Returns a number as the body declares it: some exporters make a list of one of it, and ONNX Runtime does then."""
    return np.full([1] * len(value.type.tensor_type.shape.dim), content, dtype)
