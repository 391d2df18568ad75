"""Running engines: one adapter for every TensorRT, as for building. Only what all of them have, from 8.6 on, is used;
where they differ it is asked whether an attribute is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from trtconv.core.dims import times
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.callbacks import Allocator, make_allocator, make_profiler
from trtconv.runtimes.tensorrt.debugging import Listener, make_listener
from trtconv.runtimes.tensorrt.device import Buffer, Stream, pinned
from trtconv.runtimes.tensorrt.engine_base import Launch, ProfileTaken
from trtconv.runtimes.tensorrt.engine_in_memory import EngineInMemory
from trtconv.runtimes.tensorrt.layouts import pack, stored_shape, unpack
from trtconv.runtimes.tensorrt.logger import logged_errors


class _Refused(EngineFailed):
    """TensorRT answered that it does not do something."""


class ExecutionContext:
    """An execution context with its stream and buffers; implements `Execution` of base.

    Args:
        trt: The TensorRT module.
        engine: The engine.
        profile: Index of the optimization profile.
        cache: As in `LoadedEngine.open`.
    """

    def __init__(self, trt: Any, engine: EngineInMemory, profile: int, cache: bytes | None) -> None:
        self._trt = trt
        self._engine = engine
        self._profile = profile
        self._listener: Listener | None = None
        self._runtime_cache: Any = None
        self._room = contextlib.ExitStack()
        self._buffers: dict[str, Buffer] = {}
        self._hosts: dict[str, Array] = {}
        self._bytes: dict[str, int] = {}
        self._pinned: dict[str, int] = {}
        self._allocators: dict[str, Allocator] = {}
        self._outputs = [tensor.name for tensor in engine.tensors if tensor.kind == "output"]
        self.stream = Stream(engine.gpu)
        with engine.log.session() as session:
            self._context = self._make_context(cache)
            errors = logged_errors(session)
        if self._context is None:
            raise self._no_context(errors)
        if profile or len(engine.profiles) > 1:
            with self._checked("choose the profile"):
                self._check(self._context.set_optimization_profile_async(profile, int(self.stream.handle)))
                self.stream.wait()

    def _make_context(self, cache: bytes | None) -> Any:
        handle = self._engine.handle
        if cache is None or not hasattr(handle, "create_runtime_config"):
            return handle.create_execution_context()
        config = handle.create_runtime_config()
        if not hasattr(config, "create_runtime_cache"):
            return handle.create_execution_context()
        self._runtime_cache = config.create_runtime_cache()
        if cache:
            self._runtime_cache.deserialize(cache)
        config.set_runtime_cache(self._runtime_cache)
        return handle.create_execution_context(config)

    def _no_context(self, reason: str) -> EnvironmentMissing:
        free, _ = self._engine.gpu.memory()
        needed = self._engine.memory_bytes
        return EnvironmentMissing(
            f"TensorRT makes no execution context: {reason} (it takes {needed} bytes of GPU memory, {free} are free)",
            "Free GPU memory, or build with smaller maximum sizes.",
        )

    @contextlib.contextmanager
    def _checked(self, what: str) -> Iterator[None]:
        """Runs calls into TensorRT, and adds what it logged to their failure."""
        with self._engine.log.session() as session:
            try:
                yield
            except EngineFailed as error:
                fault = None if isinstance(error, _Refused) else error.message
                fault = fault or self._fault()
                kind = ProfileTaken if fault is None and self._lacks_profile() else EngineFailed
                cause = "" if fault is None else f" ({fault})"
                raise kind(f"TensorRT does not {what}: {logged_errors(session)}{cause}") from error

    def _fault(self) -> str | None:
        """Returns what broke down on the GPU before now."""
        try:
            self.stream.wait()
        except (EngineFailed, EnvironmentMissing) as error:
            return error.message
        return None

    def _lacks_profile(self) -> bool:
        return bool(self._context.active_optimization_profile != self._profile)

    def _check(self, accepts: bool) -> None:
        if not accepts:
            raise _Refused("refused")

    def feed(self, values: Mapping[str, Array]) -> None:
        """Sets the inputs, and makes room for the outputs."""
        self._release()
        inputs = [t.name for t in self._engine.tensors if t.kind == "input"]
        with self._checked("take the inputs"):
            for name in inputs:
                if name not in values:
                    raise InputError(f"there are no values for input {name!r}", f"The engine has {', '.join(inputs)}.")
                self._set_input(name, _converted(values[name], self._engine.numpy_type(name), name))
        for name in self._outputs:
            self._make_room(name)

    def _set_input(self, name: str, values: Array) -> None:
        self._check(self._context.set_input_shape(name, values.shape))
        values = pack(values, self._engine.format(name))
        self._hosts[name] = values
        if self._engine.on_host(name):
            self._check(self._context.set_tensor_address(name, values.ctypes.data))
        else:
            self._place(name, values.nbytes)
            self._buffers[name].write(values)

    def _make_room(self, name: str) -> None:
        shape = self._shape(name)
        if min(shape, default=0) < 0:
            # Known only once it has run: TensorRT then asks for the memory.
            self._allocators[name] = make_allocator(self._trt, self.stream)
            self._room.callback(self._allocators[name].close)
            self._context.set_output_allocator(name, self._allocators[name])
            return
        self._place(name, self._stored_bytes(name, shape))

    def resize(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Runs at other sizes from now on, in the memory that is there, which grows where it does not suffice."""
        # No session of the log, which would be in the time of each request.
        for name, shape in shapes.items():
            if not self._engine.on_host(name):
                if not self._context.set_input_shape(name, shape):
                    raise EngineFailed(f"TensorRT does not take input {name} of shape {times(shape)}")
                self._place(name, self._stored_bytes(name, shape))
        for name in self._outputs:
            if name not in self._allocators:
                self._place(name, self._stored_bytes(name, self._shape(name)))

    def _stored_bytes(self, name: str, shape: tuple[int, ...]) -> int:
        return math.prod(stored_shape(shape, self._engine.format(name))) * self._engine.numpy_type(name).itemsize

    def _place(self, name: str, nbytes: int) -> None:
        """Has a tensor in memory of the GPU that is its own; that of larger sizes before is kept."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self._buffers[name] = Buffer(self.stream, nbytes)
            self._room.callback(buffer.close)
            self._pinned.pop(name, None)
        self._bytes[name] = nbytes
        self._check(self._context.set_tensor_address(name, buffer.address))

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self._allocators:
            return tuple(self._allocators[name].shape)
        return tuple(int(size) for size in self._context.get_tensor_shape(name))

    def launch(self) -> None:
        """Puts one inference on the stream, without copies from and to the host."""
        self._check(self._context.execute_async_v3(int(self.stream.handle)))

    def run(self) -> dict[str, Array]:
        """Runs once, and returns the outputs by name."""
        if self._listener is not None:
            # A branch that is not taken shows nothing, and not what it did in the run before.
            self._listener.arrays.clear()
        with self._checked("run the engine"):
            self.launch()
            self.stream.wait()
        if self._listener is not None and self._listener.raised is not None:
            raise self._listener.raised
        return {name: self._read(name) for name in self._outputs}

    def watch(self, selects: Callable[[str], bool]) -> Mapping[str, Array]:
        """Keeps the values of debug tensors in every later run; see `Execution.watch`."""
        if not hasattr(self._context, "set_debug_listener"):
            return {}
        self._listener = make_listener(self._trt, self.stream, selects)
        with self._engine.log.session():
            listens = self._context.set_debug_listener(self._listener)
            shows = listens and self._context.set_all_tensors_debug_state(True)
        return self._listener.arrays if shows else {}

    def _read(self, name: str) -> Array:
        allocator = self._allocators.get(name)
        buffer = self._buffers[name] if allocator is None else allocator.buffer
        assert buffer is not None, "an engine that has run has told where its output lies"
        shape, form = self._shape(name), self._engine.format(name)
        values: Array = buffer.read(stored_shape(shape, form), self._engine.numpy_type(name))
        return unpack(values, shape, form)

    def launcher(self, *, graph: bool, copies: bool) -> Launch | None:
        """Returns what launches one inference."""
        launch = self._launch_with_copies if copies else self.launch
        if copies:
            self._pin()
        if not graph:
            return launch
        # A graph holds only what has run once with these shapes.
        with self._checked("run the engine"):
            launch()
            self.stream.wait()
        if self._allocators:
            return None
        with self._engine.log.session():
            try:
                captured = self.stream.capture(launch)
            except EngineFailed:
                return None
        self._room.callback(captured.close)
        return captured.launch

    def _pin(self) -> None:
        for name, buffer in self._buffers.items():
            if name not in self._pinned:
                address = self._room.enter_context(pinned(self._engine.gpu, buffer.nbytes))
                self._pinned[name] = address
                if name in self._hosts:
                    ctypes.memmove(address, self._hosts[name].ctypes.data, self._hosts[name].nbytes)

    def _launch_with_copies(self) -> None:
        if len(self._pinned) < len(self._buffers):
            self._pin()  # It runs at larger sizes now.
        for name, address in self._pinned.items():
            if name not in self._outputs:
                self._buffers[name].copy_from(address, self._bytes[name])
        self.launch()
        for name, address in self._pinned.items():
            if name in self._outputs:
                self._buffers[name].copy_to(address, self._bytes[name])

    def mark(self) -> None:
        """Marks the end of what was launched; see `passed`."""
        self.stream.mark()

    def passed(self) -> bool:
        """Whether everything before the last mark has run, without waiting for it."""
        return self.stream.passed()

    def microseconds(self, launch: Launch, times: int = 1) -> float:
        """Returns how long the GPU takes for what is launched so many times, one after the other, in all."""
        with self._checked("run the engine"):
            return self.stream.microseconds(launch, times)

    def layer_times(self, times: int = 10) -> list[tuple[str, float]]:
        """Returns each layer's name and time, in microseconds, the mean of some runs; slower than without looking."""
        profiler = make_profiler(self._trt)
        self._context.profiler = profiler
        with self._checked("run the engine"):
            for _ in range(times):
                self.launch()
                self.stream.wait()
        return [(name, 1000 * spent / times) for name, spent in profiler.milliseconds.items()]

    def information(self) -> dict[str, object]:
        """Returns what TensorRT's inspector says of the engine at the shapes that were fed."""
        return self._engine.information(self._context)

    def runtime_cache(self) -> bytes | None:
        """Returns the content of the runtime cache; None where there is none."""
        return None if self._runtime_cache is None else bytes(memoryview(self._runtime_cache.serialize()))

    def _release(self) -> None:
        self.stream.wait()
        self._room.close()
        self._buffers, self._hosts, self._pinned, self._allocators, self._bytes = {}, {}, {}, {}, {}

    def close(self) -> None:
        """Gives context, stream and memory back."""
        self._release()
        self._context = None
        self.stream.close()


def _converted(values: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Converts an input to the engine's type: TensorRT makes float32 of float64, and some versions int32 of int64."""
    if values.dtype == dtype:
        return np.ascontiguousarray(values)
    kinds = {values.dtype.kind, dtype.kind}
    # Types of ml_dtypes are of kind V.
    if not (kinds <= {"f", "V"} or kinds <= {"i", "u"}):
        raise InputError(
            f"input {name!r} of the engine is {dtype}, and the values are {values.dtype}",
            f"Give values of type {dtype}.",
        )
    converted = np.ascontiguousarray(values.astype(dtype))
    if dtype.kind in "iu" and not np.array_equal(converted, values):
        raise InputError(f"values of input {name!r} do not fit into the engine's {dtype}", "Give smaller values.")
    return converted
