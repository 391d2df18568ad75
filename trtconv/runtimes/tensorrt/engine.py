"""Engines loaded into TensorRT."""

from __future__ import annotations

from typing import Any

from trtconv.core import foreign
from trtconv.core.agreement import AgreedCode
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.runtimes.tensorrt import plugins
from trtconv.runtimes.tensorrt.device import Gpu
from trtconv.runtimes.tensorrt.engine_base import RangeNames
from trtconv.runtimes.tensorrt.engine_in_memory import EngineInMemory
from trtconv.runtimes.tensorrt.execution import ExecutionContext
from trtconv.runtimes.tensorrt.logger import Log, logged_errors
from trtconv.runtimes.tensorrt.management import NvtxRanges, energy_millijoules
from trtconv.runtimes.tensorrt.refit import EngineRefitter

_MACHINE = ("VERSION_MISMATCH", "UNSUPPORTED_CC", "OLD_CUDA_DRIVER", "OLD_CUDA_RUNTIME", "INSUFFICIENT_GPU_MEMORY")
"""Reasons why an engine is invalid that lie in the machine, not in the engine."""
_FOR_LEAN = "It must be libnvinfer_lean.so of the TensorRT that built the engine, for this machine."


class Engines:
    """Loads engines into one TensorRT.

    Args:
        family: "rtx" or "tensorrt".
        trt: The imported module.
        log: Its logger.

    Raises:
        EnvironmentMissing: There is no GPU, or no binding to it.
        InputError: A lean runtime was given, and does not load.
    """

    def __init__(self, family: str, trt: Any, log: Log) -> None:
        self.gpu = Gpu()
        self.family = family
        self.version = str(trt.__version__)
        self._trt = trt
        self._log = log
        plugins.prepare(family, trt, log)
        with log.session():
            self._runtime = trt.Runtime(log.logger)
        for library in foreign.current().lean[-1:]:
            self._runtime = self._lean(library)

    def _lean(self, library: AgreedCode) -> Any:
        """Returns the runtime of another version of TensorRT, which a library holds.

        Raises:
            InputError: It does not load, or was changed since it was agreed to.
        """
        library.require_unchanged()
        with self._log.session() as session:
            try:
                runtime = self._runtime.load_runtime(str(library.path.absolute()))
            except (RuntimeError, TypeError, ValueError) as error:
                raise InputError(f"{library.path} does not load: {error}", _FOR_LEAN) from error
            errors = logged_errors(session)
        if runtime is None:
            raise InputError(f"{library.path} does not load: {errors}", _FOR_LEAN)
        return runtime

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

    def joules(self) -> float | None:
        """Returns the energy that the whole GPU has taken so far; None where its driver does not tell."""
        millijoules = energy_millijoules(self.gpu.bus_id)
        return None if millijoules is None else millijoules / 1000

    def ranges(self) -> RangeNames:
        """Returns what names spans of time for NVIDIA's profilers."""
        return NvtxRanges()

    def load(self, data: bytes, *, host_code: bool = False) -> LoadedEngine:
        """Loads an engine, which runs code that is in it."""
        self._require_fit(data)
        if host_code:
            self._runtime.engine_host_code_allowed = True
        with self._log.session() as session:
            try:
                engine = self._runtime.deserialize_cuda_engine(data)
            except (RuntimeError, TypeError, ValueError, MemoryError) as error:
                raise EngineFailed(f"TensorRT {self.version} broke down on the engine: {error}") from error
            errors = logged_errors(session)
        if engine is None:
            raise EngineFailed(
                f"TensorRT {self.version} does not load the engine: {errors}",
                "It was made by another version, for another GPU or platform, or it is damaged. Build it again here.",
            )
        return LoadedEngine(self._trt, self._log, self.gpu, engine)

    def _require_fit(self, data: bytes) -> None:
        """Asks a TensorRT that can tell whether an engine runs here (TensorRT-RTX)."""
        if not hasattr(self._runtime, "get_engine_validity"):
            return
        with self._log.session() as session:
            validity, diagnostics = self._runtime.get_engine_validity(data)
            errors = logged_errors(session)
        reasons = self._trt.EngineInvalidityDiagnostics
        faults = [name for name in _MACHINE if int(diagnostics) & int(getattr(reasons, name))]
        if validity == self._trt.EngineValidity.INVALID and faults:
            why = ", ".join(name.lower().replace("_", " ") for name in faults)
            raise EnvironmentMissing(
                f"TensorRT {self.version} does not run the engine on {self.gpu.name}: {why}; {errors}",
                "Build it for this GPU and this TensorRT.",
            )


class LoadedEngine(EngineInMemory):
    """An engine that runs; implements `Engine`."""

    def open(self, profile: int = 0, cache: bytes | None = None) -> ExecutionContext:
        """Makes ready to run with an optimization profile."""
        return ExecutionContext(self._trt, self, profile, cache)

    def refitter(self) -> EngineRefitter:
        """Returns what puts new weights into it."""
        if not self.handle.refittable:
            raise EngineFailed("the engine cannot be refitted", "Build it with --refittable or --strip-weights.")
        return EngineRefitter(self._trt, self.log, self.handle)
