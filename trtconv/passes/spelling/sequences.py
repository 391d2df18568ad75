"""Sequences of tensors whose number the model fixes, as those tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper

from trtconv.core.target import Target
from trtconv.graph.resolve import resolved
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class UnpackSequences(Spelling):
    """Writes what is taken out of a sequence as the tensors that were put into it.

    TensorRT's parser has no sequences. torch's older exporter writes one for each split, unbind or stack of a scripted
    module or of an axis of dynamic size.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[5,3] x) => (float[2,3] y) <int64 two = {2}, int64 at = {1}>
        { s = SplitToSequence <axis = 0> (x, two)  y = SequenceAt (s, at) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[5,3] x) => (float[2,3] y) <int64[3] parts = {2, 2, 1}>
        { a, b, c = Split <axis = 0> (x, parts)  y = Identity (b) }
    """

    name = "unpack-sequences"
    ops = frozenset({"ConcatFromSequence", "SequenceAt", "SequenceLength"})

    def write(self, writer: Writer, target: Target) -> str | None:
        tensors = _tensors(writer, writer.input(0))
        result = writer.output()
        if writer.node.op_type == "SequenceLength":
            writer("Identity", np.array(len(tensors), np.int64), to=result)
        elif writer.node.op_type == "SequenceAt":
            writer("Identity", tensors[_position(writer, writer.input(1), len(tensors))], to=result)
        else:
            axis = writer.attrs["axis"]
            if writer.attrs.get("new_axis", 0):
                tensors = [writer.unsqueeze(tensor, [axis]) for tensor in tensors]
            writer("Concat", *tensors, axis=axis, to=result)
        return f"{writer.node.op_type} written by the {len(tensors)} tensors of its sequence"


def _tensors(writer: Writer, name: str) -> list[str]:
    """Returns what a sequence holds, and writes the nodes that make it."""
    maker = writer.scope.producer(name)
    if maker is None or maker.op_type not in _MAKERS:
        raise Unwritable("how many tensors its sequence holds is known only at run time")
    return _MAKERS[maker.op_type](writer, maker)


def _with_one_more(writer: Writer, node: onnx.NodeProto) -> list[str]:
    tensors = _tensors(writer, node.input[0])
    place = _position(writer, node.input[2], len(tensors) + 1) if len(node.input) > 2 else len(tensors)
    return [*tensors[:place], node.input[1], *tensors[place:]]


def _with_one_less(writer: Writer, node: onnx.NodeProto) -> list[str]:
    tensors = _tensors(writer, node.input[0])
    del tensors[_position(writer, node.input[1], len(tensors)) if len(node.input) > 1 else -1]
    return tensors


def _pieces(writer: Writer, node: onnx.NodeProto) -> list[str]:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    tensor, shape = node.input[0], writer.shape(node.input[0])
    axis = attributes.get("axis", 0) % len(shape)
    lengths = _fixed(writer, node.input[1]) if len(node.input) > 1 and node.input[1] else None
    if lengths is not None and lengths.ndim:
        return writer.split(tensor, lengths.tolist(), axis)
    size = shape[axis]
    if size is None:
        raise Unwritable(f"the size of axis {axis}, which is split, is known only at run time")
    length = 1 if lengths is None else int(lengths)
    parts = [min(length, size - start) for start in range(0, size, length)]
    pieces = writer.split(tensor, parts, axis)
    # ONNX has keepdims ignored where lengths are given. ONNX Runtime does so for a list of them, and not for the one by
    # which torch spells unbind.
    keeps = attributes.get("keepdims", 1) or length != 1
    return pieces if keeps else [writer.squeeze(piece, [axis]) for piece in pieces]


def _position(writer: Writer, name: str, count: int) -> int:
    """Returns a position in a sequence, counted from its beginning."""
    place = int(_fixed(writer, name).reshape(()))
    if not -count <= place < count:
        raise Unwritable(f"it takes place {place} of {count}")
    return place % count


def _fixed(writer: Writer, name: str) -> np.ndarray:
    values = resolved(writer.scope, name, writer.model.proto.opset_import)
    if values is None:
        raise Unwritable(f"{name!r} is known only at run time")
    return values


_MAKERS: Mapping[str, Callable[[Writer, onnx.NodeProto], list[str]]] = {
    "Identity": lambda writer, node: _tensors(writer, node.input[0]),
    "SequenceConstruct": lambda writer, node: list(node.input),
    "SequenceEmpty": lambda writer, node: [],
    "SequenceErase": _with_one_less,
    "SequenceInsert": _with_one_more,
    "SplitToSequence": _pieces,
}
"""By operator, what the sequence holds that it makes."""
