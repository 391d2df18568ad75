"""What GPUs are called: CUDA's names, as people write them in a target."""

from __future__ import annotations

import re

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
    found = (exact, _BUILD.sub("", exact), f"cc{capability}" if capability else "")
    return tuple(dict.fromkeys(label for label in found if label))
