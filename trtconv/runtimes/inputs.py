"""Inputs that a user gives: .npz files, and functions that make them."""

from __future__ import annotations

import importlib.util
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.dims import InputSpec, Shape
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.reading import open_plain
from trtconv.runtimes.onnxruntime import first_line, numpy_type

Feeds = dict[str, NDArray[Any]]


def read_inputs(inputs: Sequence[InputSpec], path: Path) -> Feeds:
    """Reads the inputs of a model or an engine from an .npz file.

    Raises:
        InputError: It is none, or its arrays do not fit.
    """
    return checked_inputs(inputs, read_arrays(path), str(path))


def read_arrays(path: Path) -> Feeds:
    """Reads the arrays of an .npz file, by name.

    Raises:
        InputError: It is none.
    """
    try:
        # Without pickles: they would run code.
        with open_plain(path) as file:
            _require_arrays(path, file.read(_MAGIC_BYTES))
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InputError(
                    f"{path} holds one array without a name", "Write it with numpy.savez(PATH, NAME=array)."
                )
            with loaded as arrays:
                budget.spend("inputs", len(arrays.files), f"{path}: its arrays")
                budget.spend("megabytes", _stated_bytes(arrays.zip) / 1e6, f"{path}: its arrays")
                return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", "Check the path.") from error
    except (TrtconvError, MemoryError):
        raise
    except Exception as error:  # Those of four decompressors, of zip and of Python's own tokenizer.
        message = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(
            f"{path} is not an .npz file of plain arrays: {message}", "Write it with numpy.savez."
        ) from error


_MAGIC_BYTES = 6
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY")
"""How archives, empty ones, and single arrays begin: NumPy takes all else for a pickle."""


def _require_arrays(path: Path, head: bytes) -> None:
    if not head.startswith(_MAGIC):
        raise InputError(f"{path} is not an .npz file", "Write it with numpy.savez.")


def _stated_bytes(archive: zipfile.ZipFile) -> int:
    """Returns the bytes that the arrays of an .npz file take, as their headers and the archive say."""
    stated = 0
    for entry in archive.infolist():
        with archive.open(entry) as member:
            shape, dtype = (
                header_of(member) if entry.filename.endswith(".npy") else ((entry.file_size,), np.dtype("u1"))
            )
        if dtype.hasobject:
            raise ValueError(f"{entry.filename.removesuffix('.npy')!r} holds Python objects")
        stated += max(entry.file_size, math.prod(shape) * dtype.itemsize)
    return stated


