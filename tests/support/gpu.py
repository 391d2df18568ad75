"""A GPU that is none: CUDA's driver on the memory of the host, and a TensorRT whose engines run on ONNX Runtime.

Every name that is used of TensorRT has to be on the public surface of the version that it plays (tests/data), so that
code that works here uses nothing that the version lacks.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import json
import pathlib
import pickle
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from support.paths import SURFACES
from support.session import session
from trtconv.core.dims import InputRange
from trtconv.runtimes.tensorrt.layouts import pack, stored_shape, unpack

VERSION = "8.6.0"

_DTYPES = {"float32": "FLOAT", "float16": "HALF", "int64": "INT64", "int32": "INT32", "int8": "INT8", "bool": "BOOL"}
_DTYPES |= {"uint8": "UINT8"}


_CaptureMode = enum.Enum("_CaptureMode", {"CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": 1})


class FakeDriver(types.ModuleType):
    """`cuda.bindings.driver`. Streams run at once; an event is the number of inferences that ran before it.

    Args:
        total: Bytes of memory.
        us: Microseconds that one inference takes.
    """

    def __init__(self, total: int = 1 << 34, us: float = 100.0) -> None:
        super().__init__("cuda.bindings.driver")
        self.total, self.us = total, us
        self.memory: dict[int, Any] = {}
        self.used = 0
        self.now = 0.0
        self.capturing: list[Callable[[], object]] | None = None
        self.captures = True
        self.shares_profiles = True
        self.CUstreamCaptureMode = _CaptureMode
        self.failing: dict[str, int] = {}
        self.lean: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        failing = super().__getattribute__("__dict__").get("failing", {})
        if name in failing:
            return lambda *_: (failing[name],)
        return super().__getattribute__(name)

    def work(self, action: Callable[[], object]) -> None:
        if self.capturing is not None:
            self.capturing.append(action)
        else:
            action()

    def cuInit(self, flags: int) -> tuple[int, ...]:
        return (0,)

    def cuDeviceGet(self, ordinal: int) -> tuple[int, ...]:
        return (0, ordinal)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, ...]:
        return (0, 7)

    def cuCtxSetCurrent(self, context: int) -> tuple[int, ...]:
        return (0,)

    def cuDriverGetVersion(self) -> tuple[int, ...]:
        return (0, 12040)

    def cuMemGetInfo(self) -> tuple[int, ...]:
        return (0, self.total - self.used, self.total)

    def cuStreamCreate(self, flags: int) -> tuple[int, ...]:
        return (0, 1)

    def cuStreamDestroy(self, stream: int) -> tuple[int, ...]:
        return (0,)

    def cuStreamSynchronize(self, stream: int) -> tuple[int, ...]:
        assert self.capturing is None, "a stream that captures cannot be waited for"
        return (0,)

    def cuEventCreate(self, flags: int) -> tuple[int, Any]:
        return (0, types.SimpleNamespace(at=0.0))

    def cuEventDestroy(self, event: Any) -> tuple[int, ...]:
        return (0,)

    def cuEventRecord(self, event: Any, stream: int) -> tuple[int, ...]:
        event.at = self.now
        return (0,)

    def cuEventSynchronize(self, event: Any) -> tuple[int, ...]:
        return (0,)

    def cuEventQuery(self, event: Any) -> tuple[int, ...]:
        return (0,)

    def cuDeviceGetPCIBusId(self, size: int, device: int) -> tuple[int, bytes]:
        return (0, b"0000:65:00.0".ljust(size, b"\0"))

    def cuEventElapsedTime(self, start: Any, end: Any) -> tuple[int, float]:
        return (0, (end.at - start.at) / 1000)

    def cuMemAlloc(self, size: int) -> tuple[int, ...]:
        if self.used + size > self.total:
            return (2,)
        block = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(block)] = block
        self.used += size
        return (0, ctypes.addressof(block))

    def cuMemFree(self, address: int) -> tuple[int, ...]:
        self.used -= len(self.memory.pop(address))
        return (0,)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[int, ...]:
        return self.cuMemAlloc(size)

    def cuMemFreeHost(self, address: int) -> tuple[int, ...]:
        return self.cuMemFree(address)

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> tuple[int, ...]:
        ctypes.memset(address, value, size)
        return (0,)

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[int, ...]:
        assert size <= len(self.memory[target])
        self.work(functools.partial(ctypes.memmove, target, source, size))
        return (0,)

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: int) -> tuple[int, ...]:
        assert size <= len(self.memory[source])
        self.work(functools.partial(ctypes.memmove, target, source, size))
        return (0,)

    def cuStreamBeginCapture(self, stream: int, mode: Any) -> tuple[int, ...]:
        if not self.captures:
            return (900,)
        self.capturing = []
        return (0,)

    def cuStreamEndCapture(self, stream: int) -> tuple[int, Any]:
        actions, self.capturing = self.capturing, None
        return (0, actions)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[int, Any]:
        return (0, list(graph))

    def cuGraphDestroy(self, graph: Any) -> tuple[int, ...]:
        return (0,)

    def cuGraphExecDestroy(self, graph: Any) -> tuple[int, ...]:
        return (0,)

    def cuGraphLaunch(self, graph: Any, stream: int) -> tuple[int, ...]:
        for action in graph:
            action()
        return (0,)


def engine_bytes(
    model: onnx.ModelProto,
    profiles: list[Mapping[str, InputRange]],
    *,
    faults: Mapping[str, float] | None = None,
    information: Any = None,
    us: float = 100.0,
    memory: int = 1000,
    late: tuple[str, ...] = (),
    on_host: tuple[str, ...] = (),
    refits: Mapping[tuple[str, str], str] | None = None,
    formats: Mapping[str, str] | None = None,
    debug: tuple[str, ...] = (),
) -> bytes:
    """Makes an engine file for the fake TensorRT.

    Args:
        model: What it computes.
        profiles: Its optimization profiles.
        faults: Output to a number that is added to its first element; "NaN" as a number is taken too.
        information: What the inspector says.
        us: How long it takes, in microseconds.
        memory: What its activations take, in bytes.
        late: Outputs whose shape is known only once it has run.
        on_host: Inputs that are read from the memory of the host.
        formats: Inputs and outputs to TensorRT's name of the format that they have; None: all are linear.
        debug: Inner tensors that it shows.
        refits: Layer and role of the weights that it takes, to the initializer that they are; None: it takes none.
    """
    shapes = [{n: (r.min, r.opt, r.max) for n, r in profile.items()} for profile in profiles]
    told = {"Layers": ["layer"]} if information is None else information
    return b"FAKE" + pickle.dumps(
        (
            model.SerializeToString(),
            shapes,
            dict(faults or {}),
            json.dumps(told),
            us,
            memory,
            late,
            on_host,
            refits,
            formats,
            debug,
        )
    )


class ILogger:
    Severity = enum.Enum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"])

    def log(self, severity: Any, msg: str) -> None: ...


class Played:
    """A class of TensorRT; `trt` and `driver` are given to it by `fake_tensorrt`."""

    trt: Any
    driver: FakeDriver


class Context(Played):
    profiler: Any = None
    _listener: Any = None
    _shows = False

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        # The first profile is taken by the first context, as in every TensorRT.
        self._profile: int | None = None
        self._choose(0)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}

    @property
    def active_optimization_profile(self) -> int:
        return -1 if self._profile is None else self._profile

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        return profile < len(self._engine._profiles) and self._choose(profile)

    def _choose(self, profile: int) -> bool:
        """Takes a profile; where they are not shared, one that no other context has."""
        used = self._engine._used
        if not self.driver.shares_profiles and used.get(profile) not in (None, id(self)):
            return False
        used.pop(self._profile, None)
        used[profile] = id(self)
        self._profile = profile
        return True

    def __del__(self) -> None:
        self._engine._used.pop(self._profile, None)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        if self._profile is None:
            return False
        low, _, high = self._engine._profiles[self._profile][name]
        self._shapes[name] = tuple(shape)
        return all(a <= n <= b for n, a, b in zip(shape, low, high, strict=True))

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self._shapes:
            return self._shapes[name]
        if name in self._engine._late:
            return (-1, *self._engine._declared[name][1:])
        # What is read from the host may decide the shape; it has to be there before.
        feeds = {
            n: self._read(n) if n in self._engine._on_host else np.zeros(s, self._engine._types[n])
            for n, s in self._shapes.items()
        }
        return tuple(self._engine._run(feeds)[name].shape)

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        self._allocators[name] = allocator
        return True

    def _read(self, name: str) -> Any:
        dtype, shape, form = self._engine._types[name], self._shapes[name], self._engine._format(name)
        stored = stored_shape(shape, form)
        size = int(np.prod(stored)) * dtype.itemsize
        return unpack(np.frombuffer(ctypes.string_at(self._addresses[name], size), dtype).reshape(stored), shape, form)

    def set_debug_listener(self, listener: Any) -> bool:
        self._listener = listener
        return True

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        self._shows = flag
        return True

    def _show(self, feeds: Mapping[str, Any]) -> None:
        """Tells of the debug tensors, each in memory that is gone afterwards, as TensorRT does."""
        for name, values in self._engine._shown(feeds).items():
            _, address = self.driver.cuMemAlloc(values.nbytes)
            ctypes.memmove(address, np.ascontiguousarray(values).ctypes.data, values.nbytes)
            kind = getattr(self.trt.DataType, _DTYPES[str(values.dtype)])
            place = self.trt.TensorLocation.DEVICE
            self._listener.process_debug_tensor(_capsule(address), place, kind, values.shape, name, 1)
            ctypes.memset(address, 0xFF, values.nbytes)
            self.driver.cuMemFree(address)

    def execute_async_v3(self, stream: int) -> bool:
        self.driver.work(self._infer)
        return True

    def _infer(self) -> None:
        feeds = {name: self._read(name) for name in self._shapes}
        if self._shows and self._engine._debug:
            self._show(feeds)
        for name, values in self._engine._run(feeds).items():
            if name in self._allocators:
                allocator = self._allocators[name]
                self._addresses[name] = allocator.reallocate_output(name, 0, values.nbytes, 256)
                allocator.notify_shape(name, values.shape)
            stored = pack(values, self._engine._format(name))
            ctypes.memmove(self._addresses[name], stored.ctypes.data, stored.nbytes)
        self.driver.now += self._engine._us
        if self.profiler is not None:
            self.profiler.report_layer_time("layer", self._engine._us / 1000)


def _capsule(address: int) -> Any:
    """Makes what the bindings hand a pointer over in."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, None, None)


