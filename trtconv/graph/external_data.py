"""Weights that lie in files beside the model."""

from __future__ import annotations

import errno
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from trtconv.core import budget
from trtconv.core.errors import InputError
from trtconv.core.file_kinds import URL, kind_of
from trtconv.core.files import real_path
from trtconv.core.frozen import frozen
from trtconv.core.reading import bytes_on_disk, is_hollow, open_plain, read_plain
from trtconv.core.suggest import nearest
from trtconv.graph.tensor_checker import nbytes

EXTERNAL = onnx.TensorProto.EXTERNAL
SMALL_BYTES = 1 << 10
"""Tensors up to this size stay in the model's file when the others move out of it."""
LARGEST_BYTES = (1 << 31) - 1
"""What protobuf reads."""
_CHECK_PATH = "Check the path of the model."
ALIGNMENT = 1 << 12
"""Readers map external data into memory, by pages."""


def read_file(path: Path) -> bytes:
    """Returns a file's content.

    Raises:
        InputError: It is missing, a folder, a device or a pipe, unreadable, or larger than an ONNX file can be.
    """
    try:
        return read_plain(path, LARGEST_BYTES)
    except FileNotFoundError as error:
        refuse_other_kinds(path)
        hint = "Stdin is not read: write the model into a file first." if str(path) == "-" else _CHECK_PATH
        raise InputError(f"{path}: no such file{_near(path)}", hint) from error
    except IsADirectoryError as error:
        refuse_other_kinds(path)
        raise InputError(f"{path} is a folder", "Give the .onnx file in it.") from error
    except OSError as error:
        hints = {
            errno.EFBIG: "Keep its weights beside it: onnx.save_model(..., save_as_external_data=True).",
            errno.EINVAL: "Write it into a file first.",
        }
        raise InputError(
            f"{path} cannot be read: {error.strerror}", hints.get(error.errno or 0, _CHECK_PATH)
        ) from error
    except ValueError as error:
        raise InputError(f"{str(path)!r} is not a path: {error}", _CHECK_PATH) from error


def _is_within(path: Path, location: str) -> bool:
    """Whether a data file lies in the model's folder, or where the model itself is a link to, as caches have it."""
    real = real_path(path.parent / location)
    homes = (real_path(path.parent), real_path(path).parent)
    return budget.current().follow_links or any(real.is_relative_to(home) for home in homes)


def refuse_other_kinds(path: Path) -> None:
    """Raises InputError where a path leads to something that is known to be no ONNX model; says what to do with it."""
    kind = kind_of(path)
    if kind is not None:
        place = re.sub(r":/", "://", path.as_posix(), count=1) if kind is URL else path
        raise InputError(f"{place} is {kind.name}, not an ONNX model", kind.advice)


def _near(path: Path) -> str:
    """Returns the models beside a missing one that have nearly its name, as a question."""
    try:
        # Without their suffix, which would make short names alike; what is there is not a link that leads nowhere.
        names = {file.stem: file.name for file in path.parent.iterdir() if file.suffix == ".onnx" and file.exists()}
    except OSError:
        return ""
    near = nearest(path.stem, list(names))
    return f"; did you mean {path.parent / names[near]}?" if near else ""


def external_entry(tensor: onnx.TensorProto) -> dict[str, str]:
    """Returns what a tensor says of its external data: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def lies_in(tensor: onnx.TensorProto, path: Path) -> bool:
    """Whether the values of a tensor are external data that lies in the model's own file."""
    return external_entry(tensor).get("location") == path.name


def beside(tensors: Iterable[onnx.TensorProto], path: Path) -> Iterator[onnx.TensorProto]:
    """Yields those of external data that lie beside the model's file, not in it."""
    return (tensor for tensor in tensors if not lies_in(tensor, path))


def check_external_all(tensors: Sequence[onnx.TensorProto], path: Path) -> Path:
    """Checks the external data of a model.

    Returns:
        The path of the model beside which it lies: where that is a link, it may be what the link leads to.

    Raises:
        InputError: Some is not there, or not as it should be.
        BudgetExceeded: It is too much.
    """
    budget.spend("bytes", sum(map(nbytes, tensors)), "its external data")
    path = _home_of(tensors, path)
    for tensor in tensors:
        check_external(tensor, path)
    return path


def _home_of(tensors: Sequence[onnx.TensorProto], path: Path) -> Path:
    if not path.is_symlink():
        return path
    places = [external_entry(tensor).get("location", "") for tensor in tensors]
    own, real = path.parent, real_path(path)
    try:
        is_beside_real = all((real.parent / place).is_file() for place in places)
        return real if is_beside_real and not any((own / place).exists() for place in places) else path
    except (OSError, ValueError):
        return path


def check_external(tensor: onnx.TensorProto, path: Path) -> None:
    """Raises InputError unless a tensor's external data is beside the model and long enough."""
    entry = external_entry(tensor)
    location = entry.get("location", "")
    where = f"{path}: external data {location!r} of tensor {tensor.name!r}"
    if len(entry) < len(tensor.external_data):
        raise InputError(f"{where} names its place twice", "Readers differ in which counts; export the model again.")
    parts = Path(location).parts
    if not location or Path(location).is_absolute() or ".." in parts or "\\" in location:
        raise InputError(f"{where} points outside the model's folder", "Keep external data beside the model.")
    try:
        status = (path.parent / location).stat()
    except (OSError, ValueError) as error:
        raise InputError(f"{where} is missing", f"Put {location} beside {path.name}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{where} is missing: it is not a file", f"Put {location} beside {path.name}.")
    if is_hollow(status):
        length = bytes_on_disk(status)
        raise InputError(f"{where} is hollow: of {status.st_size} bytes {length} are there", "Copy the file again.")
    if not _is_within(path, location):
        hint = "Copy the file; or, where the link is meant so, let --follow-links allow it."
        raise InputError(f"{where} is a link that leaves the model's folder", hint)
    size = status.st_size
    try:
        _, end = external_range(tensor, where)
    except ValueError as error:
        raise InputError(f"{where} has an offset or length that is not a number", "Export the model again.") from error
    if end > size:
        raise InputError(f"{where} is too short: {end} bytes needed, {size} there", "Copy the file again.")


