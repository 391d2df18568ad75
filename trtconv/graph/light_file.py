"""ONNX files read without their large weights: these stay in the file, as external data that lies in the model itself.

Of a message of protobuf each field says how long it is, so that a reader may pass over what it does not want. What
parses a file needs its bytes and makes a copy of each; of a network of 120 MB that is a quarter of a gigabyte.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import onnx
from google.protobuf.message import DecodeError, Message

from trtconv.core.errors import TrtconvError
from trtconv.core.reading import open_plain
from trtconv.graph.external_data import EXTERNAL, LARGEST_BYTES, external_range
from trtconv.graph.model import OnnxModel
from trtconv.graph.tensor_checker import nbytes

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Numbers of fields, in ModelProto, GraphProto and TensorProto (onnx.proto)."""
_WITHOUT_OTHER_VALUES = frozenset((1, 2, 8, 9, 12))
"""Fields of a tensor whose values are raw data: sizes, type, name, values, text."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
_LARGE_BYTES = 1 << 16
_LARGE_FILE = 1 << 22
"""Smaller files are read as a whole."""
_MOST_OTHERS = 0.25
"""Share of a file that what is no weight may have, nodes most of all: each is looked at by itself."""
_NUMBER_BYTES = 10
"""That the longest number takes."""
_MOST_FIELDS = 200_000
"""That a message may have to be looked through, which takes some microseconds a field."""


class _Field(NamedTuple):
    """A field of a message: where it begins, where its content does, and where both end."""

    number: int
    start: int
    content: int
    end: int


def light_model(path: Path) -> OnnxModel:
    """Does as `OnnxModel.load`, and leaves large weights in the file where it can.

    Args:
        path: A file that was loaded before, and is to be read again.

    Raises:
        InputError: As `OnnxModel.load`.
    """
    try:
        if path.stat().st_size >= _LARGE_FILE:
            with open_plain(path, LARGEST_BYTES) as file:
                data = _light_bytes(file, path.name)
            return OnnxModel.load(path, data=data)
    except (OSError, ValueError, DecodeError, TrtconvError):
        # Whoever reads all of a file says what is wrong with it.
        pass
    return OnnxModel.load(path)


def leave_weights(model: OnnxModel, file: BinaryIO) -> bool:
    """Leaves the large weights of a model in its file, where the model is to the bit what the file has.

    Args:
        model: The model, as it was loaded or since changed; nobody may hold anything of its graphs.
        file: What was in its file.

    Returns:
        Whether it did; False also where that is of no use, or cannot be told in this way.
    """
    if file.seek(0, 2) < _LARGE_FILE:
        return False
    light = onnx.ModelProto()
    try:
        light.ParseFromString(_light_bytes(file, model.path.name))
        if _without_weights(model.proto, light, file).SerializeToString() != light.SerializeToString():
            return False
    except (OSError, ValueError, DecodeError, TrtconvError):
        return False
    model.proto = light
    model.touch()
    # Graphs and what is known of them refer to each other.
    gc.collect()
    return True


def _without_weights(proto: onnx.ModelProto, light: onnx.ModelProto, file: BinaryIO) -> onnx.ModelProto:
    """Returns a model whose weights are as in another where they are the same, which has left them in a file.

    Raises:
        ValueError: They are not.
    """
    copy = onnx.ModelProto()
    _copy(proto, copy, "graph")
    _copy(proto.graph, copy.graph, "initializer")
    for tensor, left in zip(proto.graph.initializer, light.graph.initializer, strict=True):
        # Of others than floats the file itself says that they lie elsewhere; small ones were read from there.
        if left.data_location != EXTERNAL or left.data_type not in _FLOATS:
            copy.graph.initializer.append(tensor)
            continue
        if tensor.raw_data != _between(file, *external_range(left)):
            raise ValueError("a weight is another one")
        reference = copy.graph.initializer.add()
        _copy(tensor, reference, "raw_data")
        reference.data_location = EXTERNAL
        reference.external_data.extend(left.external_data)
    return copy


def _copy(source: Message, target: Message, but: str) -> None:
    """Copies all fields of a message but one."""
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def _light_bytes(file: BinaryIO, location: str) -> bytes:
    """Returns a serialized model like that of a file, whose large initializers refer to places in that file."""
    end = file.seek(0, 2)
    parts = (
        _named(_GRAPH, b"".join(_graph(file, field, location, end * _MOST_OTHERS)))
        if field.number == _GRAPH
        else _between(file, field.start, field.end)
        for field in _fields(file, 0, end)
    )
    return b"".join(parts)


def _graph(file: BinaryIO, graph: _Field, location: str, most: float) -> Iterator[bytes]:
    total = 0
    for field in _fields(file, graph.content, graph.end):
        apart = None
        if field.number == _INITIALIZER and field.end - field.content >= _LARGE_BYTES:
            apart = _apart(file, field, location)
        if apart is None:
            total += field.end - field.start
            if total > most:
                raise ValueError("most of the file is no weights")
            yield _between(file, field.start, field.end)
        else:
            yield _named(_INITIALIZER, apart)


def _apart(file: BinaryIO, tensor: _Field, location: str) -> bytes | None:
    """Returns a tensor that refers to where its values are; None where they are not floats in one place."""
    fields = list(_fields(file, tensor.content, tensor.end))
    values = [field for field in fields if field.number == _RAW_DATA]
    if len(values) != 1 or not {field.number for field in fields} <= _WITHOUT_OTHER_VALUES:
        return None
    described = (_between(file, field.start, field.end) for field in fields if field.number != _RAW_DATA)
    proto = onnx.TensorProto.FromString(b"".join(described))
    if proto.data_type not in _FLOATS or nbytes(proto) != values[0].end - values[0].content:
        return None
    at = {"location": location, "offset": values[0].content, "length": values[0].end - values[0].content}
    proto.data_location = EXTERNAL
    for key, value in at.items():
        proto.external_data.add(key=key, value=str(value))
    serialized: bytes = proto.SerializeToString()
    return serialized


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[_Field]:
    number = 0
    while start < end:
        tag, at = _varint(file, start)
        kind, number = tag & 7, number + 1
        if number > _MOST_FIELDS:
            raise ValueError("it has too many fields to be looked through")
        if tag >> 3 in (_GRAPH, _INITIALIZER, _RAW_DATA) and kind != _LENGTH:
            # Readers of protobuf pass over a field of another kind than its number has.
            raise ValueError("a field has the number of a message, and is none")
        if kind == _LENGTH:
            size, at = _varint(file, at)
        elif kind == _VARINT:
            size = _varint(file, at)[1] - at
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"messages have no fields of kind {kind}")
        if at + size > end:
            raise ValueError("a field ends beyond its message")
        yield _Field(tag >> 3, start, at, at + size)
        start = at + size


def _varint(file: BinaryIO, at: int) -> tuple[int, int]:
    """Returns a number and where it ends: seven bits a byte, the lowest first, as long as the highest bit is set."""
    file.seek(at)
    value = 0
    for place, byte in enumerate(file.read(_NUMBER_BYTES)):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise ValueError("a number has no end")


def _between(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _named(number: int, content: bytes) -> bytes:
    """Returns a field of a length."""
    return _varint_of(number << 3 | _LENGTH) + _varint_of(len(content)) + content


def _varint_of(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
