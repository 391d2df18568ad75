"""The opset that quantisers with a scale for each channel need."""

from __future__ import annotations

from onnx import version_converter

from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel

_OPSET = 13
"""The first in which a DequantizeLinear has a scale for each channel."""


def with_channel_scales(model: OnnxModel) -> OnnxModel:
    """Returns a model in an opset that has scales for each channel: the model itself where it is new enough.

    Raises:
        InputError: ONNX cannot convert it.
    """
    if model.opset >= _OPSET:
        return model
    try:
        return OnnxModel(version_converter.convert_version(model.proto, _OPSET), model.path)
    except Exception as error:
        raise InputError(
            f"{model.path} has opset {model.opset}, and cannot be converted to {_OPSET}, which has scales per channel:"
            f" {str(error).strip().partition(chr(10))[0]}",
            f"Export it with opset_version={_OPSET} or later.",
        ) from error
