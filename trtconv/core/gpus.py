"""What GPUs are called: CUDA's names, as people write them in a target."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trtconv.core.frozen import frozen

_MAKER = re.compile(r"^(nvidia|geforce|tesla|quadro(?=-rtx-a))-")
_BUILD = re.compile(r"-(\d+gb|hbm\w*|pcie|sxm\d*|nvl|gpu|generation)(?![^-])")
"""Memory and how it is plugged in, which tell builds of one GPU apart."""


def gpu_label(name: str) -> str:
    """Returns a GPU's name as a target has it: "NVIDIA H100 80GB HBM3" is "h100-80gb-hbm3"."""
    label = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    while _MAKER.match(label):
        label = _MAKER.sub("", label)
    return label


def gpu_labels(name: str | None, capability: str | None = None) -> tuple[str, ...]:
    """Returns everything that a GPU answers to, the most exact first.

    Args:
        name: As CUDA says it, "NVIDIA H100 80GB HBM3"; None where there is no GPU.
        capability: Its compute capability, "9.0".

    Returns:
        Such as ("h100-80gb-hbm3", "h100", "cc9.0").
    """
    exact = gpu_label(name or "")
    labels = (exact, _BUILD.sub("", exact), f"cc{capability}" if capability else "")
    return tuple(dict.fromkeys(label for label in labels if label))


@frozen
class GpuPeaks:
    """What a GPU can do at most, by its maker's data sheet; without sparsity, and adding up in float32.

    Args:
        title: Its name.
        bandwidth: Of its memory, in bytes a second.
        float32: Operations a second, two for each multiplication, in float32 (TF32 where it has that).
        float16: The same in float16.
        int8: The same in int8.
    """

    title: str
    bandwidth: float
    float32: float
    float16: float
    int8: float


PEAKS: Mapping[str, GpuPeaks] = {
    "t4": GpuPeaks("T4", 320e9, 8.1e12, 65e12, 130e12),
    "a10": GpuPeaks("A10", 600e9, 62.5e12, 125e12, 250e12),
    "a100": GpuPeaks("A100 (80 GB)", 2039e9, 156e12, 312e12, 624e12),
    "l4": GpuPeaks("L4", 300e9, 60e12, 121e12, 242e12),
    "l40s": GpuPeaks("L40S", 864e9, 183e12, 362e12, 733e12),
    "rtx-3090": GpuPeaks("RTX 3090", 936e9, 35.6e12, 71e12, 284e12),
    "rtx-4090": GpuPeaks("RTX 4090", 1008e9, 82.6e12, 165.2e12, 660.6e12),
    "rtx-5090": GpuPeaks("RTX 5090", 1792e9, 104.8e12, 209.5e12, 838e12),
    "h100": GpuPeaks("H100 (SXM)", 3350e9, 494e12, 989e12, 1979e12),
    "h200": GpuPeaks("H200", 4800e9, 494e12, 989e12, 1979e12),
    "b200": GpuPeaks("B200", 8000e9, 1100e12, 2250e12, 4500e12),
}
"""Label of a GPU to its peaks: what an estimate of a network's time can be made of."""
