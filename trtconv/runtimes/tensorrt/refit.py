"""New weights for an engine in memory, by layer and role: TensorRT's refitter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.errors import EngineFailed
from trtconv.runtimes.tensorrt.engine_base import WeightKey
from trtconv.runtimes.tensorrt.layers import enum_name
from trtconv.runtimes.tensorrt.logger import Log, logged_errors

_POINTED = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "FP8",
    "float8_e8m0fnu": "E8M0",
    "float4_e2m1fn": "FP4",
    "int4": "INT4",
}
"""Types that the bindings take by address, since NumPy alone has them not."""
_HALF_BYTES = ("FP4", "INT4")
_FIX = "Build it again from the new model."


class EngineRefitter:
    """Puts weights into an engine; implements `Refitter`.

    Args:
        trt: The TensorRT module.
        log: Its logger.
        engine: The ICudaEngine, which was built to be refitted.
    """

    def __init__(self, trt: Any, log: Log, engine: Any) -> None:
        self._trt = trt
        self._log = log
        self._engine = engine
        with log.session():
            self._refitter = trt.Refitter(engine, log.logger)
        # They lie where TensorRT reads them until the engine has them.
        self._buffers: list[Any] = []

    @property
    def weights(self) -> tuple[WeightKey, ...]:
        """All weights that the engine can be given."""
        return _keys(self._refitter.get_all())

    def put(self, weights: Mapping[WeightKey, NDArray[Any]]) -> None:
        """Gives the engine weights, all at once."""
        with self._log.session() as session:
            for (layer, role), values in weights.items():
                if not self._refitter.set_weights(layer, getattr(self._trt.WeightsRole, role), self._weights(values)):
                    raise EngineFailed(
                        f"TensorRT refuses the {role} of layer {layer!r}: {logged_errors(session)}", _FIX
                    )
            missing = [f"{role} of layer {layer!r}" for layer, role in _keys(self._refitter.get_missing())]
            missing += [f"weights {name!r}" for name in self._refitter.get_missing_weights()]
            if missing:
                raise EngineFailed(f"TensorRT misses the {missing[0]} to refit the engine", _FIX)
            if not self._refitter.refit_cuda_engine():
                raise EngineFailed(f"TensorRT does not refit the engine: {logged_errors(session)}", _FIX)

    def serialized(self) -> memoryview:
        """Returns the content of an engine file with the weights in it, which can be refitted again."""
        with self._log.session() as session:
            if hasattr(self._engine, "create_serialization_config"):
                config, flags = self._engine.create_serialization_config(), self._trt.SerializationFlag
                config.clear_flag(flags.EXCLUDE_WEIGHTS)
                if hasattr(flags, "INCLUDE_REFIT"):
                    config.set_flag(flags.INCLUDE_REFIT)
                data = self._engine.serialize_with_config(config)
            else:
                data = self._engine.serialize()
            if data is None:
                raise EngineFailed(f"TensorRT does not serialize the engine: {logged_errors(session)}", _FIX)
        return memoryview(data)

    def _weights(self, values: NDArray[Any]) -> Any:
        values = np.ascontiguousarray(values).reshape(-1)
        kind = _POINTED.get(values.dtype.name)
        if kind is None:
            self._buffers.append(values)
            return self._trt.Weights(values)
        raw = _packed(values) if kind in _HALF_BYTES else values
        self._buffers.append(raw)
        return self._trt.Weights(getattr(self._trt.DataType, kind), raw.ctypes.data, values.size)


def _packed(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns values of four bits two in a byte, the first in the low half."""
    halves = np.resize(values.view(np.uint8) & 15, values.size + values.size % 2)
    packed: NDArray[np.uint8] = halves[0::2] | halves[1::2] << 4
    return packed


def _keys(listed: tuple[Iterable[str | None], Iterable[Any]]) -> tuple[WeightKey, ...]:
    return tuple((layer, enum_name(role)) for layer, role in zip(*listed, strict=True) if layer is not None)
