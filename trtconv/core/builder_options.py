"""How TensorRT is to build: the options of its builder that people use, under one set of names."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen

HARDWARE = ("none", "ampere+", "same-compute-capability")
VERBOSITIES = ("none", "layer-names", "detailed")
_MOST_BYTES = 2**63 - 1
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@frozen
class BuilderOptions:
    """Options of TensorRT's builder; None leaves TensorRT's own default.

    Args:
        workspace_bytes: Most memory that a layer may use for scratch, in bytes.
        optimization_level: 0 (builds fastest) to 5 (searches longest).
        version_compatible: The engine also runs on other versions of TensorRT.
        hardware: One of `HARDWARE`: on which other GPUs the engine runs.
        strip_weights: Leave out the weights; they are given when the engine is used.
        refittable: Weights can be replaced later.
        weight_streaming: Weights may stay in host memory while the engine runs.
        sparsity: Allow kernels for weights with 2:4 sparsity.
        tf32: Compute float32 convolutions and matrix products in TF32 where the GPU has it.
        profiling_verbosity: One of `VERBOSITIES`: what the engine tells of its layers.
        compute_capabilities: GPUs to build for, such as ("7.5", "8.9"); TensorRT-RTX alone.
    """

    workspace_bytes: int | None = None
    optimization_level: int | None = None
    version_compatible: bool = False
    hardware: str = "none"
    strip_weights: bool = False
    refittable: bool = False
    weight_streaming: bool = False
    sparsity: bool = False
    tf32: bool | None = None
    profiling_verbosity: str | None = None
    compute_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hardware not in HARDWARE:
            raise InputError(
                f"hardware compatibility {self.hardware!r} is unknown", f"Use one of {', '.join(HARDWARE)}."
            )
        if self.profiling_verbosity not in (None, *VERBOSITIES):
            known = ", ".join(VERBOSITIES)
            raise InputError(f"profiling verbosity {self.profiling_verbosity!r} is unknown", f"Use one of {known}.")
        if self.optimization_level is not None and not 0 <= self.optimization_level <= 5:
            raise InputError(f"optimization level {self.optimization_level} is not 0 to 5", "3 is TensorRT's default.")
        if self.workspace_bytes is not None and not 0 < self.workspace_bytes <= _MOST_BYTES:
            raise InputError(f"{self.workspace_bytes} bytes are no workspace", "Give 1 to 2**63 - 1 bytes.")
        for text in self.compute_capabilities:
            if not re.fullmatch(r"\d{1,2}\.\d", text):
                raise InputError(f"compute capability {text!r} is none", "Write it as in 7.5 or 12.0.")

    def to_json(self) -> dict[str, Any]:
        """Returns what differs from TensorRT's defaults, as plain JSON values."""
        kept = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                kept[field.name] = list(value) if isinstance(value, tuple) else value
        return kept


DEFAULTS = BuilderOptions()
"""TensorRT as it is."""


def parse_bytes(text: str) -> int:
    """Reads a size such as 512M, 2G or 1000000 (bytes).

    Raises:
        InputError: It is none.
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if not 0 < size <= _MOST_BYTES:
        raise InputError(f"{text!r} is no size", "Write it as in 512M or 2G.")
    return size
