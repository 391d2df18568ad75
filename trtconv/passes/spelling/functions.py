"""Expands operators by ONNX's own definition."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.bodies import BODY_DOMAINS, body_of, written_out
from trtconv.graph.model import OnnxModel
from trtconv.graph.operators import lacks_operator
from trtconv.graph.scope import Scope
from trtconv.passes.base import PassResult
from trtconv.passes.spelling.attention import has_kernel, is_plain
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.folded import fold_sizes
from trtconv.passes.spelling.writer import Unwritable, Writer

_LENGTHS = 6
"""The input of Attention that says how many keys count."""
_CAST_TYPES = frozenset({"bfloat16", "bool", "float16", "float32", "int32", "int64"})
_DEPTH = 4
"""How deep definitions are that use operators which have one themselves: a loss, its logarithm, its maximum."""


class ExpandFunctions(Spelling):
    """Writes operators that the target lacks, or lacks in one form, as ONNX itself defines them.

    A third of ONNX's operators have a definition in the standard: a function of simpler ones at the model's opset, in
    some cases one that depends on types and attributes. It is written out in place of the node.

    Before (tensorrt-10):
        <ir_version: 10, opset_import: ["": 24]>
        g (float[2,8] x) => (float[2,8] y) { y = Swish (x) }
    After:
        <ir_version: 10, opset_import: ["": 24]>
        g (float[2,8] x) => (float[2,8] y) <float alpha = {1}>
        { a = Mul (alpha, x)  s = Sigmoid (a)  y = Mul (x, s) }
    """

    name = "expand-functions"
    fixes = ("TC602", "TC603")

    ops = frozenset(
        (
            *("AffineGrid", "Attention", "BlackmanWindow", "CastLike", "CausalConvWithState", "Celu"),
            *("CenterCropPad", "DynamicQuantizeLinear", "FlexAttention", "Gelu", "GroupNormalization"),
            *("HammingWindow", "HannWindow", "LayerNormalization", "LinearAttention", "Mish"),
            *("NegativeLogLikelihoodLoss", "RMSNormalization", "RotaryEmbedding", "SoftmaxCrossEntropyLoss"),
            *("SwiGLU", "Swish"),
        )
    )
    domains = BODY_DOMAINS

    def __init__(self, in_half: bool = False) -> None:
        """Args: in_half: Whether the network is cast to a half type before it is built."""
        self._in_half = in_half

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        op = scope.columns.ops[index]
        if target.before(9) and _fails_on_8(scope, index):
            return False
        if lacks_operator(op, target):
            return True
        if op == "CastLike":
            # The parser casts to other types by a Cast alone.
            return scope.dtype(scope.columns.inputs[index][1]) not in _CAST_TYPES
        if op == "Attention":
            return not (is_plain(scope, index) and has_kernel(scope, index, target, self._in_half))
        if op == "Celu":
            # The parser mistakes the rank of its numbers, of any type but float32.
            return target.family == "rtx" and scope.dtype(scope.columns.inputs[index][0]) != "float32"
        if op == "RotaryEmbedding":
            return not _fits(scope, index)
        return op == "LayerNormalization" and sum(map(bool, scope.columns.outputs[index])) > 1

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        total = PassResult()
        for _ in range(_DEPTH):
            result = super().run(model, target)
            total = PassResult(total.edits + result.edits, result.skipped)
            if not result.edits:
                break
        if total.edits:
            fold_sizes(model)
        return total

    def write(self, writer: Writer, target: Target) -> str | None:
        function = body_of(writer.scope, writer.node, writer.opset)
        if function is None:
            raise Unwritable(f"ONNX has no definition of {writer.node.op_type} at opset {writer.opset}")
        writer.nodes += written_out(function, writer.node, writer.model.fresh_name)
        return f"{writer.node.op_type} written as ONNX defines it, in {len(writer.nodes)} nodes"


def _fits(scope: Scope, index: int) -> bool:
    """Whether all inputs of a RotaryEmbedding are of the same known sizes: the parser takes what it does not know of
    one for another size."""
    names = [*scope.columns.inputs[index], ""][:4]
    data, cosines, _, positions = (scope.shape(name) if name else None for name in names)
    if not data or len(data) < 3 or not cosines or cosines[-1] is None:
        return False
    rows = cosines[:-1] if positions is None else positions
    return tuple(rows) == (data[0], data[-2])


def _fails_on_8(scope: Scope, index: int) -> bool:
    """Whether TensorRT 8.6 computes what ONNX defines a node by wrongly, or ends on it. Source: run on 8.6.0."""
    columns = scope.columns
    op, inputs = columns.ops[index], columns.inputs[index]
    if op == "Attention":
        causal = attribute(columns.nodes[index], "is_causal")
        return bool(causal) and len(inputs) > _LENGTHS and bool(inputs[_LENGTHS])
    if op == "AffineGrid":
        shape = scope.shape(inputs[0])
        return shape is None or shape[-2:-1] != (2,)
    return False
