"""The fields of a message of protobuf, found in a file without what is in them.

Each field says how long it is, so that a reader may pass over what it does not want, such as a network's weights.
Nothing here needs onnx, which takes longer to load than a file to look through.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""Numbers of fields, in ModelProto, GraphProto and TensorProto (onnx.proto)."""
_VARINT, _EIGHT_BYTES, LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
LARGE_BYTES = 1 << 16
"""Of an initializer whose values are left where they are."""
LARGE_FILE = 1 << 22
"""Smaller files are read as a whole."""
_NUMBER_BYTES = 10
"""That the longest number takes."""
_MOST_OF_TENSOR = 64
"""Fields of a tensor whose values are in one place."""
_MOST_FIELDS = 200_000
"""That a message may have to be looked through, which takes some microseconds a field."""


class MessageField(NamedTuple):
    """A field of a message: where it begins, where its content does, and where both end."""

    number: int
    start: int
    content: int
    end: int


def fields(file: BinaryIO, start: int, end: int, sought: int) -> Iterator[MessageField]:
    """Yields the fields of a message.

    Args:
        file: Has it.
        start: Where it begins.
        end: Where it ends.
        sought: The number of those that are of interest, which have a length.

    Raises:
        ValueError: It is none, or cannot be looked through.
    """
    number = 0
    while start < end:
        tag, at = _varint(file, start)
        kind, number = tag & 7, number + 1
        if number > _MOST_FIELDS:
            raise ValueError("it has too many fields to be looked through")
        if tag >> 3 == sought and kind != LENGTH:
            # Readers of protobuf pass over a field of another kind than its number has.
            raise ValueError("a field has the number of a message, and is none")
        if kind == LENGTH:
            size, at = _varint(file, at)
        elif kind == _VARINT:
            size = _varint(file, at)[1] - at
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"messages have no fields of kind {kind}")
        if at + size > end:
            raise ValueError("a field ends beyond its message")
        yield MessageField(tag >> 3, start, at, at + size)
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


def between(file: BinaryIO, start: int, end: int) -> bytes:
    """Returns a part of a file."""
    file.seek(start)
    return file.read(end - start)


def tensor_fields(file: BinaryIO, tensor: MessageField) -> list[MessageField]:
    """Returns the fields of a tensor; none where it has more than one whose values are in one place.

    Raises:
        ValueError: It is no tensor.
    """
    parts = list(itertools.islice(fields(file, tensor.content, tensor.end, RAW_DATA), _MOST_OF_TENSOR + 1))
    return parts if len(parts) <= _MOST_OF_TENSOR else []


def large_values(file: BinaryIO) -> Iterator[MessageField]:
    """Yields the values of a model's large initializers, where they are raw data.

    Raises:
        ValueError: It is no model, or cannot be looked through.
    """
    for graph in fields(file, 0, file.seek(0, 2), GRAPH):
        for tensor in fields(file, graph.content, graph.end, INITIALIZER) if graph.number == GRAPH else ():
            if tensor.number == INITIALIZER and tensor.end - tensor.content >= LARGE_BYTES:
                yield from (field for field in tensor_fields(file, tensor) if field.number == RAW_DATA)
