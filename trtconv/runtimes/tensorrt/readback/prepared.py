"""What runs of one network have in common: a piece is run on many inputs of the same shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.flow import BOUNDARIES, LOOP_LAYERS, Flow
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

_KEPT_BYTES = 1 << 16
"""Larger values are computed again: they would be held beside what each run needs."""
_OF_MORE = (*LOOP_LAYERS, *BOUNDARIES, "CONDITIONAL_OUTPUT", "ASSERTION")
"""Layers whose results hang on more than their inputs, or that have none."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Prepared:
    """A network about to be run, and the values that are the same in each run with inputs of the same shapes.

    Attributes:
        flow: Its loops and conditionals.
        makers: Of each tensor the layer that makes it.
        int8_kernels: Kernels of layers that builders may run in int8.
        uses: How often each tensor is read, as `Flow.uses`.
    """

    def __init__(self, network: ReadNetwork) -> None:
        self.network = network
        self.flow = Flow(network)
        self.makers = {tensor: layer for layer in network.layers for tensor in layer.outputs}
        self.int8_kernels = {n for layer in network.layers if _may_run_in_int8(layer) for n in layer.inputs[1:2]}
        self.uses = self.flow.uses()
        self._settled = self._settled_tensors()
        self._results: dict[Shapes, dict[int, Array]] = {}
        self._least: dict[int, float] = {}

    def results(self, feeds: Mapping[str, Any]) -> dict[int, Array]:
        """Returns the values, by their numbers, that earlier runs on inputs of these shapes have settled."""
        shapes = tuple(sorted((name, np.shape(values)) for name, values in feeds.items()))
        return self._results.setdefault(shapes, {})

    def is_settled(self, number: int, value: Array) -> bool:
        """Whether a value is worth keeping, and the same whatever the values of the inputs are."""
        return number in self._settled and value.nbytes <= _KEPT_BYTES

    def least_megabytes(self, layer: ReadLayer) -> float:
        """Returns how much the outputs of a layer take whose sizes TensorRT knows."""
        least = self._least.get(layer.index)
        if least is None:
            shapes = (self.network.tensors[number].shape for number in layer.outputs)
            sized = (shape for shape in shapes if shape is not None and min(shape, default=0) >= 0)
            least = self._least[layer.index] = sum(map(math.prod, sized)) * 4e-6
        return least

    def _settled_tensors(self) -> frozenset[int]:
        """Returns the tensors that follow from constants and from the shapes of inputs alone; some may be missed where
        layers stand in another order than they run in."""
        settled: set[int] = set()
        inputs = set(self.network.inputs)
        for layer in self.network.layers:
            present = [number for number in layer.inputs if number is not None]
            if layer.kind in _OF_MORE or "PLUGIN" in layer.kind or any(self.flow.loops_of[n] for n in layer.outputs):
                continue
            of_shape = layer.kind == "SHAPE" and inputs.issuperset(present)
            if layer.kind == "CONSTANT" or of_shape or (present and settled.issuperset(present)):
                settled.update(layer.outputs)
        return frozenset(settled)


def _may_run_in_int8(layer: ReadLayer) -> bool:
    """Returns whether a layer is a deconvolution that builders run in int8; those of groups or 3-D run in float."""
    return layer.kind == "DECONVOLUTION" and layer.values["num_groups"] == 1 and len(layer.values["kernel_size_nd"]) < 3
