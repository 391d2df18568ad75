"""Weights in int8, with a scale for each output channel; each is computed once, however often it is asked for."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.graph.external_data import external_entry
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import quantize_symmetric, symmetric_scale
from trtconv.graph.weight_file import WeightFile

Quantized = tuple[onnx.TensorProto, NDArray[np.float32]]


class Int8Weights:
    """The quantised weights of models that share a file; without one each is computed every time."""

    def __init__(self, file: WeightFile | None = None) -> None:
        self._file = file
        self._known: dict[tuple[str, int], Quantized] = {}

    def of(self, model: OnnxModel, name: str, axis: int) -> Quantized:
        """Returns the integers and the scales of a constant of the main graph.

        Args:
            model: The float model.
            name: The constant.
            axis: Of its output channels.
        """
        tensor = model.main.constant(name)
        assert tensor is not None
        if self._file is None or not self._file.holds(tensor):
            return self._quantized(model, tensor, axis)
        key = external_entry(tensor)["offset"], axis
        if key not in self._known:
            self._known[key] = self._quantized(model, tensor, axis)
        return self._known[key]

    def _quantized(self, model: OnnxModel, tensor: onnx.TensorProto, axis: int) -> Quantized:
        values = model.array(tensor)
        scale = symmetric_scale(values, axis)
        integers = quantize_symmetric(values, scale, axis)
        if self._file is None:
            return numpy_helper.from_array(integers, tensor.name), scale
        return self._file.store(tensor.name, integers), scale
