"""Objects of ours that TensorRT calls while it executes: an allocator and a profiler."""

from __future__ import annotations

from typing import Any, Protocol

from trtconv.runtimes.tensorrt.device import Buffer, Stream


class Allocator(Protocol):
    """Memory for an output whose size the engine tells while it runs."""

    buffer: Buffer | None
    shape: tuple[int, ...]

    def close(self) -> None:
        """Gives the memory back."""


def make_allocator(trt: Any, stream: Stream) -> Allocator:
    """Makes an IOutputAllocator; a class made here, since its base exists only where TensorRT is installed."""

    class OutputAllocator(trt.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.buffer: Buffer | None = None
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            if self.buffer is None or self.buffer.nbytes < size:
                self.close()
                self.buffer = Buffer(stream, size)
            return self.buffer.address

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(int(size) for size in shape)

        def close(self) -> None:
            if self.buffer is not None:
                self.buffer.close()
                self.buffer = None

    return OutputAllocator()


def make_profiler(trt: Any) -> Any:
    """Makes the IProfiler; a class made here, since its base exists only where TensorRT is installed."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.milliseconds: dict[str, float] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.milliseconds[layer_name] = self.milliseconds.get(layer_name, 0.0) + ms

    return Profiler()