class Inspector(Played):
    execution_context: Any = None

    def __init__(self, text: str) -> None:
        self._text = text

    def get_engine_information(self, form: Any) -> str:
        return self._text


_ORT_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}
_ORT_TYPES |= {"tensor(int32)": "int32", "tensor(bool)": "bool", "tensor(uint8)": "uint8", "tensor(int8)": "int8"}


class Engine(Played):
    def __init__(self, data: bytes) -> None:
        self._content = pickle.loads(data)
        model, self._profiles, self._faults, self._told, *rest = self._content
        self._us, self._memory, self._late, self._on_host, self._refits, formats, self._debug = rest
        self._formats: dict[str, str] = dict(formats or {})
        self._used: dict[int | None, int] = {}
        self._session = session(model, optimised=True)
        values = (*self._session.get_inputs(), *self._session.get_outputs())
        self._io = [value.name for value in values]
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._types = {value.name: np.dtype(_ORT_TYPES[value.type]) for value in values}
        self._declared = {v.name: [n if isinstance(n, int) else -1 for n in v.shape] for v in values}

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self._io[len(self._inputs) :]
        found = dict(zip(outputs, self._session.run(outputs, dict(feeds)), strict=True))
        for name, fault in self._faults.items():
            found[name] = found[name].copy()
            found[name].reshape(-1)[0] += fault
        return found

    def _shown(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the debug tensors."""
        model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(self._content[0]))
        model.graph.output.extend(value for value in model.graph.value_info if value.name in self._debug)
        return dict(zip(self._debug, session(model).run(list(self._debug), dict(feeds)), strict=True))

    def _format(self, name: str) -> str:
        return self._formats.get(name, "LINEAR")

    def get_tensor_format(self, name: str) -> Any:
        return getattr(self.trt.TensorFormat, self._format(name))

    refittable = property(lambda self: self._refits is not None)

    def serialize(self) -> bytes:
        return b"FAKE" + pickle.dumps(self._content)

    def _refit(self, values: Mapping[str, Any]) -> None:
        model = onnx.load_model_from_string(self._content[0])
        for tensor in model.graph.initializer:
            if tensor.name in values:
                new = values[tensor.name].reshape(tuple(tensor.dims))
                tensor.CopyFrom(onnx.numpy_helper.from_array(new, tensor.name))
        self._content = (model.SerializeToString(), *self._content[1:])

    num_io_tensors = property(lambda self: len(self._io))
    num_layers = property(lambda self: 3)
    num_optimization_profiles = property(lambda self: len(self._profiles))
    device_memory_size = property(lambda self: self._memory)
    device_memory_size_v2 = property(lambda self: self._memory)

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        return int(self._memory) // (len(self._profiles) - profile_index)

    get_device_memory_size_for_profile_v2 = get_device_memory_size_for_profile

    def get_tensor_name(self, index: int) -> str:
        return str(self._io[index])

    def get_tensor_mode(self, name: str) -> Any:
        return self.trt.TensorIOMode.INPUT if name in self._inputs else self.trt.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return getattr(self.trt.DataType, _DTYPES[str(self._types[name])])

    def get_tensor_shape(self, name: str) -> list[int]:
        return self._declared[name]

    def get_tensor_location(self, name: str) -> Any:
        return self.trt.TensorLocation.HOST if name in self._on_host else self.trt.TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        return list(self._profiles[profile][name])

    def create_engine_inspector(self) -> Any:
        return self.trt.EngineInspector(self._told)

    def create_execution_context(self) -> Any:
        free = self.driver.total - self.driver.used
        return self.trt.IExecutionContext(self) if self._memory <= free else None


class Refitter(Played):
    """Takes weights by layer and role. `hidden` and `refused` are what it does not list, and does not take."""

    _hidden: frozenset[tuple[str, str]] = frozenset()
    _refused: frozenset[tuple[str, str]] = frozenset()

    def __init__(self, engine: Any, logger: Any) -> None:
        self._engine = engine
        self._values: dict[str, Any] = {}

    def _listed(self, keys: Any) -> tuple[list[str], list[Any]]:
        kept = [key for key in keys if key not in self._hidden]
        return [layer for layer, _ in kept], [getattr(self.trt.WeightsRole, role) for _, role in kept]

    def get_all(self) -> tuple[list[str], list[Any]]:
        return self._listed(self._engine._refits)

    def set_weights(self, layer_name: str, role: Any, weights: Any) -> bool:
        key = (layer_name, role.name)
        if key in self._refused:
            return False
        self._values[self._engine._refits[key]] = weights
        return True

    def get_missing(self) -> tuple[list[str], list[Any]]:
        names = self._engine._refits.items()
        return self._listed(key for key, name in names if self._values and name not in self._values)

    def get_missing_weights(self) -> list[str]:
        return []

    def refit_cuda_engine(self) -> bool:
        self._engine._refit(self._values)
        return True


class Runtime(Played):
    engine_host_code_allowed = False

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def get_engine_validity(self, data: bytes) -> tuple[Any, int]:
        if data[:8] == b"FOREIGN:":
            self._logger.log(ILogger.Severity.ERROR, "it is for another GPU")
            return self.trt.EngineValidity.INVALID, int(data[8:])
        return self.trt.EngineValidity.VALID, 0

    def _taken(self) -> None: ...

    def load_runtime(self, path: str) -> Any:
        """Loads a lean runtime, which takes what this one does, and says that it was the one."""
        if not pathlib.Path(path).read_bytes().startswith(b"LEAN"):
            self._logger.log(ILogger.Severity.ERROR, "it is no lean runtime")
            return None
        lean = self.trt.Runtime(self._logger)
        lean._taken = lambda: self.driver.lean.append(pathlib.Path(path).name)
        return lean

    def deserialize_cuda_engine(self, data: bytes) -> Any:
        self._taken()
        if data[:4] != b"FAKE":
            self._logger.log(ILogger.Severity.ERROR, "Serialization assertion failed. Version tag does not match")
            return None
        return self.trt.ICudaEngine(data[4:])


_BITS = ("VERSION_MISMATCH", "UNSUPPORTED_CC", "OLD_CUDA_DRIVER", "OLD_CUDA_RUNTIME", "INSUFFICIENT_GPU_MEMORY")
"""Of the diagnostics of TensorRT-RTX, from the lowest; two more follow that are about the engine."""
_PLAYED = {
    "IExecutionContext": Context,
    "EngineInspector": Inspector,
    "ICudaEngine": Engine,
    "Refitter": Refitter,
    "Runtime": Runtime,
}


class _Bound(enum.EnumMeta):
    """As pybind11 makes enumerations: members are attributes alone."""

    def __getitem__(cls, name: str) -> Any:
        raise TypeError("'pybind11_type' object is not subscriptable")


class _BoundEnum(enum.IntEnum, metaclass=_Bound):
    """An enumeration of the bindings."""


def bound_enum(name: str, members: list[str]) -> Any:
    """Makes an enumeration of the bindings."""
    make: Any = _BoundEnum
    return make(name, members)


def fake_tensorrt(driver: FakeDriver, surface: str = "tensorrt-8.6.0") -> Any:
    """Makes the module. What it plays and the surface lacks raises AttributeError."""
    known = json.loads((SURFACES / f"{surface}.json").read_text(encoding="utf-8"))
    trt = types.SimpleNamespace(__version__=VERSION if surface == "tensorrt-8.6.0" else surface.rpartition("-")[2])
    for owner, described in known.items():
        if "enum" in described:
            setattr(trt, owner, bound_enum(owner, described["enum"]))
    if hasattr(trt, "EngineInvalidityDiagnostics"):
        make: Any = enum.IntFlag
        trt.EngineInvalidityDiagnostics = make("EngineInvalidityDiagnostics", _BITS)
    trt.ILogger = ILogger
    trt.Weights = lambda values: values
    trt.IProfiler = type("IProfiler", (), {})
    trt.IOutputAllocator = type("IOutputAllocator", (), {})
    if "IDebugListener" in known:
        trt.IDebugListener = type("IDebugListener", (), {})
    for owner, kind in _PLAYED.items():
        public = {name for name in vars(kind) if not name.startswith("_")}
        lacking = public - set(known[owner]["members"])
        members = {name: property(_lacks(owner, name)) for name in lacking} | {"trt": trt, "driver": driver}
        setattr(trt, owner, type(owner, (kind,), members))
    return trt


def _lacks(owner: str, name: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        raise AttributeError(f"{owner} has no {name}")

    return read
