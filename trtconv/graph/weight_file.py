"""Large weights of several models in one temporary file, from which they are mapped, read one by one, or written.

A model that is copied, changed and run many times would hold its weights as often.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.core.scratch import Scratch
from trtconv.graph.external_data import ALIGNMENT, EXTERNAL, SMALL_BYTES, external_entry, is_whole, raw_chunks, refer_to
from trtconv.graph.model import OnnxModel

_NAME = "weights"


class WeightFile:
    """A file that weights are put into; it is removed with this object.

    Args:
        name: Of the model file: messages name it.
    """

    def __init__(self, name: str) -> None:
        self._scratch = Scratch("weights")
        self._path = self._scratch.path / name
        self._data = self._scratch.path / _NAME if name != _NAME else self._scratch.path / f"{_NAME}.data"

    def move(self, model: OnnxModel) -> None:
        """Moves the large weights of a model here, in place; those that are here already stay.

        What is known of the model's own file, as its digest, has to be asked before.

        Raises:
            InputError: Weights cannot be read.
        """
        large = [tensor for tensor in model.proto.graph.initializer if len(tensor.raw_data) > SMALL_BYTES]
        for tensor in (*model.external_tensors(), *large):
            if model.path != self._path or not self.holds(tensor):
                begin, length = self._write(raw_chunks(tensor, model.path))
                refer_to(tensor, self._data.name, begin, length)
        # A message keeps the memory of all that it ever held.
        light = onnx.ModelProto()
        light.CopyFrom(model.proto)
        model.proto, model.path = light, self._path
        model.touch()
        # Graphs and their scopes know each other: the old ones would stay until somebody looks for such circles.
        gc.collect()

    def holds(self, tensor: onnx.TensorProto) -> bool:
        """Whether a tensor of a model that was moved here is in this file."""
        return tensor.data_location == EXTERNAL and external_entry(tensor)["location"] == self._data.name

    def store(self, name: str, values: NDArray[Any]) -> onnx.TensorProto:
        """Returns a constant for models whose weights are here."""
        kind = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        if values.nbytes > SMALL_BYTES and is_whole(kind):
            # Without the copies that a message makes of what it is given.
            tensor = onnx.TensorProto(name=name, data_type=kind, dims=values.shape)
            refer_to(tensor, self._data.name, *self._write([np.ascontiguousarray(values).data]))
            return tensor
        tensor = numpy_helper.from_array(values, name)
        if len(tensor.raw_data) > SMALL_BYTES:
            refer_to(tensor, self._data.name, *self._write([tensor.raw_data]))
        return tensor

    def _write(self, chunks: Iterable[bytes | memoryview]) -> tuple[int, int]:
        """Appends bytes; returns where they begin, and how many they are."""
        with Path(self._data).open("ab") as file:
            file.write(bytes(-file.tell() % ALIGNMENT))
            begin = file.tell()
            file.writelines(chunks)
            return begin, file.tell() - begin
