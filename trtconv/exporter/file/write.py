"""Writing an ONNX file in one piece without ever holding it in memory.

An exporter's weights lie in a file beside its model. Here they are copied into the model's own message, one after the
other: protobuf's wire format lets the graph's length be written first and its initializers last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from trtconv.core.files import atomic_stream, moved
from trtconv.core.reading import open_plain
from trtconv.graph.external_data import data_path, refer_to

ONE_PIECE_LIMIT = 2**31 - 2**20
"""Bytes that fit one protobuf message, with some room."""
_PADDING = 1 << 16
"""Bytes that an exporter leaves free before a tensor at most, so that it can be mapped."""
_GRAPH_FIELD, _INITIALIZER_FIELD, _RAW_DATA_FIELD = 7, 5, 9
_CHUNK = 1 << 22


def write_model(proto: onnx.ModelProto, folder: Path, output: Path) -> None:
    """Writes a model whose external data lies in `folder`, self-contained; over 2 GiB in two files.

    Args:
        proto: The model; its external tensors are left as they are, where it is written in one file.
        folder: Where its external data is, a temporary folder: the file may be moved away from there.
        output: Where to write; OUTPUT.data is written too where the model is too large for one file.

    Raises:
        InputError: The file cannot be written.
    """
    external = [tensor for tensor in proto.graph.initializer if uses_external_data(tensor)]
    weights = sum(external_entry(tensor)[2] for tensor in external)
    data = data_path(output)
    if weights + proto.ByteSize() > ONE_PIECE_LIMIT:
        _write_two(proto, external, folder, output, data)
        return
    head, tail = _split(proto)
    bodies = [_body(tensor) for tensor in external]
    sizes = [external_entry(tensor)[2] for tensor in external]
    records = [len(body) + len(_raw_head(size)) + size for body, size in zip(bodies, sizes, strict=True)]
    total = len(tail) + sum(len(_head(_INITIALIZER_FIELD, n)) + n for n in records)
    with atomic_stream(output, through_links=True) as file:
        file.write(head)
        file.write(_head(_GRAPH_FIELD, total))
        file.write(tail)
        for tensor, body, record in zip(external, bodies, records, strict=True):
            file.write(_head(_INITIALIZER_FIELD, record) + body + _raw_head(external_entry(tensor)[2]))
            copy_weights(tensor, folder, file.write)


def _write_two(
    proto: onnx.ModelProto, external: list[onnx.TensorProto], folder: Path, output: Path, data: Path
) -> None:
    whole = _only_file(external, folder)
    if whole is not None and moved(whole, data):
        for tensor in external:
            refer_to(tensor, data.name, *external_entry(tensor)[1:])
    else:
        _copy_all(external, folder, data)
    with atomic_stream(output, through_links=True) as file:
        file.write(proto.SerializeToString())


def _only_file(external: Sequence[onnx.TensorProto], folder: Path) -> Path | None:
    """Returns the file that all external data lies in, and nothing else; None where there is no such file."""
    places = {external_entry(tensor) for tensor in external}
    locations = {location for location, _, _ in places}
    if len(locations) != 1:
        return None
    path = folder / locations.pop()
    used = sum(size for _, _, size in places) + len(places) * _PADDING
    return path if path.stat().st_size <= used else None


def _copy_all(external: Sequence[onnx.TensorProto], folder: Path, data: Path) -> None:
    """Copies all external data into one file, to which it refers then."""
    offset = 0
    with atomic_stream(data) as file:
        for tensor in external:
            size = external_entry(tensor)[2]
            copy_weights(tensor, folder, file.write)
            refer_to(tensor, data.name, offset, size)
            padding = -size % 4096
            file.write(b"\0" * padding)
            offset += size + padding


def has_data_beside(output: Path) -> bool:
    """Whether a file that `write_model` wrote has its weights in another one; an older one may have left such."""
    if not data_path(output).exists():
        return False
    return any(map(uses_external_data, onnx.load(output, load_external_data=False).graph.initializer))


def external_entry(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    """Returns file, offset and length of a tensor's external data."""
    entry = {item.key: item.value for item in tensor.external_data}
    return entry["location"], int(entry.get("offset", 0)), int(entry["length"])


def _split(proto: onnx.ModelProto) -> tuple[bytes, bytes]:
    """Returns the model without its graph, and the graph without its external tensors, both serialized."""
    outer = onnx.ModelProto()
    outer.CopyFrom(proto)
    inner = onnx.GraphProto()
    inner.CopyFrom(outer.graph)
    outer.ClearField("graph")
    rest = [tensor for tensor in inner.initializer if not uses_external_data(tensor)]
    del inner.initializer[:]
    inner.initializer.extend(rest)
    head: bytes = outer.SerializeToString()
    tail: bytes = inner.SerializeToString()
    return head, tail


def _body(tensor: onnx.TensorProto) -> bytes:
    """Serializes a tensor without its values."""
    bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    body: bytes = bare.SerializeToString()
    return body


def _raw_head(size: int) -> bytes:
    return _head(_RAW_DATA_FIELD, size)


def _head(field: int, size: int) -> bytes:
    """Returns the tag and length of a length-delimited field."""
    return bytes([*_varint(field << 3 | 2), *_varint(size)])


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


def copy_weights(tensor: onnx.TensorProto, folder: Path, take: Callable[[bytes], object]) -> None:
    """Hands on the bytes of a tensor whose external data is in a folder, a few megabytes at a time."""
    location, offset, rest = external_entry(tensor)
    with open_plain(folder / location) as source:
        source.seek(offset)
        while rest > 0:
            chunk = source.read(min(_CHUNK, rest))
            if not chunk:
                raise EOFError(f"{location} is too short")
            take(chunk)
            rest -= len(chunk)
