"""The GPU, through NVIDIA's own Python binding of the CUDA driver: memory, streams, events and graphs.

The driver, not the CUDA runtime library: it is there wherever there is a GPU, and its calls work on the context that
TensorRT uses, whichever CUDA runtime that was linked with.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.errors import EngineFailed, EnvironmentMissing
from trtconv.runtimes.tensorrt.gpu import gpu_name

_OUT_OF_MEMORY = 2
_NOT_READY = 600
_NOT_BLOCKING = 1
_SMALLEST_BYTES = 256
"""What is allocated at least, so that an empty tensor has an address."""
_UNWRITTEN = 0xFF
"""What fresh memory is filled with: floats of it are NaN, so that what an engine fails to write is seen."""

Launch = Callable[[], None]
"""Puts work on a stream and returns."""


class Gpu:
    """The first GPU.

    Raises:
        EnvironmentMissing: There is none, or NVIDIA's CUDA binding is not installed or does not go with the driver.
    """

    def __init__(self) -> None:
        self.name = gpu_name()
        if self.name is None:
            raise EnvironmentMissing(
                "there is no GPU here that CUDA offers", "Run it on a machine with an NVIDIA GPU and its driver."
            )
        self._driver = _driver()
        self.call("cuInit", 0)
        self._device = self.call("cuDeviceGet", 0)
        # TensorRT works in this context too. It stays for the life of the process.
        self._context = self.call("cuDevicePrimaryCtxRetain", self._device)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, function: str, *arguments: Any) -> Any:
        """Calls a function of the driver.

        Returns:
            What it returns beside its status: nothing, a value, or a tuple.

        Raises:
            EnvironmentMissing: The GPU's memory does not suffice, or the driver lacks the function.
            EngineFailed: Any other error; those of an engine show up in the next call.
        """
        try:
            status, *values = getattr(self._driver, function)(*arguments)
        except (RuntimeError, AttributeError) as error:
            raise _foreign_driver(error) from error
        if int(status) == _OUT_OF_MEMORY:
            raise EnvironmentMissing("the GPU's memory does not suffice", "Free some of it, or use smaller sizes.")
        if int(status):
            raise EngineFailed(f"CUDA: {function} returned {getattr(status, 'name', status)}")
        return values[0] if len(values) == 1 else tuple(values)

    def has_passed(self, event: Any) -> bool:
        """Whether everything before an event has run.

        Raises:
            EngineFailed: What ran broke down.
        """
        if int(self._driver.cuEventQuery(event)[0]) == _NOT_READY:
            return False
        self.call("cuEventQuery", event)
        return True

    @property
    def bus_id(self) -> str:
        """Where on the PCI bus it is: "0000:65:00.0"."""
        text = self.call("cuDeviceGetPCIBusId", 32, self._device)
        return bytes(text).split(b"\0")[0].decode("ascii", "replace")

    @property
    def driver_version(self) -> str:
        """Newest CUDA version that the driver knows, for example "12.4"."""
        number = int(self.call("cuDriverGetVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def memory(self) -> tuple[int, int]:
        """Returns the bytes of GPU memory that are free, and all."""
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise EnvironmentMissing(
            f"running an engine takes NVIDIA's CUDA binding for Python: {error}",
            "Install it: pip install cuda-bindings (with a driver for CUDA 12: pip install 'cuda-bindings==12.*').",
        ) from error
    return driver


def _foreign_driver(error: Exception) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"NVIDIA's CUDA binding for Python does not go with the driver: {error}",
        "Install the one for the driver's CUDA version, for example pip install 'cuda-bindings==12.*'.",
    )


class Stream:
    """A stream, and the two events that time what runs on it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.handle = gpu.call("cuStreamCreate", _NOT_BLOCKING)
        self._start, self._end = (gpu.call("cuEventCreate", 0) for _ in range(2))

    def wait(self) -> None:
        """Waits until everything on the stream has run."""
        self.gpu.call("cuStreamSynchronize", self.handle)

    def mark(self) -> None:
        """Marks the end of what is on the stream now; see `passed`."""
        self.gpu.call("cuEventRecord", self._end, self.handle)

    def passed(self) -> bool:
        """Whether everything before the last mark has run."""
        return self.gpu.has_passed(self._end)

    def microseconds(self, launch: Launch, times: int = 1) -> float:
        """Returns how long the GPU takes for what is launched so many times, one after the other, in all."""
        self.gpu.call("cuEventRecord", self._start, self.handle)
        for _ in range(times):
            launch()
        self.gpu.call("cuEventRecord", self._end, self.handle)
        self.gpu.call("cuEventSynchronize", self._end)
        return float(self.gpu.call("cuEventElapsedTime", self._start, self._end)) * 1000

    def capture(self, launch: Launch) -> Graph:
        """Makes a CUDA graph of what `launch` puts on the stream.

        Raises:
            EngineFailed: The work cannot be captured.
        """
        self.gpu.call("cuStreamBeginCapture", self.handle, _thread_local(self.gpu))
        try:
            launch()
        except BaseException:
            # The stream is of no use while it captures.
            with contextlib.suppress(EngineFailed, EnvironmentMissing):
                self.gpu.call("cuStreamEndCapture", self.handle)
            raise
        return Graph(self, self.gpu.call("cuStreamEndCapture", self.handle))

    def close(self) -> None:
        """Gives stream and events back."""
        for event in (self._start, self._end):
            self.gpu.call("cuEventDestroy", event)
        self.gpu.call("cuStreamDestroy", self.handle)


