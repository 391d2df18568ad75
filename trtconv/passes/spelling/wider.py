"""Computes with integers that a target lacks in a type that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches
from trtconv.graph.scope import Scope
from trtconv.passes.base import PassResult
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.holders import holder, narrowed, widened, wrapped
from trtconv.passes.spelling.writer import Writer, is_held

_T = onnx.TensorProto
_COMPARE = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_PICK = ("Max", "Min", "Clip", "Relu", "MaxPool", "ReduceMax", "ReduceMin", "Resize", "TopK", "ArgMax", "ArgMin")
_MOVE = (
    *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad"),
    *("Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu"),
    *("Unsqueeze", "Where", "ScatterElements", "ScatterND"),
)
_COMPUTE = ("Abs", "Add", "Div", "Mod", "Mul", "Neg", "Pow", "Sub", "Sum", "ReduceSum", "ReduceProd", "CumSum", "Sign")
_DATA: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Where",), (1, 2)),
    **dict.fromkeys(("Concat", "Max", "Min", "Sum", *_COMPARE, "Add", "Div", "Mod", "Mul", "Sub"), tuple(range(64))),
    "Pow": (0, 1),
    "Clip": (0, 1, 2),
    "Pad": (0, 2),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
}
"""Operators to the inputs that have the type in question; of others the first."""
_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_FLOATS = frozenset({_T.FLOAT, _T.FLOAT16, _T.BFLOAT16, _T.DOUBLE})
_LACKED = frozenset({_T.UINT8, _T.INT16, _T.UINT16, _T.UINT32, _T.UINT64})
_LACKED_TOO: Mapping[str, frozenset[int]] = {
    **dict.fromkeys(("ReduceMax", "ReduceMin", "Resize", "TopK", "ArgMax", "ArgMin"), frozenset({_T.INT8, _T.BOOL})),
    **dict.fromkeys(("Clip", "Mod", "ReduceProd", "ReduceSum", "CumSum", "Pow"), frozenset({_T.INT8})),
}
"""Operators to types that TensorRT otherwise computes with."""
_ANY_LACKED = _LACKED.union(*_LACKED_TOO.values())


class ComputeWider(Spelling):
    """Computes with uint8, int8, int16, uint16, uint32 and bool in int32 or int64, where TensorRT has no such operator.

    The wider type holds every value, results wrap around as those of the narrow type do, and casts stand at the edges.

    Before:
        <ir_version: 8, opset_import: ["": 14]>
        g (uint8[2,3] x, uint8[2,3] z) => (uint8[2,3] y) { y = Add (x, z) }
    After:
        <ir_version: 8, opset_import: ["": 14]>
        g (uint8[2,3] x, uint8[2,3] z) => (uint8[2,3] y) <int32 n = {256}>
        { a = Cast <to = 6> (x)  b = Cast <to = 6> (z)  c = Add (a, b)  d = Mod (c, n)  y = Cast <to = 2> (d) }
    """

    name = "compute-wider"
    ops = frozenset((*_COMPARE, *_PICK, *_MOVE, *_COMPUTE, "Cast"))

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return _has_such_types(model) and super().may_act(model, target)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        op, node = columns.ops[index], columns.nodes[index]
        if op == "Cast":
            return _cast_lacks(scope, node)
        types = _LACKED | _LACKED_TOO.get(op, frozenset())
        if op == "Trilu" and target.before(9):
            # It multiplies by the triangle.
            types |= {_T.BOOL}
        if op == "Resize":
            # What lies between others is rounded as ONNX does not define; float32 holds 16 bits.
            is_nearest = attribute(node, "mode", b"nearest") == b"nearest"
            types = types - {_T.UINT32, _T.UINT64} if is_nearest else frozenset()
        if not any(_type(scope, name) in types for name in _data(node)):
            return False
        return not _among_quantizers(scope, node)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = super().run(model, target)
        if result.edits:
            _join_casts(model)
        return result

    def write(self, writer: Writer, target: Target) -> str | None:
        node = writer.node
        if node.op_type == "Cast":
            return self._cast(writer, target)
        slots = [slot for slot in _DATA.get(node.op_type, (0,)) if writer.input(slot)]
        dtype = writer.dtype(node.input[slots[0]])
        wide = holder(dtype, target)
        if node.op_type in ("Mul", "Pow", "ReduceProd", "ReduceSum", "CumSum") and dtype.itemsize > 1:
            # Products of int16 exceed int32.
            wide = holder(np.dtype(np.uint32), target)
        elif node.op_type in ("MaxPool", "Resize"):
            wide = np.dtype(np.float32)
        inputs = list(node.input)
        for slot in slots:
            inputs[slot] = widened(writer, inputs[slot], target)
            if wide != holder(dtype, target):
                inputs[slot] = writer.cast(inputs[slot], wide)
        outputs = [
            writer.model.fresh_name(f"{name}_wide") if name and _keeps_type(node.op_type, slot) else name
            for slot, name in enumerate(node.output)
        ]
        if node.op_type == "Clip":
            inputs = _clip_limits(writer, inputs, dtype, wide)
        writer.again(inputs, outputs)
        for name, inner in zip(node.output, outputs, strict=True):
            if name != inner:
                result = wrapped(writer, inner, dtype, wide) if node.op_type in _COMPUTE else inner
                if dtype == np.bool_:
                    # The largest of nothing is the smallest integer, and false.
                    writer("Greater", result, np.array(0, wide), to=name)
                else:
                    narrowed(writer, result, name, dtype, target)
        return f"{node.op_type} of {dtype} computed in {wide}"

    @staticmethod
    def _cast(writer: Writer, target: Target) -> str:
        """A cast to a type that TensorRT lacks, or rounds to: by way of the one that holds it, wrapped around."""
        dtype = writer.dtype(writer.output())
        wide = holder(dtype, target)
        source = writer.dtype(writer.input(0))
        inner = writer.input(0)
        if source.kind in "iu" and source not in (np.int32, np.int64):
            inner = widened(writer, inner, target)
            wide = max(wide, holder(source, target), key=lambda kind: kind.itemsize)
        elif source == np.int64:
            wide = source
        inner = inner if source == wide else writer.cast(inner, wide)
        narrowed(writer, wrapped(writer, inner, dtype, wide), writer.output(), dtype, target)
        return f"cast to {dtype} by way of {wide}"


def _clip_limits(writer: Writer, inputs: list[str], dtype: np.dtype[Any], wide: np.dtype[Any]) -> list[str]:
    """Returns the inputs of a Clip with both limits, which some parsers want."""
    limits = np.iinfo(dtype)
    pairs = zip([*inputs[1:], "", ""][:2], (limits.min, limits.max), strict=True)
    return [inputs[0], *(name or writer.constant(limit, wide) for name, limit in pairs)]


def _keeps_type(op: str, slot: int) -> bool:
    return op not in _COMPARE and op not in ("ArgMax", "ArgMin") and not (op in ("TopK", "MaxPool") and slot == 1)


def _has_such_types(model: OnnxModel) -> bool:
    """Whether a model mentions such a type at all: as an input or a constant, or by a cast."""
    graph = model.proto.graph
    if any(value.type.tensor_type.elem_type in _ANY_LACKED for value in (*graph.input, *graph.output)):
        return True
    if any(tensor.data_type in _ANY_LACKED for tensor in graph.initializer):
        return True
    return any(
        attribute.name == "to" and attribute.i in _ANY_LACKED
        for scope in model.scopes
        for index in scope.by_op.get("Cast", ())
        for attribute in scope.columns.attributes[index]
    )


def _type(scope: Scope, name: str) -> int:
    tensor = scope.constant(name)
    if tensor is not None:
        return int(tensor.data_type)
    code = scope.types.get(name, 0)
    return code if code or scope.parent is None else _type(scope.parent, name)


def _data(node: onnx.NodeProto) -> list[str]:
    slots = _DATA.get(node.op_type, (0,))
    return [name for slot, name in enumerate(node.input) if slot in slots and name]


def _cast_lacks(scope: Scope, node: onnx.NodeProto) -> bool:
    to = attribute(node, "to", 0)
    source = _type(scope, node.input[0])
    if to == _T.INT8:
        # TensorRT 8.6 rounds what it casts to it from floats.
        return source in _FLOATS and not is_held(node)
    if source == _T.BOOL:
        # One that is a result of the network and nothing else is cast as it is.
        result = node.output[0]
        is_result = scope.parent is None and any(value.name == result for value in scope.graph.output)
        is_read = any(result in reads for other in scope.whole.scopes for reads in other.columns.inputs)
        return to in _LACKED and not is_held(node) and (is_read or not is_result)
    return to in _LACKED and not is_held(node)


def _among_quantizers(scope: Scope, node: onnx.NodeProto) -> bool:
    """Whether a node stands between quantisers, which have passes of their own."""
    before = (scope.producer(name) for name in node.input)
    after = (reader for name in node.output for reader in scope.consumers.get(name, ()))
    return any(neighbour is not None and neighbour.op_type in _QUANTIZERS for neighbour in (*before, *after))


def _join_casts(model: OnnxModel) -> None:
    """Lets casts of what was cast to a narrow type read the wide one: the value is the same."""
    patches = []
    for scope in model.scopes:
        patch = Patch(model, scope)
        for index in scope.by_op.get("Cast", ()):
            writer = Writer(model, scope, index)
            source = scope.producer(writer.input(0))
            if source is not None and is_held(source):
                wider = source.input[0]
                if _type(scope, wider) == writer.attrs["to"]:
                    writer("Identity", wider, to=writer.output())
                else:
                    writer.again([wider])
                patch.replace(index, writer.nodes)
        patches.append(patch)
    close_patches(patches)
