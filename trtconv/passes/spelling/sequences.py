"""Sequences of tensors whose number the model fixes, as those tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attributes_of
from trtconv.graph.types import ONNX_DOMAINS
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
        g (float[5,3] x) => (float[2,3] y) <int64[1] a = {2}, int64[1] b = {4}, int64[1] axis = {0}>
        { p = Slice (x, a, b, axis)  y = Identity (p) }
    """

    name = "unpack-sequences"
    ops = frozenset({"ConcatFromSequence", "SequenceAt", "SequenceLength"})

    def write(self, writer: Writer, target: Target) -> str | None:
        tensors = _tensors(writer, writer.input(0))
        result = writer.output()
        if writer.node.op_type == "SequenceLength":
            writer("Identity", np.array(len(tensors), np.int64), to=result)
        elif writer.node.op_type == "SequenceAt":
            writer("Identity", tensors[_position(writer, writer.input(1), len(tensors))](), to=result)
        elif not tensors:
            raise Unwritable("its sequence holds nothing")
        else:
            axis, is_new = writer.attrs["axis"], writer.attrs.get("new_axis", 0)
            parts = [writer.unsqueeze(tensor(), [axis]) if is_new else tensor() for tensor in tensors]
            writer("Concat", *parts, axis=axis, to=result)
        return f"{writer.node.op_type} written by the {len(tensors)} tensors of its sequence"


Tensor = Callable[[], str]
"""Writes the nodes that make a tensor of a sequence, and returns its name: of a long one a node wants one alone."""


def _tensors(writer: Writer, name: str) -> list[Tensor]:
    """Returns what a sequence holds."""
    changes: list[onnx.NodeProto] = []
    while (maker := _maker(writer, name)) is not None and maker.op_type in _CHANGES:
        changes.append(maker)
        name = maker.input[0]
    if maker is None or maker.op_type not in _MAKERS:
        raise Unwritable("how many tensors its sequence holds is known only at run time")
    tensors = _MAKERS[maker.op_type](writer, maker)
    for change in reversed(changes):
        _CHANGES[change.op_type](writer, change, tensors)
    return tensors


def _maker(writer: Writer, name: str) -> onnx.NodeProto | None:
    maker = writer.scope.producer(name)
    return maker if maker is not None and maker.domain in ONNX_DOMAINS else None


def _insert(writer: Writer, node: onnx.NodeProto, tensors: list[Tensor]) -> None:
    count = place = len(tensors)
    if len(node.input) > 2 and node.input[2]:
        # As many places as there are tensors, and the end.
        place = int(_fixed(writer, node.input[2]).reshape(()))
        if not -count <= place <= count:
            raise Unwritable(f"it inserts at place {place} of {count}")
    tensors.insert(place, functools.partial(str, node.input[1]))


def _erase(writer: Writer, node: onnx.NodeProto, tensors: list[Tensor]) -> None:
    has_place = len(node.input) > 1 and node.input[1]
    del tensors[_position(writer, node.input[1], len(tensors)) if has_place else -1]


def _pieces(writer: Writer, node: onnx.NodeProto) -> list[Tensor]:
    attributes = attributes_of(node)
    shape = writer.shape(node.input[0])
    axis = attributes.get("axis", 0) % len(shape)
    lengths = _fixed(writer, node.input[1]) if len(node.input) > 1 and node.input[1] else None
    if lengths is not None and lengths.ndim:
        ends = np.cumsum(lengths).tolist()
        return [_piece(writer, node, axis, *span) for span in zip([0, *ends], ends, strict=False)]
    size = shape[axis]
    if size is None:
        raise Unwritable(f"the size of axis {axis}, which is split, is known only at run time")
    length = 1 if lengths is None else int(lengths)
    # ONNX has keepdims ignored where lengths are given. ONNX Runtime does so for a list of them, and not for the one by
    # which torch spells unbind.
    drops = not attributes.get("keepdims", 1) and length == 1
    return [
        _piece(writer, node, axis, start, min(start + length, size), drops=drops) for start in range(0, size, length)
    ]


def _piece(writer: Writer, node: onnx.NodeProto, axis: int, start: int, end: int, *, drops: bool = False) -> Tensor:
    def write() -> str:
        piece = writer.slice(node.input[0], [start], [end], [axis])
        return writer.squeeze(piece, [axis]) if drops else piece

    return write


def _position(writer: Writer, name: str, count: int) -> int:
    """Returns a position in a sequence, counted from its beginning."""
    place = int(_fixed(writer, name).reshape(()))
    if not -count <= place < count:
        raise Unwritable(f"it takes place {place} of {count}")
    return place % count


def _fixed(writer: Writer, name: str) -> np.ndarray:
    values = writer.resolve(name)
    if values is None:
        raise Unwritable(f"{name!r} is known only at run time")
    return values


_MAKERS: Mapping[str, Callable[[Writer, onnx.NodeProto], list[Tensor]]] = {
    "SequenceConstruct": lambda writer, node: [functools.partial(str, name) for name in node.input],
    "SequenceEmpty": lambda writer, node: [],
    "SplitToSequence": _pieces,
}
"""By operator, what the sequence holds that it makes."""
_CHANGES: Mapping[str, Callable[[Writer, onnx.NodeProto, list[Tensor]], None]] = {
    "Identity": lambda writer, node, tensors: None,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
}
"""By operator, what it does to the tensors of the sequence that it takes."""
