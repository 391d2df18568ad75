"""Weights that lie in files beside the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from trtconv.core.errors import InputError
from trtconv.graph import checker

EXTERNAL = onnx.TensorProto.EXTERNAL
SMALL_BYTES = 1 << 10
"""Tensors up to this size stay in the model's file when the others move out of it."""
ALIGNMENT = 1 << 12
"""Readers map external data into memory, by pages."""


def read_file(path: Path) -> bytes:
    """Returns a file's content.

    Raises:
        InputError: It is missing, a folder or unreadable.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file", "Check the path of the model.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder", "Give the .onnx file in it.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def external_entry(tensor: onnx.TensorProto) -> dict[str, str]:
    """Returns what a tensor says of its external data: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def check_external(tensor: onnx.TensorProto, path: Path) -> None:
    """Raises InputError unless a tensor's external data is beside the model and long enough."""
    entry = external_entry(tensor)
    location = entry.get("location", "")
    where = f"{path}: external data {location!r} of tensor {tensor.name!r}"
    parts = Path(location).parts
    if not location or Path(location).is_absolute() or ".." in parts or "\\" in location:
        raise InputError(f"{where} points outside the model's folder", "Keep external data beside the model.")
    if not (path.parent / location).is_file():
        raise InputError(f"{where} is missing", f"Put {location} beside {path.name}.")
    size = (path.parent / location).stat().st_size
    try:
        _, end = external_range(tensor, where)
    except ValueError as error:
        raise InputError(f"{where} has an offset or length that is no number", "Export the model again.") from error
    if end > size:
        raise InputError(f"{where} is too short: {end} bytes needed, {size} there", "Copy the file again.")


def external_range(tensor: onnx.TensorProto, where: str = "") -> tuple[int, int]:
    """Returns where a tensor's external data begins and ends in its file, in bytes."""
    entry, needed = external_entry(tensor), checker.nbytes(tensor)
    offset, length = _number(entry.get("offset", "0")), _number(entry.get("length", str(needed)))
    if offset < 0 or length < needed:
        raise InputError(f"{where} has {length} bytes at {offset}; it needs {needed}", "Export the model again.")
    return offset, offset + length


def _number(text: str) -> int:
    """Reads a number as the C++ readers of external data do; int() alone would let more through."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise ValueError(text)
    return int(text)


def data_path(path: Path) -> Path:
    """Returns where the weights of a model at `path` go when it is too large for one file."""
    return path.with_name(path.name + ".data")


def read_chunks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yields a part of a file, in pieces that need little memory."""
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end and (chunk := file.read(min(1 << 20, end - begin))):
            yield chunk
            begin += len(chunk)


def raw_chunks(tensor: onnx.TensorProto, path: Path) -> Iterator[bytes]:
    """Yields the bytes of a tensor of the model at `path`, as many as its file has for it."""
    if not uses_external_data(tensor):
        yield tensor.raw_data
        return
    begin, end = external_range(tensor)
    yield from read_chunks(path.parent / external_entry(tensor)["location"], begin, end)


def raw_bytes(tensor: onnx.TensorProto, path: Path) -> bytes:
    """Returns the bytes of external data; onnx's own reader refuses links, as which caches keep large files."""
    begin, _ = external_range(tensor)
    parts = read_chunks(path.parent / external_entry(tensor)["location"], begin, begin + checker.nbytes(tensor))
    return b"".join(parts)


def used_parts(tensors: Iterable[onnx.TensorProto]) -> list[tuple[str, int, int]]:
    """Returns the parts of external files that tensors lie in: file, begin, end; none overlap, in order."""
    merged: list[tuple[str, int, int]] = []
    for name, begin, end in sorted((external_entry(t)["location"], *external_range(t)) for t in tensors):
        if merged and merged[-1][0] == name and begin <= merged[-1][2]:
            merged[-1] = (name, merged[-1][1], max(end, merged[-1][2]))
        else:
            merged.append((name, begin, end))
    return merged


def refer_to(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Makes a tensor's values external data."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
