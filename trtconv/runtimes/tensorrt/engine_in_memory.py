"""What an engine that TensorRT has loaded says of itself."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from trtconv.core.dims import InputRange
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import EngineFailed, EnvironmentMissing
from trtconv.core.tensor_io import FORMATS, LINEAR
from trtconv.runtimes.tensorrt.device import Gpu
from trtconv.runtimes.tensorrt.layers import dtype_name, enum_name
from trtconv.runtimes.tensorrt.logger import Log

_NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}
_FORMATS = {theirs: ours for ours, theirs in FORMATS.items() if ours != LINEAR}
_ML_DTYPES = {"BF16": "bfloat16", "FP8": "float8_e4m3fn"}
"""Types that NumPy has only with the package ml_dtypes, which onnx brings along."""


def numpy_type(name: str) -> np.dtype[Any]:
    """Returns the NumPy type of one of TensorRT's, by its name there: "HALF"."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _ML_DTYPES:
        raise EnvironmentMissing(f"inputs and outputs of type {name.lower()} cannot be fed or read here")
    try:
        import ml_dtypes
    except ImportError as error:
        raise EnvironmentMissing(f"NumPy lacks the type {name.lower()}", "pip install ml_dtypes") from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return dtype


class EngineInMemory:
    """What an engine in the memory of the GPU says of itself.

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
        form = _FORMATS.get(self.format(name))
        return TensorInfo(name, kind, dtype_name(self.handle.get_tensor_dtype(name)), shape, form)

    def format(self, name: str) -> str:
        """Returns how the elements of an input or output lie in memory, as TensorRT calls it: "LINEAR"."""
        return enum_name(self.handle.get_tensor_format(name))

    def numpy_type(self, name: str) -> np.dtype[Any]:
        """Returns the NumPy type of an input or output."""
        return numpy_type(self.handle.get_tensor_dtype(name).name)

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

    @property
    def profile_memory_bytes(self) -> tuple[int, ...]:
        """The same with each optimization profile; empty where this TensorRT does not say, as 8.6."""
        for name in ("get_device_memory_size_for_profile_v2", "get_device_memory_size_for_profile"):
            if hasattr(self.handle, name):
                return tuple(int(getattr(self.handle, name)(index)) for index in range(len(self.profiles)))
        return ()

    def information(self, context: Any = None) -> dict[str, object]:
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
