"""How far a tensor of a whole network may be off: by the types that it was computed in, and channel by channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

import numpy as np

from trtconv.core.dims import times
from trtconv.core.documents.verify import Difference, Tolerance, Verdict
from trtconv.graph.arrays import Array
from trtconv.runtimes.compare import TOLERANCES, compare
from trtconv.runtimes.proof.tolerance import eps_of, reduced
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_KEYS = {"float16": "fp16", "bfloat16": "bf16"}
_STEPS = ("QUANTIZE", "DEQUANTIZE")
_OF_CHANNEL = 100.0
"""How many times as far, over its own largest magnitude, a channel may be off: where large terms cancel, what is left
of them is small."""
_BOUNDED = ("SIGMOID", "TANH", "HARD_SIGMOID")
_OF_ONE = 16.0
"""How many units of rounding of 1 a tensor may be off that such activations are in."""
_UNITS = 64.0
"""How many units of rounding of the whole tensor besides."""


class Judge:
    """Compares tensors of a network with those of its model.

    Args:
        network: The network.
        most: Beyond which none may be off.
    """

    def __init__(self, network: ReadNetwork, most: Tolerance) -> None:
        self._network = network
        self._most = most
        self._makers = {number: layer for layer in network.layers for number in layer.outputs}

    def compare(self, number: int, expected: Array, got: Array | None, sources: Container[str] = ()) -> Difference:
        """Compares a tensor.

        Args:
            number: Of the tensor.
            expected: What the model has.
            got: What the network has.
            sources: Names of the tensors before it that it was computed from; none: from the inputs.
        """
        maker = self._makers.get(number)
        if maker is not None and got is not None:
            expected = reduced([maker], expected, got)
        types, steps, bounded = self._types(number, sources)
        # Networks of TensorRT before 9 have types only once they are built; the model rounds to its own all the same.
        types |= {expected.dtype.name}
        own = max((TOLERANCES[key] for key in _keys(types, steps)), key=lambda candidate: candidate.relative)
        tolerance = min(own, self._most, key=lambda candidate: candidate.relative)
        difference = compare(self._network.tensors[number].name, expected, got, tolerance)
        if bounded and difference.verdict is Verdict.BEYOND and got is not None and not types & _KEYS.keys():
            return _within_units(difference, expected, got, eps_of(types) * _OF_ONE)
        if steps or difference.verdict is not Verdict.PASSED or got is None or expected.ndim < 3:
            return difference
        return _by_channel(difference, expected, got, tolerance.relative * _OF_CHANNEL, eps_of(types) * _UNITS)

    def _types(self, number: int, sources: Container[str]) -> tuple[set[str], bool, bool]:
        """Returns the types that a tensor is computed in, whether there are quantisers among the layers, and whether
        there are activations that are bounded by 1."""
        tensors = self._network.tensors
        types, open_, steps, bounded = {tensors[number].dtype}, [number], False, False
        cone = {number}
        while open_:
            layer = self._makers.get(open_.pop())
            if layer is None:
                continue
            steps = steps or layer.kind in _STEPS
            bounded = bounded or (layer.kind == "ACTIVATION" and layer.values.get("type") in _BOUNDED)
            for source in layer.inputs:
                if source is not None and source not in cone:
                    cone.add(source)
                    types.add(tensors[source].dtype)
                    if tensors[source].name not in sources:
                        open_.append(source)
        return types, steps, bounded


def _within_units(difference: Difference, expected: Array, got: Array, units: float) -> Difference:
    """Passes what is off by some units of rounding of 1: of a gate that is closed but for rounding, no more is left."""
    with np.errstate(all="ignore"):
        gaps = np.abs(expected.astype(np.float64) - got.astype(np.float64))
    return dataclasses.replace(difference, verdict=Verdict.PASSED, why="") if (gaps <= units).all() else difference


def _keys(types: set[str], steps: bool) -> set[str]:
    """Returns whose tolerances count."""
    return {"float32"} | {_KEYS[dtype] for dtype in types if dtype in _KEYS} | ({"int8"} if steps else set())


def _by_channel(difference: Difference, expected: Array, got: Array, relative: float, rounding: float) -> Difference:
    """Compares the channels, each by its own largest magnitude."""
    if expected.dtype.kind not in "fV" or not expected.size:
        return difference
    wide = expected.astype(np.float64)
    axes = tuple(axis for axis in range(wide.ndim) if axis != 1)
    with np.errstate(all="ignore"):
        gaps = np.nan_to_num(np.abs(wide - got.astype(np.float64))).max(axes)
        peaks = np.nan_to_num(np.abs(wide), nan=0.0, posinf=0.0).max(axes)
    wrong = gaps > relative * peaks + rounding * peaks.max()
    if not wrong.any():
        return difference
    where = int(np.argmax(wrong))
    why = (
        f"{int(wrong.sum())} of {wrong.size} channels are off: channel {where} of {times(expected.shape)} by "
        f"{gaps[where]:.3g}, and its largest magnitude is {peaks[where]:.3g}"
    )
    return dataclasses.replace(difference, verdict=Verdict.BEYOND, why=why)
