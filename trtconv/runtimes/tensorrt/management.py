"""What two small libraries of NVIDIA tell and take: the energy of the GPU (NVML), and names for its profilers (NVTX).

Both are called through ctypes: the one comes with the driver, the other with CUDA, and neither with TensorRT.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from trtconv.core.errors import EnvironmentMissing

_WINDOWS = sys.platform == "win32"


@functools.lru_cache(maxsize=1)
def _nvml() -> ctypes.CDLL | None:
    """Returns NVML, made ready; None where there is none."""
    try:
        library = ctypes.CDLL("nvml.dll" if _WINDOWS else "libnvidia-ml.so.1")
        return None if library.nvmlInit_v2() else library
    except (OSError, AttributeError):
        return None


def energy_millijoules(bus_id: str) -> int | None:
    """Returns the energy that a GPU has taken since its driver was loaded.

    Args:
        bus_id: Where on the PCI bus it is: "0000:65:00.0".

    Returns:
        None where it is not told: without NVML, before Volta, and for a part of a GPU.

    Source: NVML API, nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetTotalEnergyConsumption.
    """
    library = _nvml()
    if library is None:
        return None
    device, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
    try:
        failed = library.nvmlDeviceGetHandleByPciBusId_v2(
            bus_id.encode(), ctypes.byref(device)
        ) or library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy))
    except AttributeError:
        return None
    return None if failed else energy.value


class NvtxRanges:
    """Names spans of time for NVIDIA's profilers.

    Raises:
        EnvironmentMissing: The library is not there.

    Source: NVTX, nvtxRangeStartA and nvtxRangeEnd.
    """

    def __init__(self) -> None:
        name = "nvToolsExt64_1.dll" if _WINDOWS else "libnvToolsExt.so.1"
        try:
            library = ctypes.CDLL(name)
            self._start, self._end = library.nvtxRangeStartA, library.nvtxRangeEnd
        except (OSError, AttributeError) as error:
            raise EnvironmentMissing(
                f"--nvtx takes the library {name}, which is not there: {error}",
                "Install it (CUDA 12 and older have it, and pip install nvidia-nvtx-cu12) where the system looks for "
                "libraries.",
            ) from error
        self._start.restype, self._start.argtypes = ctypes.c_uint64, [ctypes.c_char_p]
        self._end.restype, self._end.argtypes = None, [ctypes.c_uint64]

    def begin(self, name: str) -> int:
        """Begins a span; returns its number."""
        return int(self._start(name.encode()))

    def end(self, number: int) -> None:
        """Ends a span."""
        self._end(number)