def _thread_local(gpu: Gpu) -> Any:
    return gpu._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class Graph:
    """A CUDA graph that can be launched.

    Args:
        stream: Where it was captured, and runs.
        graph: The handle of the captured graph; taken over.
    """

    def __init__(self, stream: Stream, graph: Any) -> None:
        self._stream = stream
        self._handle = stream.gpu.call("cuGraphInstantiate", graph, 0)
        stream.gpu.call("cuGraphDestroy", graph)

    def launch(self) -> None:
        """Puts the graph on its stream."""
        self._stream.gpu.call("cuGraphLaunch", self._handle, self._stream.handle)

    def close(self) -> None:
        """Gives it back."""
        self._stream.gpu.call("cuGraphExecDestroy", self._handle)


class Buffer:
    """Memory of the GPU.

    Args:
        stream: Where copies run.
        nbytes: How much.
    """

    def __init__(self, stream: Stream, nbytes: int) -> None:
        self._stream = stream
        self.nbytes = nbytes
        self._handle = stream.gpu.call("cuMemAlloc", max(nbytes, _SMALLEST_BYTES))
        self.address = int(self._handle)
        size = max(nbytes, _SMALLEST_BYTES)
        stream.gpu.call("cuMemsetD8Async", self._handle, _UNWRITTEN, size, stream.handle)

    def copy_from(self, address: int, nbytes: int | None = None) -> None:
        """Starts to copy from the memory of the host."""
        size = self.nbytes if nbytes is None else nbytes
        if size:
            self._stream.gpu.call("cuMemcpyHtoDAsync", self._handle, address, size, self._stream.handle)

    def copy_to(self, address: int, nbytes: int | None = None) -> None:
        """Starts to copy to the memory of the host."""
        size = self.nbytes if nbytes is None else nbytes
        if size:
            self._stream.gpu.call("cuMemcpyDtoHAsync", address, self._handle, size, self._stream.handle)

    def write(self, values: NDArray[Any]) -> None:
        """Copies an array in, and waits."""
        values = np.ascontiguousarray(values)
        self.copy_from(values.ctypes.data)
        self._stream.wait()

    def read(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Copies the content out as an array, and waits."""
        values = np.empty(shape, dtype)
        self.copy_to(values.ctypes.data, min(self.nbytes, math.prod(shape) * dtype.itemsize))
        self._stream.wait()
        return values

    def close(self) -> None:
        """Gives the memory back."""
        self._stream.gpu.call("cuMemFree", self._handle)


@contextlib.contextmanager
def pinned(gpu: Gpu, nbytes: int) -> Iterator[int]:
    """Lends memory of the host that the GPU copies from and to at full speed.

    Yields:
        Its address.
    """
    address = int(gpu.call("cuMemHostAlloc", max(nbytes, _SMALLEST_BYTES), 0))
    try:
        ctypes.memset(address, 0, max(nbytes, _SMALLEST_BYTES))
        yield address
    finally:
        gpu.call("cuMemFreeHost", address)
