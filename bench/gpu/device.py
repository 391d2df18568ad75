"""What running an engine takes of the CUDA runtime, through cuda-bindings: a stream, its events and graphs, buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class CudaError(RuntimeError):
    """A CUDA call failed."""


@functools.cache
def cudart() -> Any:
    """Returns NVIDIA's binding; imported where it is needed, for the rest of the benchmarks runs without a GPU."""
    from cuda.bindings import runtime

    return runtime


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the CUDA runtime; returns what it gives beside its status, or None.

    Raises:
        CudaError: It returned an error.
    """
    status, *given = getattr(cudart(), name)(*arguments)
    if status != cudart().cudaError_t.cudaSuccess:
        raise CudaError(f"{name}: {status.name} ({int(status)})")
    return given[0] if given else None


def versions() -> dict[str, str]:
    """Returns the CUDA versions of the runtime and of the driver."""
    numbers = {what: call(f"cuda{what}GetVersion") for what in ("Runtime", "Driver")}
    return {what.lower(): f"{number // 1000}.{number % 1000 // 10}" for what, number in numbers.items()}


class Stream:
    """A stream, and the events that time what runs on it."""

    def __init__(self) -> None:
        self._stream = call("cudaStreamCreateWithFlags", cudart().cudaStreamNonBlocking)
        self.handle = int(self._stream)
        self._start, self._end = (call("cudaEventCreateWithFlags", 0) for _ in range(2))

    def wait(self) -> None:
        """Waits until everything on the stream has run."""
        call("cudaStreamSynchronize", self._stream)

    def microseconds(self, work: Callable[[], None]) -> float:
        """Returns how long the GPU takes for what `work` puts on the stream."""
        call("cudaEventRecord", self._start, self._stream)
        work()
        call("cudaEventRecord", self._end, self._stream)
        call("cudaEventSynchronize", self._end)
        return float(call("cudaEventElapsedTime", self._start, self._end)) * 1000

    def capture(self, work: Callable[[], None]) -> Graph:
        """Makes a CUDA graph of what `work` puts on the stream.

        Raises:
            CudaError: It cannot be captured.
        """
        mode = cudart().cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        call("cudaStreamBeginCapture", self._stream, mode)
        try:
            work()
        finally:
            graph = call("cudaStreamEndCapture", self._stream)
        return Graph(self._stream, graph)


class Graph:
    """A CUDA graph, ready to be launched."""

    def __init__(self, stream: Any, graph: Any) -> None:
        self._stream = stream
        self._handle = call("cudaGraphInstantiateWithFlags", graph, 0)
        call("cudaGraphDestroy", graph)

    def launch(self) -> None:
        """Puts the graph on its stream."""
        call("cudaGraphLaunch", self._handle, self._stream)

    def free(self) -> None:
        """Gives it back."""
        call("cudaGraphExecDestroy", self._handle)


class Buffer:
    """Device memory of the size of an array; 256 bytes at least, so that empty tensors have an address."""

    def __init__(self, stream: Stream, nbytes: int) -> None:
        self._stream = stream
        self.nbytes = nbytes
        self.pointer = int(call("cudaMalloc", max(nbytes, 256)))
        # What an engine fails to write is NaN then, not yesterday's right answer.
        call("cudaMemsetAsync", self.pointer, 0xFF, max(nbytes, 256), stream.handle)

    def fill(self, values: NDArray[Any]) -> None:
        """Copies an array in, and waits."""
        assert values.nbytes == self.nbytes
        values = np.ascontiguousarray(values)
        self._copy(self.pointer, values.ctypes.data, cudart().cudaMemcpyKind.cudaMemcpyHostToDevice)

    def read(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Copies the content out as an array, and waits."""
        values = np.empty(shape, dtype)
        assert values.nbytes == self.nbytes
        self._copy(values.ctypes.data, self.pointer, cudart().cudaMemcpyKind.cudaMemcpyDeviceToHost)
        return values

    def _copy(self, to: int, source: int, kind: Any) -> None:
        call("cudaMemcpyAsync", to, source, self.nbytes, kind, self._stream.handle)
        self._stream.wait()

    def free(self) -> None:
        """Gives the memory back."""
        call("cudaFree", self.pointer)
