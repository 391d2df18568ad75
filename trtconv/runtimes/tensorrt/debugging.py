"""Listens to debug tensors, which an engine shows while it runs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.device import Stream
from trtconv.runtimes.tensorrt.engine_in_memory import numpy_type
from trtconv.runtimes.tensorrt.layers import enum_name


class Listener(Protocol):
    """What TensorRT tells of debug tensors; `raised` is what went wrong there, which must not go through TensorRT."""

    arrays: dict[str, Array]
    raised: Exception | None


def make_listener(trt: Any, stream: Stream, selects: Callable[[str], bool]) -> Listener:
    """Makes an IDebugListener; a class made here, since its base exists only where TensorRT is installed.

    Args:
        stream: Of the execution.
        selects: Which tensors are kept, by name; in a loop the last value is.
    """

    own_stream = stream

    class DebugListener(trt.IDebugListener):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IDebugListener.__init__(self)
            self.arrays: dict[str, Array] = {}
            self.raised: Exception | None = None

        def process_debug_tensor(
            self, addr: Any, location: Any, type: Any, shape: Any, name: str, stream: int
        ) -> bool:  # The names of the arguments are TensorRT's.
            try:
                if selects(name):
                    on_host = location == trt.TensorLocation.HOST
                    sizes = tuple(int(size) for size in shape)
                    self.arrays[name] = self._read(_address(addr), on_host, sizes, numpy_type(enum_name(type)))
            except Exception as error:
                self.raised = error
            return True

        def _read(self, address: int, on_host: bool, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
            values = np.empty(shape, dtype)
            size = math.prod(shape) * dtype.itemsize
            own_stream.wait()
            if size and on_host:
                ctypes.memmove(values.ctypes.data, address, size)
            elif size:
                own_stream.gpu.call("cuMemcpyDtoHAsync", values.ctypes.data, address, size, own_stream.handle)
                own_stream.wait()
            return values

    return DebugListener()


def _address(pointer: Any) -> int:
    """Returns the address that a binding hands over: a number, or a capsule around it."""
    if isinstance(pointer, int):
        return pointer
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = ctypes.py_object, ctypes.c_char_p
    return int(api.PyCapsule_GetPointer(pointer, api.PyCapsule_GetName(pointer)) or 0)
