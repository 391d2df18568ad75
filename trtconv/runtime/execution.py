"""Running engines: one adapter for every TensorRT, as for building. Only what all of them have, from 8.6 on, is used;
where they differ it is asked whether an attribute is there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.plan import TensorInfo
from trtconv.runtime.base import Launch
from trtconv.runtime.device import Buffer, Gpu, Stream, pinned
from trtconv.runtime.layers import dtype_name
from trtconv.runtime.logger import Log
from trtconv.runtime.messages import distinct
from trtconv.shapes import InputRange

Array = NDArray[Any]

_NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}
_MACHINE = ("VERSION_MISMATCH", "UNSUPPORTED_CC", "OLD_CUDA_DRIVER", "OLD_CUDA_RUNTIME", "INSUFFICIENT_GPU_MEMORY")
"""Reasons why an engine is invalid that lie in the machine, not in the engine."""
_ML_DTYPES = {"BF16": "bfloat16", "FP8": "float8_e4m3fn"}
"""Types that NumPy has only with the package ml_dtypes, which onnx brings along."""


def _numpy_type(name: str) -> np.dtype[Any]:
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _ML_DTYPES:
        raise EnvironmentMissing(f"inputs and outputs of type {name.lower()} cannot be fed or read here")
    try:
        import ml_dtypes
    except ImportError as error:
        raise EnvironmentMissing(f"NumPy lacks the type {name.lower()}", "pip install ml_dtypes") from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return found


class Engines:
    """Loads engines into one TensorRT.

    Args:
        family: "rtx" or "tensorrt".
        trt: The imported module.
        log: Its logger.

    Raises:
        EnvironmentMissing: There is no GPU, or no binding to it.
    """

    def __init__(self, family: str, trt: Any, log: Log) -> None:
        self.gpu = Gpu()
        self.family = family
        self.version = str(trt.__version__)
        self._trt = trt
        self._log = log
        with log.session():
            self._runtime = trt.Runtime(log.logger)

    @property
    def gpu_name(self) -> str | None:
        """Name of the GPU that engines run on."""
        return self.gpu.name

    @property
    def driver_version(self) -> str:
        """Newest CUDA version that the driver knows, for example "12.4"."""
        return self.gpu.driver_version

    def memory(self) -> tuple[int, int]:
        """Returns the bytes of GPU memory that are free, and all."""
        return self.gpu.memory()

    def load(self, data: bytes, *, host_code: bool = False) -> LoadedEngine:
        """Loads an engine, which runs code that is in it.

        Args:
            data: Content of the engine file.
            host_code: Allow code for the host in it too, as engines have that run on other versions of TensorRT.

        Raises:
            EngineFailed: TensorRT does not take it: made by another version or for another GPU or platform, or cut
                short.
            EnvironmentMissing: It says that this machine is the reason.
        """
        self._require_fit(data)
        if host_code:
            self._runtime.engine_host_code_allowed = True
        with self._log.session() as session:
            try:
                engine = self._runtime.deserialize_cuda_engine(data)
            except (RuntimeError, TypeError, ValueError, MemoryError) as error:
                raise EngineFailed(f"TensorRT {self.version} broke down on the engine: {error}") from error
            said = _errors(session)
        if engine is None:
            raise EngineFailed(
                f"TensorRT {self.version} does not load the engine: {said}",
                "It was made by another version, for another GPU or platform, or it is damaged. Build it again here.",
            )
        return LoadedEngine(self._trt, self._log, self.gpu, engine)

    def _require_fit(self, data: bytes) -> None:
        """Asks a TensorRT that can tell whether an engine runs here (TensorRT-RTX)."""
        if not hasattr(self._runtime, "get_engine_validity"):
            return
        with self._log.session() as session:
            validity, diagnostics = self._runtime.get_engine_validity(data)
            said = _errors(session)
        reasons = self._trt.EngineInvalidityDiagnostics
        named = [name for name in _MACHINE if int(diagnostics) & int(getattr(reasons, name))]
        if validity == self._trt.EngineValidity.INVALID and named:
            why = ", ".join(name.lower().replace("_", " ") for name in named)
            raise EnvironmentMissing(
                f"TensorRT {self.version} does not run the engine on {self.gpu.name}: {why}; {said}",
                "Build it for this GPU and this TensorRT.",
            )


def _errors(session: Any) -> str:
    return "\n".join(distinct(r.text for r in session.records if r.is_error)) or "it does not say why"


class LoadedEngine:
    """An engine in the memory of the GPU; implements `Engine`.

    Args:
        trt: The TensorRT module.
        log: Its logger.
        gpu: Where it is.
        engine: The ICudaEngine.
    """

    def __init__(self, trt: Any, log: Log, gpu: Gpu, engine: Any) -> None:
        self._trt = trt
        self.log = log
        self.gpu = gpu
        self.handle = engine

    @functools.cached_property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Inputs and outputs, in the engine's order."""
        return tuple(self._tensor(self.handle.get_tensor_name(i)) for i in range(self.handle.num_io_tensors))

    def _tensor(self, name: str) -> TensorInfo:
        kind = "input" if self.handle.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT else "output"
        shape = tuple(int(size) for size in self.handle.get_tensor_shape(name))
        return TensorInfo(name, kind, dtype_name(self.handle.get_tensor_dtype(name)), shape)

    def numpy_type(self, name: str) -> np.dtype[Any]:
        """Returns the NumPy type of an input or output."""
        return _numpy_type(self.handle.get_tensor_dtype(name).name)

    def on_host(self, name: str) -> bool:
        """Whether TensorRT reads an input from the memory of the host: its elements are a shape."""
        return bool(self.handle.get_tensor_location(name) == self._trt.TensorLocation.HOST)

    @functools.cached_property
    def profiles(self) -> tuple[Mapping[str, InputRange], ...]:
        """For each optimization profile the shapes of every input."""
        names = [tensor.name for tensor in self.tensors if tensor.kind == "input"]
        count = int(self.handle.num_optimization_profiles)
        return tuple({name: self._range(name, profile) for name in names} for profile in range(count))

    def _range(self, name: str, profile: int) -> InputRange:
        shapes = [tuple(int(n) for n in shape) for shape in self.handle.get_tensor_profile_shape(name, profile)]
        return InputRange(*shapes)

    @property
    def layer_count(self) -> int:
        """Number of layers after fusion."""
        return int(self.handle.num_layers)

    @property
    def memory_bytes(self) -> int:
        """Memory of the GPU that activations take, beside the weights, inputs and outputs."""
        name = "device_memory_size_v2" if hasattr(self.handle, "device_memory_size_v2") else "device_memory_size"
        return int(getattr(self.handle, name))

    def information(self, context: Any = None) -> dict[str, Any]:
        """Returns what TensorRT's inspector says of the engine, in its own words.

        Args:
            context: An execution context whose shapes are set; without one, formats depend on the shapes.

        Raises:
            EngineFailed: It says no JSON.
        """
        with self.log.session():
            inspector = self.handle.create_engine_inspector()
            if context is not None:
                inspector.execution_context = context
            text = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        try:
            # 8.6 writes the names that it gives to fused weights with control characters in them.
            document = json.loads(text, strict=False)
        except (TypeError, ValueError) as error:
            raise EngineFailed(f"TensorRT's inspector does not describe the engine in JSON: {error}") from error
        return document if isinstance(document, dict) else {"Layers": document}

    def open(self, profile: int = 0, cache: bytes | None = None) -> Execution:
        """Makes ready to run with an optimization profile.

        Args:
            profile: Its index.
            cache: Content of a runtime cache, for a TensorRT that has such; None without.

        Raises:
            EnvironmentMissing: The GPU's memory does not suffice.
        """
        return Execution(self._trt, self, profile, cache)


