"""Compares the tensors of a network that runs with those of its model."""

from __future__ import annotations

import math

import numpy as np

from trtconv.core.documents.verify import Difference, Tolerance, Verdict
from trtconv.graph.arrays import Array
from trtconv.runtimes.compare import SHARE_STEP
from trtconv.runtimes.proof.conditioned import Conditioning
from trtconv.runtimes.proof.judging import Judge
from trtconv.runtimes.proof.reference import Expected
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor


class Watch:
    """Compares the tensors of a run with the model's, and hands the model's on."""

    def __init__(
        self, network: ReadNetwork, expected: Expected, tolerance: Tolerance, conditioning: Conditioning
    ) -> None:
        self.diverged: tuple[ReadTensor, Difference] | None = None
        self.compared = 0
        self.error = 0.0
        self.worst = ""
        self.overflows = self._is_cut_off = False
        self._tensors = expected.tensors
        self._judge = Judge(network, tolerance)
        self._conditioning = conditioning
        self._shares = {n for layer in network.layers if _is_share(layer) for n in layer.outputs}
        self._cut_off = {n for layer in network.layers if _cuts_floats(network, layer) for n in layer.outputs}
        self._boxes = {n for layer in network.layers if layer.kind == "NMS" for n in layer.outputs}

    def stand_in(self, tensor: ReadTensor) -> Array | None:
        """Returns what the model has under a tensor's name."""
        return self._tensors.get(tensor.name)

    def see(self, tensor: ReadTensor, value: Array, computed: bool) -> Array:
        """Compares a value; returns the model's."""
        expected = self._tensors.get(tensor.name)
        if expected is None or not computed:
            return value
        if tensor.index in self._boxes:
            value = in_order(value, expected)
        beyond = beyond_int32(value, expected)
        # What comes of a cast that had no room may be anywhere behind it.
        if beyond is not None and (self._is_cut_off or tensor.index in self._cut_off):
            self.overflows = self._is_cut_off = True
            expected = np.where(beyond, value, expected)
        difference = self._judge.compare(tensor.index, expected, value, self._tensors)
        rounded = tensor.index in self._shares and difference.max_abs <= SHARE_STEP
        if difference.verdict is Verdict.BEYOND and not rounded:
            rounded = self._conditioning.explains(tensor, expected, value)
        self.compared += 1
        if not rounded and not math.isnan(difference.max_rel) and difference.max_rel > self.error:
            self.error, self.worst = difference.max_rel, tensor.name
        self.overflows = self.overflows or not _is_finite(expected)
        # Zeros that a pass puts into a kernel make NaN of infinities: no sign of a misreading.
        spoilt = self.overflows and difference.verdict is Verdict.NOT_FINITE
        if difference.verdict.refutes and not (rounded or spoilt) and self.diverged is None:
            self.diverged = (tensor, difference)
        return expected.astype(value.dtype) if expected.shape == value.shape else value


def _is_share(layer: ReadLayer) -> bool:
    """Whether a layer returns shares of 1 by a function that is rounded as numbers around 1 are."""
    return layer.kind == "SOFTMAX" or layer.values.get("type") in ("SIGMOID", "TANH")


def _is_finite(values: Array) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _cuts_floats(network: ReadNetwork, layer: ReadLayer) -> bool:
    """Whether a layer makes integers of floats: of random inputs these may be of any size, of real ones they fit."""
    source = layer.inputs[0] if layer.kind in ("CAST", "IDENTITY") else None
    return source is not None and network.tensors[source].dtype.startswith("float")


def beyond_int32(value: Array, expected: Array) -> Array | None:
    """Returns where a model has integers that do not fit those of TensorRT 8.6, of 32 bits; None: nowhere."""
    if value.shape != expected.shape or value.dtype != np.int32 or expected.dtype != np.int64:
        return None
    ends = np.iinfo(np.int32)
    beyond = np.asarray((expected < ends.min) | (expected > ends.max))
    return beyond if beyond.any() else None


def in_order(value: Array, expected: Array) -> Array:
    """Returns rows in the order of others where they are the same: TensorRT sorts boxes by score, ONNX by class."""
    if value.shape != expected.shape or value.ndim != 2:
        return value
    same = np.array_equal(np.unique(value, axis=0), np.unique(expected, axis=0))
    return expected if same else value
