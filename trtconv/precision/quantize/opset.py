"""The opset that quantisers need: 13 for a scale for each channel, later ones for other kinds."""

from __future__ import annotations

from onnx import version_converter

from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel


def of_opset(model: OnnxModel, least: int) -> OnnxModel:
    """Returns a model in an opset that has what is to be written: the model itself where it is new enough.

    Raises:
        InputError: ONNX cannot convert it.
    """
    if model.opset >= least:
        return model
    try:
        return OnnxModel(version_converter.convert_version(model.proto, least), model.path)
    except Exception as error:
        raise InputError(
            f"{model.path} has opset {model.opset}, and cannot be converted to {least}, which has the quantisers:"
            f" {str(error).strip().partition(chr(10))[0]}",
            f"Export it with opset_version={least} or later.",
        ) from error
