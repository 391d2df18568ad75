"""Writes symmetric quantisers into a float network: one scale for an activation, for a weight as its kind has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.placement import Placement
from trtconv.precision.quantize.weights import QuantizedWeights

Ranges = Mapping[str, float]
"""Tensor to the largest magnitude that its quantiser represents."""
_STEPS = 127


def quantized(
    model: OnnxModel, placement: Placement, ranges: Ranges, weights: QuantizedWeights | None = None
) -> OnnxModel:
    """Returns a copy of a float model with quantisers.

    Args:
        model: The float model, of the opset that the kind needs, or later.
        placement: Where quantisers stand.
        ranges: Of every tensor that is quantised.
        weights: Says what is quantised to, int8 by default, and keeps the quantised weights, where several models are
            made of one.
    """
    copy = model.copy()
    store = weights or QuantizedWeights()
    writer = _Writer(copy, placement, store)
    computed = {index for edges in placement.edges.values() for index, slot in edges if slot == 1}
    for index in placement.layers:
        if index not in computed:
            writer.weight(index)
    for tensor, scale in scales(placement, ranges, store.kind.largest).items():
        writer.activation(tensor, scale)
    writer.finish()
    return copy


def scales(placement: Placement, ranges: Ranges, largest_code: float = _STEPS) -> dict[str, np.float32]:
    """Returns the scale of every quantised tensor; those that share one have that of the widest range."""
    widest: dict[str, float] = {}
    for tensor, first in placement.shared.items():
        widest[first] = max(widest.get(first, 0.0), ranges[tensor])
    _part(widest, [(placement.shared[a], placement.shared[b]) for a, b in placement.apart])
    largest = ((tensor, widest[first]) for tensor, first in placement.shared.items())
    # A tensor that is 0 throughout has any scale.
    return {tensor: np.float32(value / largest_code) or np.float32(1.0) for tensor, value in largest}


def _part(widest: dict[str, float], pairs: list[tuple[str, str]]) -> None:
    """Makes the wider of two ranges wider by a step where they are as good as equal, and must not be."""
    for a, b in pairs * len(pairs):
        wider, other = (a, b) if widest[a] > widest[b] else (b, a)
        least = widest[other] * (1 + 1 / _STEPS)
        if a != b and widest[wider] < least:
            widest[wider] = least


class _Writer:
    """A graph that quantisers are put into."""

    def __init__(self, model: OnnxModel, placement: Placement, quantized: QuantizedWeights) -> None:
        self._model = model
        self._quantized = quantized
        self._graph = model.proto.graph
        self._placement = placement
        self._nodes = list(self._graph.node)
        self._producers = dict(model.main.producers)
        self._scope = model.main
        self._in_front: dict[int, list[onnx.NodeProto]] = {}
        self._behind: dict[int, list[onnx.NodeProto]] = {}
        self._weights: dict[tuple[str, int], str] = {}
        self._zero: dict[tuple[int, ...], str] = {}
        self._tensors: list[onnx.TensorProto] = []

    def weight(self, index: int) -> None:
        """Makes a layer's weight constant codes with a DequantizeLinear."""
        node = self._nodes[index]
        name = node.input[1]
        tensor, scale, attributes = self._quantized.of(self._model, node)
        key = name, attributes.get("axis", 0)
        if key not in self._weights:
            integers = self._stored(f"{name}.{self._suffix}", tensor)
            inputs = [integers, self._constant(f"{name}.scale", scale), self._zero_of(scale.shape)]
            output = self._model.fresh_name(f"{name}.dequantized")
            label = self._model.fresh_name(f"{name}/Dequantize")
            dequantizer = helper.make_node("DequantizeLinear", inputs, [output], label, **attributes)
            self._in_front.setdefault(index, []).append(dequantizer)
            self._weights[key] = output
        node.input[1] = self._weights[key]

    @property
    def _suffix(self) -> str:
        return self._quantized.kind.name.partition("-")[0]

    def activation(self, tensor: str, scale: np.float32) -> None:
        """Puts a QuantizeLinear and a DequantizeLinear behind a tensor, for those inputs that read it so."""
        fresh = self._model.fresh_name
        integers, output = fresh(f"{tensor}.{self._suffix}"), fresh(f"{tensor}.dequantized")
        unit = [self._constant(f"{tensor}.scale", np.asarray(scale)), self._zero_of(())]
        quantize = helper.make_node("QuantizeLinear", [tensor, *unit], [integers], fresh(f"{tensor}/Quantize"))
        real = helper.make_node("DequantizeLinear", [integers, *unit], [output], fresh(f"{tensor}/Dequantize"))
        self._behind.setdefault(self._producers.get(tensor, -1), []).extend([quantize, real])
        for index, slot in self._placement.edges[tensor]:
            self._nodes[index].input[slot] = output

    def finish(self) -> None:
        """Writes the new list of nodes and constants, without the float weights that nothing uses any more."""
        ordered = list(self._behind.get(-1, []))
        for index, node in enumerate(self._nodes):
            ordered += [*self._in_front.get(index, []), node, *self._behind.get(index, [])]
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        self._graph.initializer.extend(self._tensors)
        self._model.touch()
        replaced = {name for name, _ in self._weights}
        unused = [
            i
            for i, t in enumerate(self._graph.initializer)
            if t.name in replaced and not self._model.main.uses_of(t.name)
        ]
        for position in reversed(unused):
            del self._graph.initializer[position]
        self._model.touch()

    def _constant(self, name: str, values: NDArray[np.generic]) -> str:
        return self._stored(name, numpy_helper.from_array(values))

    def _stored(self, name: str, tensor: onnx.TensorProto) -> str:
        fresh = self._model.fresh_name(name)
        self._tensors.append(onnx.TensorProto())
        self._tensors[-1].CopyFrom(tensor)
        self._tensors[-1].name = fresh
        return fresh

    def _zero_of(self, shape: tuple[int, ...]) -> str:
        """Returns the zero point for scales of a shape; all that are alike share one."""
        if shape not in self._zero:
            zero = np.zeros(shape, self._quantized.kind.element)
            self._zero[shape] = self._constant("_".join(map(str, ("zero_point", *shape))), zero)
        return self._zero[shape]
