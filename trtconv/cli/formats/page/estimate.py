"""What a network's layers take on a GPU at least, by its peaks: the longer of computing and of reading and writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.layers import LayerTable, TableLayer
from trtconv.core.frozen import frozen
from trtconv.core.gpus import PEAKS, GpuPeaks, gpu_labels

USUAL_GPU = "l4"
"""Estimated for where neither target, build nor flag names another."""
_NARROW = ("fp16", "bf16", "int8")
_FLOATS, _HALVES = ("float32",), ("float16", "bfloat16")


@frozen
class Estimate:
    """The least time of each layer at opt of each profile.

    Args:
        gpu: The GPU's peaks.
        times: For each profile, of each layer, in seconds; None where sizes are not known.
        limits: For each profile, of each layer, whether it is bound by "compute" or by "memory"; empty without time.
    """

    gpu: GpuPeaks
    times: Sequence[Sequence[float | None]]
    limits: Sequence[Sequence[str]]

    def total(self, profile: int) -> float:
        """Returns what all layers take at opt of a profile, in seconds."""
        return sum(time or 0.0 for time in self.times[profile])


def gpu_for(report: BuildReport, gpu: str | None) -> GpuPeaks:
    """Returns the GPU to estimate for: the one that is asked for, that of the target or of the build, or an L4."""
    labels = (gpu or "", report.plan.target.gpu or "", *gpu_labels(report.runtime.gpu), USUAL_GPU)
    return next(PEAKS[label] for label in labels if label in PEAKS)


def estimate(report: BuildReport, table: LayerTable, gpu: GpuPeaks) -> Estimate:
    """Returns what layers take at least.

    Args:
        report: Says whether the builder computes floats in 16 bits.
        table: The layers.
        gpu: What they run on.
    """
    narrow = report.cast is None and report.plan.precision in _NARROW
    makers = {number: layer for layer in table.layers for number in layer.outputs}
    count = len(table.layers[0].moved) if table.layers else 0
    both = [[_time(table, layer, profile, gpu, narrow, makers) for layer in table.layers] for profile in range(count)]
    return Estimate(
        gpu, [[time for time, _ in pairs] for pairs in both], [[limit for _, limit in pairs] for pairs in both]
    )


def _time(
    table: LayerTable, layer: TableLayer, profile: int, gpu: GpuPeaks, narrow: bool, makers: Mapping[int, TableLayer]
) -> tuple[float | None, str]:
    products, moved = layer.products[profile], layer.moved[profile]
    if products is None or moved is None:
        return None, ""
    dtype = _type(table, layer, makers)
    rate = {"float32": gpu.float16 if narrow else gpu.float32, "float16": gpu.float16, "int8": gpu.int8}[dtype]
    computing, reading = 2 * products / rate, moved / (2 if narrow and dtype == "float32" else 1) / gpu.bandwidth
    return max(computing, reading), "" if not moved else "compute" if computing > reading else "memory"


def _type(table: LayerTable, layer: TableLayer, makers: Mapping[int, TableLayer]) -> str:
    """Returns what a layer multiplies in: int8 where all that it takes was dequantised."""
    inputs = [number for number in layer.inputs if number is not None]
    if inputs and all(number in makers and makers[number].kind == "DEQUANTIZE" for number in inputs[:2]):
        return "int8"
    types = {table.tensors[number].dtype for number in inputs}
    return "float16" if types & set(_HALVES) and not types & set(_FLOATS) else "float32"
