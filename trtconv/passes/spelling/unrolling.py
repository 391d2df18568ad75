"""Loops over sequences, which no parser has, and over sizes that grow, which no builder has, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from trtconv.core.target import Target
from trtconv.graph.bodies import renamed
from trtconv.graph.chance import RANDOM
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes, inner_graphs, reads
from trtconv.passes.base import PassResult
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.trip_counts import goes_on
from trtconv.passes.spelling.writer import Unwritable, Writer

_NUMBER, _CONDITION = 0, 1
_OF_SEQUENCES = frozenset(
    {
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
        *("SplitToSequence", "ConcatFromSequence"),
    }
)
_SIZED_BY: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("Pad", "Expand", "Reshape", "Tile", "Split", "TopK", "OneHot", "Upsample"), (1,)),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
}
"""Operator to the inputs that its sizes hang on."""
_COPIES_SEQUENCES = 14
"""The opset from which an Identity takes a sequence."""
_MOST_STEPS = 256
_MOST_NODES = 20_000
"""Of all steps together."""


class UnrollLoops(Spelling):
    """Writes a Loop of a fixed number of steps as the nodes of each step, if it has sequences or its sizes change.

    TensorRT's parser has no sequences: once there is no loop around them, unpack-sequences writes them as the tensors
    that they hold. torch's older exporter writes such a loop for a split at places of its own, and for each loop of a
    scripted module that goes through a list. Where sizes inside follow from the number of the step, as in `x[:i]` or
    tf.math.cumprod, the parser takes the loop, and the builder refuses it without a name.

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
          r = SequenceConstruct (p, x)  u = SequenceAt (r, one)   y = Neg (u)
        }
    """

    name = "unroll-loops"
    ops = frozenset({"Loop"})

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = more = super().run(model, target)
        # One around others follows once these are gone.
        while more.edits:
            more = super().run(model, target)
            result = PassResult((*result.edits, *more.edits), more.skipped)
        return result

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        body = next((attribute.g for attribute in scope.columns.attributes[index] if attribute.name == "body"), None)
        if body is None:
            return False
        ops = {node.op_type for node in all_nodes(body.node) if node.domain in ONNX_DOMAINS}
        return ops.isdisjoint(("Loop", "Scan")) and (
            not ops.isdisjoint(_OF_SEQUENCES) or (not ops.isdisjoint(_SIZED_BY) and _has_moving_sizes(body))
        )

    def write(self, writer: Writer, target: Target) -> str | None:
        body: onnx.GraphProto = writer.attrs["body"]
        steps = _steps(writer, body)
        if steps > _MOST_STEPS or steps * len(body.node) > _MOST_NODES:
            raise Unwritable(f"its {steps} steps of {len(body.node)} nodes are too many to be written one by one")
        if any(node.op_type in RANDOM for node in all_nodes(body.node)):
            raise Unwritable("each of its steps draws numbers of its own")
        weights = _weights(writer, body)
        states = list(writer.node.input[2:])
        count = len(states)
        stacks: list[list[str]] = [[] for _ in range(len(body.output) - 1 - count)]
        for number in range(steps):
            finals = writer.node.output[:count] if number == steps - 1 else ()
            results = _step(writer, body, number, {**weights, **_inputs(writer, body, number, states)}, finals)
            states = results[:count]
            for stack, tensor in zip(stacks, results[count:], strict=True):
                stack.append(tensor)
        for slot, (value, state) in enumerate(zip(body.output[1:], states, strict=False)):
            if writer.output(slot) not in ("", state):
                if value.type.HasField("sequence_type") and writer.opset < _COPIES_SEQUENCES:
                    raise Unwritable(f"opset {writer.opset} hands no sequence on")
                writer("Identity", state, to=writer.output(slot))
        for slot, stack in enumerate(stacks, count):
            if writer.output(slot):
                rows = [writer.unsqueeze(tensor, [0]) for tensor in stack]
                writer("Concat", *rows, axis=0, to=writer.output(slot))
        return f"its {steps} steps written one after the other"


def _has_moving_sizes(body: onnx.GraphProto) -> bool:
    """Whether sizes in a body follow from the number of the step, or from a state."""
    moving = {value.name for index, value in enumerate(body.input) if index != _CONDITION}
    return _sized_by(body.node, moving)


def _sized_by(nodes: Iterable[onnx.NodeProto], moving: set[str]) -> bool:
    """Whether a node has sizes by one of the tensors, to which what follows from them is added."""
    for node in nodes:
        places = _SIZED_BY.get(node.op_type, ()) if node.domain in ONNX_DOMAINS else ()
        if any(place < len(node.input) and node.input[place] in moving for place in places):
            return True
        if any(_sized_by(graph.node, moving) for graph in inner_graphs([node])):
            return True
        if node.op_type not in ("Shape", "Size") and not moving.isdisjoint(reads(node)):
            moving.update(node.output)
    return False


def _steps(writer: Writer, body: onnx.GraphProto) -> int:
    """Returns how often a Loop is gone through."""
    if not writer.input(_NUMBER):
        raise Unwritable("how many steps it takes is known only at run time")
    steps = int(writer.values(_NUMBER, "steps").reshape(()))
    begins = writer.values(_CONDITION, "condition").all() if writer.input(_CONDITION) else True
    if steps <= 0 or not begins:
        raise Unwritable("it takes no step")
    if not goes_on(writer):
        raise Unwritable("a condition ends it, or may end it")
    return steps


def _weights(writer: Writer, body: onnx.GraphProto) -> dict[str, str]:
    """Writes the constants of a body, once for all steps; returns their names there and here."""
    names = {}
    for tensor in body.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        names[tensor.name] = copy.name = writer.model.fresh_name(f"{_stem(writer)}/{tensor.name}")
        writer.initializers.append(copy)
    return names


def _stem(writer: Writer) -> str:
    return writer.node.name or next(filter(None, writer.node.output), "Loop")


def _inputs(writer: Writer, body: onnx.GraphProto, number: int, states: Sequence[str]) -> dict[str, str]:
    """Returns what the inputs of a body are at one step."""
    return {
        body.input[_NUMBER].name: writer.constant(_as_declared(body.input[_NUMBER], number, np.int64)),
        body.input[_CONDITION].name: writer.constant(_as_declared(body.input[_CONDITION], True, np.bool_)),
        **{value.name: state for value, state in zip(body.input[2:], states, strict=True)},
    }


def _step(
    writer: Writer, body: onnx.GraphProto, number: int, own: Mapping[str, str], finals: Sequence[str]
) -> list[str]:
    """Writes one step.

    Args:
        writer: Takes the nodes.
        body: Of the loop.
        number: Of the step.
        own: Names of the body to those here.
        finals: What the states are to be called, where it is the last step.

    Returns:
        The states behind it, and what it adds to each stack.
    """
    stem = f"{_stem(writer)}/{number}"
    makes = {name for node in body.node for name in node.output}
    results: dict[str, str] = {}
    for slot, value in enumerate(body.output):
        final = finals[slot - 1] if 0 < slot <= len(finals) else ""
        if value.name in makes and value.name not in results:
            results[value.name] = final or writer.model.fresh_name(f"{stem}/{value.name}")
    # Without its constants, which are there, and with what it makes alone: the rest it hands on.
    bare = onnx.GraphProto(node=body.node, output=[onnx.ValueInfoProto(name=name) for name in results])
    step = helper.make_node("Loop", [], list(results.values()), name=stem)
    nodes, _ = renamed(bare, step, writer.model.fresh_name, own)
    first, *rest = (results.get(value.name) or own.get(value.name, value.name) for value in body.output)
    # That it goes on, nobody asks any more.
    is_asked = first in rest or any(first in node.input for node in all_nodes(nodes))
    writer.nodes += [node for node in nodes if is_asked or list(node.output) != [first]]
    return rest


def _as_declared(value: onnx.ValueInfoProto, content: object, dtype: type[np.generic]) -> NDArray[np.generic]:
    """Returns a number as the body declares it: some exporters make a list of one of it, and ONNX Runtime does then."""
    return np.full([1] * len(value.type.tensor_type.shape.dim), content, dtype)
