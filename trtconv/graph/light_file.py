"""ONNX files read without their large weights: these stay in the file, as external data that lies in the model itself.

What parses a file needs its bytes and makes a copy of each; of a network of 120 MB that is a quarter of a gigabyte.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError, Message

from trtconv.core.errors import TrtconvError
from trtconv.core.reading import open_plain
from trtconv.graph import wire
from trtconv.graph.external_data import EXTERNAL, LARGEST_BYTES, external_range, lies_in, raw_chunks
from trtconv.graph.model import OnnxModel
from trtconv.graph.tensor_checker import nbytes

_WITHOUT_OTHER_VALUES = frozenset((1, 2, 8, 9, 12))
"""Fields of a tensor whose values are raw data: sizes, type, name, values, text."""
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
_MOST_OTHERS = 0.25
"""Share of a file that what is no weight may have, nodes most of all: each is looked at by itself."""


def light_model(path: Path, hashed: bool = False) -> OnnxModel:
    """Does as `OnnxModel.load`, and leaves large weights in the file where it can.

    Args:
        path: The file.
        hashed: As in `OnnxModel.load`: all of the file is read then, and little of it kept; else little is read.

    Raises:
        InputError: As `OnnxModel.load`.
    """
    try:
        if path.stat().st_size >= wire.LARGE_FILE:
            if hashed:
                return OnnxModel.load(path, True, keep=lambda data: _light_bytes(io.BytesIO(data), path.name))
            with open_plain(path, LARGEST_BYTES) as file:
                data = _light_bytes(file, path.name)
            return OnnxModel.load(path, data=data)
    except (OSError, ValueError, DecodeError, TrtconvError):
        # Whoever reads all of a file says what is wrong with it.
        pass
    return OnnxModel.load(path, hashed)


def leave_weights(model: OnnxModel, file: BinaryIO) -> bool:
    """Leaves the large weights of a model in its file, where the model is to the bit what the file has.

    Args:
        model: The model, as it was loaded or since changed; nobody may hold anything of its graphs.
        file: What was in its file.

    Returns:
        Whether it did; False also where that is of no use, or cannot be told in this way.
    """
    if file.seek(0, 2) < wire.LARGE_FILE:
        return False
    light = onnx.ModelProto()
    try:
        light.ParseFromString(_light_bytes(file, model.path.name))
        if _without_weights(model, light, file).SerializeToString() != light.SerializeToString():
            return False
    except (OSError, ValueError, DecodeError, TrtconvError):
        return False
    model.proto, model.leaves_weights = light, True
    model.touch()
    # Graphs and what is known of them refer to each other.
    gc.collect()
    return True


def _without_weights(model: OnnxModel, light: onnx.ModelProto, file: BinaryIO) -> onnx.ModelProto:
    """Returns a model whose weights are as in another where they are the same, which has left them in a file.

    Raises:
        ValueError: They are not.
    """
    proto, copy = model.proto, onnx.ModelProto()
    _copy(proto, copy, "graph")
    _copy(proto.graph, copy.graph, "initializer")
    for tensor, left in zip(proto.graph.initializer, light.graph.initializer, strict=True):
        # Of others than floats the file itself says that they lie elsewhere; small ones were read from there.
        if left.data_location != EXTERNAL or left.data_type not in _FLOATS:
            copy.graph.initializer.append(tensor)
            continue
        is_beside = tensor.data_location == EXTERNAL and not lies_in(tensor, model.path)
        if is_beside or not _is_same(raw_chunks(tensor, model.path), file, external_range(left)):
            raise ValueError("a weight is another one")
        reference = copy.graph.initializer.add()
        _copy(tensor, reference, "raw_data")
        if tensor.data_location != EXTERNAL:
            reference.data_location = EXTERNAL
            reference.external_data.extend(left.external_data)
    return copy


def _is_same(chunks: Iterable[bytes], file: BinaryIO, part: tuple[int, int]) -> bool:
    """Whether a tensor's bytes are a part of a file."""
    begin, end = part
    for chunk in chunks:
        if chunk != wire.between(file, begin, min(begin + len(chunk), end)):
            return False
        begin += len(chunk)
    return begin == end


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
        _named(wire.GRAPH, b"".join(_graph(file, field, location, end * _MOST_OTHERS)))
        if field.number == wire.GRAPH
        else wire.between(file, field.start, field.end)
        for field in wire.fields(file, 0, end, wire.GRAPH)
    )
    return b"".join(parts)


def _graph(file: BinaryIO, graph: wire.MessageField, location: str, most: float) -> Iterator[bytes]:
    total = 0
    for field in wire.fields(file, graph.content, graph.end, wire.INITIALIZER):
        apart = None
        if field.number == wire.INITIALIZER and field.end - field.content >= wire.LARGE_BYTES:
            apart = _apart(file, field, location)
        if apart is None:
            total += field.end - field.start
            if total > most:
                raise ValueError("most of the file is no weights")
            yield wire.between(file, field.start, field.end)
        else:
            yield _named(wire.INITIALIZER, apart)


def _apart(file: BinaryIO, tensor: wire.MessageField, location: str) -> bytes | None:
    """Returns a tensor that refers to where its values are; None where they are not floats in one place."""
    fields = wire.tensor_fields(file, tensor)
    values = [field for field in fields if field.number == wire.RAW_DATA]
    if len(values) != 1 or not {field.number for field in fields} <= _WITHOUT_OTHER_VALUES:
        return None
    described = (wire.between(file, field.start, field.end) for field in fields if field.number != wire.RAW_DATA)
    proto = onnx.TensorProto.FromString(b"".join(described))
    if proto.data_type not in _FLOATS or nbytes(proto) != values[0].end - values[0].content:
        return None
    at = {"location": location, "offset": values[0].content, "length": values[0].end - values[0].content}
    proto.data_location = EXTERNAL
    for key, value in at.items():
        proto.external_data.add(key=key, value=str(value))
    serialized: bytes = proto.SerializeToString()
    return serialized


def _named(number: int, content: bytes) -> bytes:
    """Returns a field of a length."""
    return _varint_of(number << 3 | wire.LENGTH) + _varint_of(len(content)) + content


def _varint_of(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