def external_range(tensor: onnx.TensorProto, where: str = "") -> tuple[int, int]:
    """Returns where a tensor's external data begins and ends in its file, in bytes."""
    entry, needed = external_entry(tensor), nbytes(tensor)
    offset, length = _number(entry.get("offset", "0")), _number(entry.get("length", str(needed)))
    if offset < 0 or length < needed:
        raise InputError(f"{where} has {length} bytes at {offset}; it needs {needed}", "Export the model again.")
    return offset, offset + length


def _number(text: str) -> int:
    """Reads a number as the C++ readers of external data do; int() alone would let more through."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise ValueError(text)
    return int(text)


@frozen
class FileStates:
    """What files are at a moment, to see whether somebody has changed them since.

    Args:
        files: The files, and what tells one state of each from another.
    """

    files: Mapping[Path, tuple[int, ...]]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> FileStates:
        """Returns what the files are now; one that is gone has no state."""
        return cls({path: _state(path) for path in paths})

    def stand(self) -> bool:
        """Whether all files are as they were."""
        return all(_state(path) == state for path, state in self.files.items())

    def require(self) -> None:
        """Raises InputError where a file is another one than it was."""
        for path, state in self.files.items():
            if _state(path) != state:
                raise InputError(f"{path} was changed while it was read", "Leave it as it is until the command ends.")


def _state(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    except OSError:
        return ()


def inside_bytes(proto: onnx.ModelProto) -> int:
    """Returns nearly how many bytes a model takes without external data; protobuf counts by writing all of it."""
    graph = proto.graph
    weights = sum(nbytes(tensor) for tensor in graph.initializer if tensor.data_location != EXTERNAL)
    return weights + int(sum(part.ByteSize() for part in (*graph.node, *graph.sparse_initializer, *proto.functions)))


def data_path(path: Path) -> Path:
    """Returns where the weights of a model at `path` go when it is too large for one file."""
    return path.with_name(path.name + ".data")


def read_chunks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yields a part of a file, in pieces that need little memory."""
    try:
        stream = open_plain(path)
    except FileNotFoundError as error:
        raise InputError(f"{path} went away while the model was read", "Copy the file again.") from error
    with stream as file:
        file.seek(begin)
        while begin < end and (chunk := file.read(min(1 << 20, end - begin))):
            yield chunk
            begin += len(chunk)
    if begin < end:
        raise InputError(f"{path} became too short while it was read", "Copy the file again.")


def raw_chunks(tensor: onnx.TensorProto, path: Path) -> Iterator[bytes]:
    """Yields the bytes of a tensor of the model at `path`, as many as its file has for it."""
    if not uses_external_data(tensor):
        yield tensor.raw_data
        return
    begin, end = external_range(tensor)
    yield from read_chunks(path.parent / external_entry(tensor)["location"], begin, end)


def raw_bytes(tensor: onnx.TensorProto, path: Path) -> bytearray:
    """Returns the bytes of external data; onnx's own reader refuses links, as which caches keep large files."""
    begin, _ = external_range(tensor)
    data, at = bytearray(nbytes(tensor)), 0
    for chunk in read_chunks(path.parent / external_entry(tensor)["location"], begin, begin + len(data)):
        data[at : at + len(chunk)] = chunk
        at += len(chunk)
    return data


def array_of(tensor: onnx.TensorProto, path: Path) -> NDArray[Any]:
    """Returns the values of a tensor of the model at `path`, wherever they are."""
    if tensor.HasField("segment"):
        raise ValueError("it is a segment of a larger one")
    dtype = _PLAIN.get(tensor.data_type)
    if uses_external_data(tensor):
        raw = raw_bytes(tensor, path)
        if dtype is not None:
            # Without the copies that a message makes of what it is given.
            return np.frombuffer(raw, dtype).reshape(tuple(tensor.dims))
        inside = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        inside.raw_data = bytes(raw)
        tensor = inside
    elif dtype is not None and (inside_data := tensor.raw_data):
        # As `to_array` does in four times as long; there are thousands of small ones.
        return np.frombuffer(inside_data, dtype).reshape(tuple(tensor.dims))
    values: NDArray[Any] = numpy_helper.to_array(tensor)
    return values


_T = onnx.TensorProto
_WHOLE_BYTES = (_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.INT8, _T.INT32, _T.INT64, _T.UINT8)
"""Types whose elements NumPy has as they lie in a file."""
_PLAIN: dict[int, np.dtype[Any]] = {
    kind: onnx.helper.tensor_dtype_to_np_dtype(kind) for kind in _WHOLE_BYTES if sys.byteorder == "little"
}


def is_whole(kind: int) -> bool:
    """Whether NumPy has the elements of a type as they lie in a file."""
    return kind in _PLAIN


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
