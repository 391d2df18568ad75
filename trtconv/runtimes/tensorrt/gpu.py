"""Names the GPU through the CUDA driver, without needing any CUDA package."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import NamedTuple

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


class Card(NamedTuple):
    """The first GPU that CUDA offers.

    Args:
        name: As CUDA says it.
        capability: Compute capability, "9.0".
        driver: Newest CUDA version that the driver knows, "12.4".
    """

    name: str
    capability: str
    driver: str


@functools.lru_cache(maxsize=1)
def card() -> Card | None:
    """Returns the first GPU that CUDA offers, or None where there is no driver or no GPU.

    Source: CUDA Driver API, cuInit, cuDeviceGet, cuDeviceGetName, cuDeviceGetAttribute, cuDriverGetVersion; part of
    the driver on every system.
    """
    device, version, major, minor = (ctypes.c_int() for _ in range(4))
    name = ctypes.create_string_buffer(256)
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        failed = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), 0)
            or driver.cuDeviceGetName(name, len(name), device)
            or driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
            or driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
            or driver.cuDriverGetVersion(ctypes.byref(version))
        )
    except (OSError, AttributeError):
        return None
    if failed:
        return None
    newest = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Card(name.value.decode(errors="replace"), f"{major.value}.{minor.value}", newest)


def gpu_name() -> str | None:
    """Returns the name of the first GPU that CUDA offers, or None where there is no driver or no GPU."""
    gpu = card()
    return None if gpu is None else gpu.name
