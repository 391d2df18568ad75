"""Models on ONNX Runtime, which says what a model means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


def session(
    model: onnx.ModelProto | bytes | str | Path,
    *,
    optimised: bool = False,
    sized: bool = True,
    prepacked: bool = True,
    threads: int = 1,
) -> Any:
    """Returns a model in ONNX Runtime, on the CPU.

    Args:
        model: The model, its bytes, or where its file is.
        optimised: Whether ONNX Runtime may optimise it; its optimisations may themselves change a deconvolution.
        sized: Whether the shapes that a `ModelProto` declares for its outputs count.
        prepacked: Whether constant weights may be laid out for kernels of their own.
        threads: How many compute a node; 0 for as many as there are cores.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not prepacked:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if isinstance(model, onnx.ModelProto):
        model = (model if sized else without_sizes(model)).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto | bytes | str | Path, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    """Runs a model; `options` are those of `session`."""
    return list(session(model, **options).run(None, dict(feeds)))


def without_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model whose outputs are declared without shapes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    return copy