def header_of(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads the shape and the type of the array of an .npy file, and none of its values.

    Raises:
        ValueError: It is no .npy file.
    """
    version = np.lib.format.read_magic(file)
    take = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = take(file)
    return shape, dtype


def checked_inputs(
    inputs: Sequence[InputSpec], arrays: Any, source: str, shapes: Mapping[str, Shape] | None = None
) -> Feeds:
    """Checks arrays against the inputs of a model.

    Args:
        inputs: What the model takes.
        arrays: What there is.
        source: Where they come from.
        shapes: The shapes that they should have; None: those that the model says.

    Raises:
        InputError: A name, rank, size or type that the model does not have, or a value that is NaN.
    """
    specs = ", ".join(f"{spec} {numpy_type(spec)}" for spec in inputs)
    if not isinstance(arrays, Mapping):
        raise InputError(f"{source} gives {type(arrays).__name__}, no dict of arrays", f"The inputs are {specs}.")
    for name in arrays:
        if name not in {spec.name for spec in inputs}:
            raise InputError(f"{source} has {name!r}, which is not an input of the model", f"The inputs are {specs}.")
    feeds: Feeds = {}
    for spec in inputs:
        if spec.name not in arrays:
            raise InputError(f"{source} has no values for input {spec.name!r}", f"The inputs are {specs}.")
        try:
            array = np.asarray(arrays[spec.name])
        except Exception as error:
            # Lists of different lengths, or an object of another library that NumPy cannot read.
            raise InputError(
                f"{source}: input {spec.name!r} is not an array: {first_line(error)}", "Give arrays."
            ) from error
        feeds[spec.name] = _checked_array(spec, array, source, (shapes or {}).get(spec.name))
    return feeds


def _checked_array(spec: InputSpec, array: NDArray[Any], source: str, shape: Shape | None) -> NDArray[Any]:
    dtype = numpy_type(spec)
    if array.dtype != dtype:
        raise InputError(
            f"{source}: input {spec.name!r} is {dtype} in the model, and {array.dtype} here",
            f"Convert it: array.astype({str(dtype)!r}).",
        )
    sizes = spec.dims if shape is None else shape
    if len(sizes) != array.ndim or any(isinstance(n, int) and n != m for n, m in zip(sizes, array.shape, strict=True)):
        goal = ", ".join(str(n) for n in sizes)
        raise InputError(
            f"{source}: input {spec.name!r} has the shape {array.shape}, not ({goal})", "Give one of that shape."
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise InputError(
            f"{source}: input {spec.name!r} holds NaN, {count} of {array.size} elements",
            "Give finite values: NaN spreads to the outputs, and shows nothing.",
        )
    return array


def call_generator(
    function: Callable[[dict[str, Shape], int], Any], name: str, shapes: Mapping[str, Shape], seed: int
) -> Any:
    """Returns what a generator makes.

    Args:
        function: The generator.
        name: What the user called it.
        shapes: Input name to its shape.
        seed: A number that tells samples apart.

    Raises:
        InputError: It fails.
    """
    try:
        return function(dict(shapes), seed)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name} failed: {type(error).__name__}: {first_line(error)}",
            "It is called as FUNCTION(shapes, seed), with {input: shape}, and returns {input: array}.",
        ) from error


def load_generator(text: str) -> Callable[[dict[str, Shape], int], Any]:
    """Imports a generator, "FILE.py:FUNCTION".

    Raises:
        InputError: There is none.
    """
    return load_function(text, "--generator", "(shapes, seed)")


def load_function(text: str, flag: str, takes: str) -> Callable[..., Any]:
    """Imports a function of the user's, "FILE.py:FUNCTION".

    Args:
        text: What the command line says.
        flag: Where it says so.
        takes: The function's parameters, for messages: "(shapes, seed)".

    Raises:
        InputError: There is none.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"{flag} {text!r} is not FILE.py:FUNCTION", f"Name a file and a function that takes {takes}.")
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file", f"Check the path in {flag}.")
    spec = importlib.util.spec_from_file_location("trtconv_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {first_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path} has no function {name!r}", f"Name one that takes {takes}.")
    return function  # type: ignore[no-any-return]


def resized(sample: Mapping[str, NDArray[Any]], shapes: Mapping[str, Shape]) -> dict[str, NDArray[Any]]:
    """Returns inputs of other shapes with the values of these, repeated or cut off; zeros, which tell no places apart,
    are left out."""
    return {name: np.resize(values, shapes[name]) for name, values in sample.items() if np.any(values)}


def inputs_at(tensors: Sequence[TensorInfo], shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> Feeds:
    """Makes inputs to time an engine with; floats are random, since some kernels take another time for zeros.

    Args:
        tensors: Inputs and outputs of the engine.
        shapes: Input name to its shape.
        values: Elements of inputs that hold shapes.
    """
    random = np.random.default_rng(0)
    feeds: Feeds = {}
    for tensor in tensors:
        if tensor.kind != "input":
            continue
        shape = tuple(shapes[tensor.name])
        if tensor.name in values:
            feeds[tensor.name] = np.array(values[tensor.name], np.int64).reshape(shape)
        elif "float" in tensor.dtype:
            feeds[tensor.name] = random.standard_normal(shape).astype(np.float32)
        elif tensor.dtype in ("int8", "uint8"):
            feeds[tensor.name] = random.integers(0, 128, shape)
        else:
            feeds[tensor.name] = np.ones(shape, np.bool_ if tensor.dtype == "bool" else np.int64)
    return feeds
