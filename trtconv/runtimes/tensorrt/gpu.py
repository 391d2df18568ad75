"""Names the GPU through the CUDA driver, without needing any CUDA package."""

from __future__ import annotations

import ctypes
import functools
import sys


@functools.lru_cache(maxsize=1)
def gpu_name() -> str | None:
    """Returns the name of the first GPU that CUDA offers, or None where there is no driver or no GPU.

    Source: CUDA Driver API, cuInit, cuDeviceGet, cuDeviceGetName; part of the driver on every system.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        device = ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        failed = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), 0)
            or driver.cuDeviceGetName(name, len(name), device)
        )
    except (OSError, AttributeError):
        return None
    return None if failed else name.value.decode(errors="replace")
