"""A small model as a function from arrays to arrays: on ONNX Runtime, or on ONNX's reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.graph.model import OnnxModel
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.graph.types import undefined_opset
from trtconv.runtimes.onnxruntime import first_line, session

Evaluator = Callable[[Mapping[str, NDArray[Any]]], list[NDArray[Any]]]
_FOREIGN = ("bfloat16",)
"""Types that ONNX Runtime cannot be fed."""


def evaluator(model: OnnxModel, *, by_reference: bool = False) -> Evaluator | str | None:
    """Returns what runs a model.

    Args:
        by_reference: Whether ONNX's reference implementation does.

    Returns:
        The function; why the model is not valid, as a text; or None where ONNX Runtime lacks an operator for its types.
    """
    if by_reference:
        return _reference(model)
    if any(spec.dtype in _FOREIGN for spec in model.inputs):
        return None
    loaded = session(model)
    if isinstance(loaded, str):
        return None if "NOT_IMPLEMENTED" in loaded else loaded
    return lambda feeds: [np.asarray(output) for output in loaded.run(None, dict(feeds))]


def _reference(model: OnnxModel) -> Evaluator | str:
    why_not = undefined_opset(model.proto.opset_import)
    if why_not:
        return why_not
    try:
        loaded = reference_evaluator(model.proto)
    # It raises whatever an operator's own code does.
    except Exception as error:
        return first_line(error)

    def run(feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        with np.errstate(all="ignore"):
            return [np.asarray(output) for output in loaded.run(None, dict(feeds))]

    return run