class Execution:
    """An execution context with its stream and buffers; implements `Execution` of base.

    Args:
        trt: The TensorRT module.
        engine: The engine.
        profile: Index of the optimization profile.
        cache: As in `LoadedEngine.open`.
    """

    def __init__(self, trt: Any, engine: LoadedEngine, profile: int, cache: bytes | None) -> None:
        self._trt = trt
        self._engine = engine
        self._runtime_cache: Any = None
        self._room = contextlib.ExitStack()
        self._buffers: dict[str, Buffer] = {}
        self._hosts: dict[str, Array] = {}
        self._pinned: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self.stream = Stream(engine.gpu)
        with engine.log.session() as session:
            self._context = self._make_context(cache)
            said = _errors(session)
        if self._context is None:
            raise self._no_context(said)
        if profile or len(engine.profiles) > 1:
            with self._checked("choose the profile"):
                self._chosen(self._context.set_optimization_profile_async(profile, int(self.stream.handle)))
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

    def _no_context(self, said: str) -> EnvironmentMissing:
        free, _ = self._engine.gpu.memory()
        needed = self._engine.memory_bytes
        return EnvironmentMissing(
            f"TensorRT makes no execution context: {said} (it takes {needed} bytes of GPU memory, {free} are free)",
            "Free GPU memory, or build with smaller maximum sizes.",
        )

    @contextlib.contextmanager
    def _checked(self, what: str) -> Iterator[None]:
        """Runs calls into TensorRT, and adds what it logged to their failure."""
        with self._engine.log.session() as session:
            try:
                yield
            except EngineFailed as error:
                raise EngineFailed(f"TensorRT does not {what}: {_errors(session)}") from error

    def _chosen(self, done: bool) -> None:
        if not done:
            raise EngineFailed("refused")

    def feed(self, values: Mapping[str, Array]) -> None:
        """Sets the inputs, and makes room for the outputs.

        Args:
            values: Input name to its values; converted where the engine has a narrower or wider type of the same kind.

        Raises:
            InputError: An input is missing, or of another kind of type.
            EngineFailed: The engine refuses the shapes.
            EnvironmentMissing: The GPU's memory does not suffice.
        """
        self._release()
        inputs = [t.name for t in self._engine.tensors if t.kind == "input"]
        outputs = [t.name for t in self._engine.tensors if t.kind == "output"]
        with self._checked("take the inputs"):
            for name in inputs:
                if name not in values:
                    raise InputError(f"there are no values for input {name!r}", f"The engine has {', '.join(inputs)}.")
                self._set_input(name, _converted(values[name], self._engine.numpy_type(name), name))
        for name in outputs:
            self._make_room(name)

    def _set_input(self, name: str, values: Array) -> None:
        self._chosen(self._context.set_input_shape(name, values.shape))
        self._hosts[name] = values
        if self._engine.on_host(name):
            address = values.ctypes.data
        else:
            buffer = self._buffer(name, values.nbytes)
            buffer.write(values)
            address = buffer.address
        self._chosen(self._context.set_tensor_address(name, address))

    def _make_room(self, name: str) -> None:
        shape = self._shape(name)
        if min(shape, default=0) < 0:
            # Known only once it has run: TensorRT then asks for the memory.
            self._allocators[name] = _make_allocator(self._trt, self.stream)
            self._room.callback(self._allocators[name].close)
            self._context.set_output_allocator(name, self._allocators[name])
            return
        nbytes = math.prod(shape) * self._engine.numpy_type(name).itemsize
        self._chosen(self._context.set_tensor_address(name, self._buffer(name, nbytes).address))

    def _buffer(self, name: str, nbytes: int) -> Buffer:
        buffer = self._buffers[name] = Buffer(self.stream, nbytes)
        self._room.callback(buffer.close)
        return buffer

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self._allocators:
            return tuple(self._allocators[name].shape)
        return tuple(int(size) for size in self._context.get_tensor_shape(name))

    def launch(self) -> None:
        """Puts one inference on the stream, without copies from and to the host."""
        if not self._context.execute_async_v3(int(self.stream.handle)):
            raise EngineFailed("refused")

    def run(self) -> dict[str, Array]:
        """Runs once, and returns the outputs by name.

        Raises:
            EngineFailed: The engine does not run.
        """
        with self._checked("run the engine"):
            self.launch()
            self.stream.wait()
        return {t.name: self._read(t.name) for t in self._engine.tensors if t.kind == "output"}

    def _read(self, name: str) -> Array:
        buffer = self._allocators[name].buffer if name in self._allocators else self._buffers[name]
        values: Array = buffer.read(self._shape(name), self._engine.numpy_type(name))
        return values

    def launcher(self, *, graph: bool, copies: bool) -> Launch | None:
        """Returns what launches one inference.

        Args:
            graph: As a CUDA graph.
            copies: With the inputs copied from the host, and the outputs to it.

        Returns:
            None where the engine cannot be captured in a graph.
        """
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
                self._pinned[name] = self._room.enter_context(pinned(self._engine.gpu, buffer.nbytes))

    def _launch_with_copies(self) -> None:
        kinds = {tensor.name: tensor.kind for tensor in self._engine.tensors}
        for name, address in self._pinned.items():
            if kinds[name] == "input":
                self._buffers[name].copy_from(address)
        self.launch()
        for name, address in self._pinned.items():
            if kinds[name] == "output":
                self._buffers[name].copy_to(address)

    def microseconds(self, launch: Launch, times: int = 1) -> float:
        """Returns how long the GPU takes for what is launched so many times, one after the other, in all."""
        with self._checked("run the engine"):
            return self.stream.microseconds(launch, times)

    def layer_times(self, times: int = 10) -> list[tuple[str, float]]:
        """Returns each layer's name and time, in microseconds, the mean of some runs; slower than without looking."""
        profiler = _make_profiler(self._trt)
        self._context.profiler = profiler
        with self._checked("run the engine"):
            for _ in range(times):
                self.launch()
                self.stream.wait()
        return [(name, 1000 * spent / times) for name, spent in profiler.milliseconds.items()]

    def information(self) -> dict[str, Any]:
        """Returns what TensorRT's inspector says of the engine at the shapes that were fed."""
        return self._engine.information(self._context)

    def runtime_cache(self) -> bytes | None:
        """Returns the content of the runtime cache; None where there is none."""
        return None if self._runtime_cache is None else bytes(memoryview(self._runtime_cache.serialize()))

    def _release(self) -> None:
        self.stream.wait()
        self._room.close()
        self._buffers, self._hosts, self._pinned, self._allocators = {}, {}, {}, {}

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


def _make_allocator(trt: Any, stream: Stream) -> Any:
    """Makes an IOutputAllocator; a class made here, since its base exists only where TensorRT is installed."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
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

    return Allocator()


def _make_profiler(trt: Any) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.milliseconds: dict[str, float] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.milliseconds[layer_name] = self.milliseconds.get(layer_name, 0.0) + ms

    return Profiler()
