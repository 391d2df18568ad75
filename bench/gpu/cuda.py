"""The few calls of the CUDA runtime that running an engine takes, through ctypes: no CUDA package is needed.

Source: CUDA Runtime API 12; `libcudart.so.12` must be on LD_LIBRARY_PATH.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIBRARY = "libcudart.so.12"
_TO_DEVICE, _TO_HOST = 1, 2
_CAPTURE_THREAD_LOCAL = 1
_SIGNATURES: dict[str, list[Any]] = {
    "cudaMalloc": [POINTER(c_void_p), c_size_t],
    "cudaFree": [c_void_p],
    "cudaMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "cudaMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    "cudaStreamCreateWithFlags": [POINTER(c_void_p), c_uint],
    "cudaStreamDestroy": [c_void_p],
    "cudaStreamSynchronize": [c_void_p],
    "cudaStreamBeginCapture": [c_void_p, c_int],
    "cudaStreamEndCapture": [c_void_p, POINTER(c_void_p)],
    "cudaGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, c_ulonglong],
    "cudaGraphLaunch": [c_void_p, c_void_p],
    "cudaGraphDestroy": [c_void_p],
    "cudaGraphExecDestroy": [c_void_p],
    "cudaEventCreateWithFlags": [POINTER(c_void_p), c_uint],
    "cudaEventDestroy": [c_void_p],
    "cudaEventRecord": [c_void_p, c_void_p],
    "cudaEventSynchronize": [c_void_p],
    "cudaEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cudaRuntimeGetVersion": [POINTER(c_int)],
    "cudaDriverGetVersion": [POINTER(c_int)],
}


class CudaError(RuntimeError):
    """A CUDA call failed."""


class Cuda:
    """The CUDA runtime, every call checked.

    Raises:
        OSError: The library is not there.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, c_int
        self._library.cudaGetErrorString.argtypes = [c_int]
        self._library.cudaGetErrorString.restype = c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the runtime.

        Raises:
            CudaError: It returned an error.
        """
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(f"{name}: {self._library.cudaGetErrorString(code).decode()} ({code})")

    def make(self, name: str, *arguments: Any) -> int:
        """Calls a function whose first argument is where it writes a handle or a pointer, and returns that."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle.value or 0

    def versions(self) -> dict[str, str]:
        """Returns the CUDA versions of the runtime and of the driver."""
        found = {}
        for what in ("Runtime", "Driver"):
            number = c_int()
            self.call(f"cuda{what}GetVersion", byref(number))
            found[what.lower()] = f"{number.value // 1000}.{number.value % 1000 // 10}"
        return found


class Stream:
    """A stream, and the events that time what runs on it."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.handle = cuda.make("cudaStreamCreateWithFlags", 1)  # not blocking
        self._start = cuda.make("cudaEventCreateWithFlags", 0)
        self._end = cuda.make("cudaEventCreateWithFlags", 0)

    def wait(self) -> None:
        """Waits until everything on the stream has run."""
        self.cuda.call("cudaStreamSynchronize", self.handle)

    def microseconds(self, work: Callable[[], None]) -> float:
        """Returns how long the GPU takes for what `work` puts on the stream."""
        self.cuda.call("cudaEventRecord", self._start, self.handle)
        work()
        self.cuda.call("cudaEventRecord", self._end, self.handle)
        self.cuda.call("cudaEventSynchronize", self._end)
        milliseconds = c_float()
        self.cuda.call("cudaEventElapsedTime", byref(milliseconds), self._start, self._end)
        return milliseconds.value * 1000

    def capture(self, work: Callable[[], None]) -> Graph:
        """Makes a CUDA graph of what `work` puts on the stream."""
        self.cuda.call("cudaStreamBeginCapture", self.handle, _CAPTURE_THREAD_LOCAL)
        try:
            work()
        finally:
            graph = c_void_p()
            self.cuda.call("cudaStreamEndCapture", self.handle, byref(graph))
        return Graph(self, graph.value or 0)


class Graph:
    """A CUDA graph, ready to be launched."""

    def __init__(self, stream: Stream, graph: int) -> None:
        self._stream = stream
        self._handle = stream.cuda.make("cudaGraphInstantiateWithFlags", graph, 0)
        stream.cuda.call("cudaGraphDestroy", graph)

    def launch(self) -> None:
        """Puts the graph on its stream."""
        self._stream.cuda.call("cudaGraphLaunch", self._handle, self._stream.handle)

    def free(self) -> None:
        """Gives it back."""
        self._stream.cuda.call("cudaGraphExecDestroy", self._handle)


class Buffer:
    """Device memory of the size of an array; 256 bytes at least, so that empty tensors have an address."""

    def __init__(self, stream: Stream, nbytes: int) -> None:
        self._stream = stream
        self.nbytes = nbytes
        self.pointer = stream.cuda.make("cudaMalloc", max(nbytes, 256))
        # What an engine fails to write is NaN then, not yesterday's right answer.
        stream.cuda.call("cudaMemsetAsync", self.pointer, 0xFF, max(nbytes, 256), stream.handle)

    def fill(self, values: NDArray[Any]) -> None:
        """Copies an array in, and waits."""
        assert values.nbytes == self.nbytes
        values = np.ascontiguousarray(values)
        self._stream.cuda.call(
            "cudaMemcpyAsync", self.pointer, values.ctypes.data, self.nbytes, _TO_DEVICE, self._stream.handle
        )
        self._stream.wait()

    def read(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Copies the content out as an array, and waits."""
        values = np.empty(shape, dtype)
        assert values.nbytes == self.nbytes
        self._stream.cuda.call(
            "cudaMemcpyAsync", values.ctypes.data, self.pointer, self.nbytes, _TO_HOST, self._stream.handle
        )
        self._stream.wait()
        return values

    def free(self) -> None:
        """Gives the memory back."""
        self._stream.cuda.call("cudaFree", self.pointer)
