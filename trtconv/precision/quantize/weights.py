"""Quantised weights; each is computed once, however often it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.graph.external_data import external_entry
from trtconv.graph.model import OnnxModel
from trtconv.graph.weight_file import WeightFile
from trtconv.precision.quantize.kinds import INT8, QuantizationKind
from trtconv.precision.quantize.operators import weight_axis


class Quantized(NamedTuple):
    """A quantised weight.

    Args:
        tensor: The codes.
        scale: Their scales.
        attributes: Of the DequantizeLinear.
    """

    tensor: onnx.TensorProto
    scale: NDArray[np.float32]
    attributes: Mapping[str, int]


class QuantizedWeights:
    """The quantised weights of models that share a file; without one each is computed every time.

    Args:
        file: Where the weights of the models are, and codes go.
        kind: What they are quantised to.
    """

    def __init__(self, file: WeightFile | None = None, kind: QuantizationKind = INT8) -> None:
        self._file = file
        self.kind = kind
        self._cache: dict[tuple[str, int], Quantized] = {}

    def of(self, model: OnnxModel, node: onnx.NodeProto) -> Quantized:
        """Returns the codes and the scales of a layer's weight, a constant of the main graph.

        Args:
            model: The float model.
        """
        tensor = model.main.constant(node.input[1])
        assert tensor is not None
        if self._file is None or not self._file.holds(tensor):
            return self._quantized(model, tensor, node)
        key = external_entry(tensor)["offset"], weight_axis(node, len(tensor.dims))
        if key not in self._cache:
            self._cache[key] = self._quantized(model, tensor, node)
        return self._cache[key]

    def _quantized(self, model: OnnxModel, tensor: onnx.TensorProto, node: onnx.NodeProto) -> Quantized:
        codes = self.kind.coder(model.array(tensor), node)
        name = tensor.name
        initializer = (
            numpy_helper.from_array(codes.values, name) if self._file is None else self._file.store(name, codes.values)
        )
        return Quantized(initializer, codes.scale, codes.attributes)
