"""Writes Loop and Scan with the inputs that a parser wants of them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.walk import constant_of
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_CONDITION = 1
_SCAN_OPSET = 9
"""Before it, a Scan goes over batches."""


class CompleteIterations(Spelling):
    """Gives a Loop a condition, and a Scan a state, where they have none.

    TensorRT's parser takes no Loop without a condition that it begins with, and no Scan that carries nothing from one
    step to the next.

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

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        inputs = columns.inputs[index]
        if columns.ops[index] == "Loop":
            return len(inputs) > _CONDITION and not inputs[_CONDITION]
        return len(inputs) == next((a.i for a in columns.attributes[index] if a.name == "num_scan_inputs"), 0)

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs = list(writer.node.input)
        if writer.node.op_type == "Loop":
            if not _goes_on(writer.attrs["body"]):
                raise Unwritable("it begins without a condition, and whether one of its body ends it is read both ways")
            inputs[_CONDITION] = writer.constant(np.array(True))
            writer.again(inputs)
            return "the condition that it begins with written as true"
        if writer.opset < _SCAN_OPSET:
            raise Unwritable(f"the Scan of opset {writer.opset} goes over batches")
        state = writer.constant(np.array(False))
        last = writer.model.fresh_name(f"{writer.node.name}/last")
        writer.again([state, *inputs], [last, *writer.node.output], body=_with_state(writer))
        return "a state that nothing reads added, for there has to be one"


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the condition that the body of a Loop makes is the one that it is given, or true."""
    name = body.output[0].name
    makers = {output: node for node in body.node for output in node.output}
    constants = {tensor.name: tensor for tensor in body.initializer}
    while name in makers and makers[name].op_type in ("Identity", "Cast"):
        name = makers[name].input[0]
    constant = constants.get(name) if name not in makers else constant_of(makers[name])
    return name == body.input[_CONDITION].name or (constant is not None and bool(numpy_helper.to_array(constant).all()))


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
