"""Writes Loop and Scan with the inputs that a parser wants of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.passes.base import PassResult
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.trip_counts import goes_on, trip_count
from trtconv.passes.spelling.writer import Unwritable, Writer

_CONDITION = 1
_SCAN_OPSET = 9
"""Before it, a Scan goes over batches."""


class CompleteIterations(Spelling):
    """Gives a Loop a condition, a trip count and a number as the parser wants them, and a Scan a state.

    TensorRT's parser takes no Loop without a condition that it begins with, and no Scan that carries nothing from one
    step to the next. Where a Loop begins with an input of the network, the parser gives that input the name that the
    condition has inside the body; a copy of it keeps the input's. The number of the iteration is always a scalar to it,
    also where the body declares a list of one, as tf2onnx writes. Where a Loop has outputs of each iteration it must
    say how many there are: a condition that counts from one constant to another says it.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2] x) => (float[3,2] y)
        { y = Scan <num_scan_inputs = 1, body = b (float[2] r) => (float[2] z) { z = Relu (r) }> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2] x) => (float[3,2] y) <bool nothing = {0}> {
          last, y = Scan <num_scan_inputs = 1,
                          body = b (bool s, float[2] r) => (bool t, float[2] z) { z = Relu (r)  t = Identity (s) }>
                    (nothing, x)
        }
    """

    name = "complete-iterations"
    ops = frozenset({"Loop", "Scan"})

    def __init__(self, depth: int | None = None) -> None:
        """Args: depth: In how many others the graphs are that it looks at; None: all."""
        self._depth = depth

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        # The inner ones first: a node is written again with its graphs.
        depths = sorted({_depth(scope) for scope in model.scopes if self._sites(scope, target)}, reverse=True)
        rounds = [CompleteIterations(depth)._round(model, target) for depth in depths]
        return PassResult(
            tuple(edit for result in rounds for edit in result.edits),
            tuple(skip for result in rounds for skip in result.skipped),
        )

    def _sites(self, scope: Scope, target: Target) -> list[int]:
        return super()._sites(scope, target) if self._depth in (None, _depth(scope)) else []

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        inputs = columns.inputs[index]
        if columns.ops[index] == "Loop":
            body = attribute(columns.nodes[index], "body")
            return not inputs[0] or _wants_condition(scope, inputs) or (body is not None and _counts_in_lists(body))
        return bool(len(inputs) == attribute(columns.nodes[index], "num_scan_inputs", 0))

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs = list(writer.node.input)
        if writer.node.op_type == "Loop":
            return _loop(writer, inputs)
        if writer.opset < _SCAN_OPSET:
            raise Unwritable(f"the Scan of opset {writer.opset} goes over batches")
        state = writer.constant(np.array(False))
        last = writer.model.fresh_name(f"{writer.node.name}/last")
        writer.again([state, *inputs], [last, *writer.node.output], body=_with_state(writer))
        return "a state that nothing reads added, for there has to be one"


def _is_input(scope: Scope, name: str) -> bool:
    """Whether a tensor, as a graph sees it, is an input of the model."""
    while scope.parent is not None and not (
        name in scope.producers or name in scope.initializers or name in {value.name for value in scope.graph.input}
    ):
        scope = scope.parent
    return scope.parent is None and name not in scope.producers and name not in scope.initializers


def _depth(scope: Scope) -> int:
    """Returns how many graphs a graph is in."""
    depth, around = 0, scope.parent
    while around is not None:
        depth, around = depth + 1, around.parent
    return depth


def _wants_condition(scope: Scope, inputs: Sequence[str]) -> bool:
    """Whether a Loop begins without a condition, or with one that is an input of the model."""
    return len(inputs) > _CONDITION and (not inputs[_CONDITION] or _is_input(scope, inputs[_CONDITION]))


def _counts_in_lists(body: onnx.GraphProto) -> bool:
    """Whether the number of the iteration is declared as a list of one."""
    return bool(body.input) and len(body.input[0].type.tensor_type.shape.dim) == 1


def _loop(writer: Writer, inputs: list[str]) -> str:
    """Writes a Loop with a condition and numbers as the parser has them; returns what was done."""
    words, changes = list[str](), dict[str, onnx.GraphProto]()
    if not inputs[0]:
        count = trip_count(writer.scope, writer.node, writer.model.proto.opset_import)
        if count is not None:
            inputs[0] = writer.constant(np.array(count, np.int64))
            words.append(f"its condition ends it after {count} times, written as its trip count")
    if _wants_condition(writer.scope, inputs):
        words.append(_begin(writer, inputs))
    if _counts_in_lists(writer.attrs["body"]):
        changes["body"] = _with_scalar(writer)
        words.append("the number of its iteration is a scalar")
    if not words:
        raise Unwritable
    writer.again(inputs, **changes)
    return "; ".join(words)


def _begin(writer: Writer, inputs: list[str]) -> str:
    """Gives a Loop a condition that a node makes, or that is always true."""
    condition = inputs[_CONDITION]
    if not condition and not goes_on(writer):
        raise Unwritable("it begins without a condition, and whether one of its body ends it is read both ways")
    inputs[_CONDITION] = writer("Identity", condition) if condition else writer.constant(np.array(True))
    return f"it begins with a copy of {condition}" if condition else "the condition that it begins with written as true"


def _with_scalar(writer: Writer) -> onnx.GraphProto:
    """Returns the body of a Loop that makes a list of one of the number of its iteration."""
    body = onnx.GraphProto()
    body.CopyFrom(writer.attrs["body"])
    number, length = (writer.model.fresh_name(f"{writer.node.name}/{what}") for what in ("number", "length"))
    node = helper.make_node("Reshape", [number, length], [body.input[0].name], name=number)
    body.input[0].CopyFrom(helper.make_tensor_value_info(number, TensorProto.INT64, []))
    body.initializer.append(numpy_helper.from_array(np.array([1], np.int64), length))
    nodes = [node, *body.node]
    del body.node[:]
    body.node.extend(nodes)
    return body


def _with_state(writer: Writer) -> onnx.GraphProto:
    """Returns the body of a Scan with a state that stays as it is."""
    body = onnx.GraphProto()
    body.CopyFrom(writer.attrs["body"])
    before, after = (writer.model.fresh_name(f"{writer.node.name}/state") for _ in range(2))
    for values, name in ((body.input, before), (body.output, after)):
        rest = list(values)
        del values[:]
        values.extend([helper.make_tensor_value_info(name, TensorProto.BOOL, []), *rest])
    body.node.append(helper.make_node("Identity", [before], [after], name=after))
    return body
