"""Where an engine runs: which TensorRT loads it, and on which cards, by the names that people know them by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.parts import RuntimeIdentity

_RTX_CAPABILITIES = ("8.0", "8.6", "8.9", "12.0", "12.1")
"""What TensorRT-RTX builds for where nothing is asked for. Source: docs/compatibility.md."""

_CARDS = {
    "7.5": "RTX 20 series and T4",
    "8.0": "A100",
    "8.6": "RTX 30 series and A10",
    "8.9": "RTX 40 series and L4",
    "12.0": "RTX 50 series",
    "12.1": "GB10",
}
_HARDWARE = {"ampere+": "RTX 30 series, A100 and all newer", "same-compute-capability": "GPUs of the kind of {gpu}"}


class RunsOn(NamedTuple):
    """Where an engine runs.

    Args:
        loader: The TensorRT that loads it.
        cards: The GPUs.
    """

    loader: str
    cards: str


def runs_on(runtime: RuntimeIdentity, options: BuilderOptions) -> RunsOn:
    """Returns where an engine runs.

    Args:
        runtime: The TensorRT that built it.
        options: How its builder worked.
    """
    newer = " and newer" if options.version_compatible else " alone"
    if runtime.family == "rtx":
        loader = f"TensorRT-RTX {runtime.version}{newer}, not TensorRT, trtexec or Triton"
        return RunsOn(loader, _named(options.compute_capabilities or _RTX_CAPABILITIES))
    cards = _HARDWARE.get(options.hardware, "{gpu}").format(gpu=runtime.gpu or "the GPU that it was built on")
    return RunsOn(f"TensorRT {runtime.version}{newer}, not TensorRT-RTX", cards)


def _named(capabilities: Sequence[str]) -> str:
    return ", ".join(
        f"{_CARDS[capability]} ({capability})" if capability in _CARDS else f"GPUs of {capability}"
        for capability in capabilities
    )
