"""Runs two models on ONNX Runtime and compares them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.model import OnnxModel
from trtconv.shapes import InputSpec, dynamic_dims

_SIZES = (64, 32, 48, 128, 16, 8, 4, 2, 1, 256)
"""Sizes tried for dynamic dimensions, the first that the original accepts is used."""
_NEWEST_IR = 10
"""IR versions above are read by newer ONNX Runtimes only, and mean the same for what is compared here."""


def compare_models(original: OnnxModel, rewritten: OnnxModel) -> dict[str, Any]:
    """Runs a model and its rewrite on the same random inputs.

    Args:
        original: The model as it was read.
        rewritten: The model after the passes.

    Returns:
        {"max_relative_error": largest difference over the largest magnitude of the original's output, or None,
        "why": the reason for None, "inputs": the shapes that were run}.
    """
    try:
        before, after = _session(original), _session(rewritten)
    except Exception as error:  # ONNX Runtime raises its own types, one for each status
        return _unknown(f"ONNX Runtime does not load the model: {_first_line(error)}")
    foreign = [spec.name for spec in original.inputs if spec.dtype == "undefined"]
    if foreign:
        return _unknown(f"input {foreign[0]!r} is no tensor")
    why = "no input sizes were found that the model accepts"
    for shapes in _candidate_shapes(original.inputs):
        feeds = _random_feeds(original.inputs, shapes)
        try:
            expected = before.run(None, feeds)
        except Exception as error:
            why = f"ONNX Runtime does not run the original: {_first_line(error)}"
            continue
        try:
            got = after.run(None, feeds)
        except Exception as error:
            return _unknown(f"ONNX Runtime does not run the rewritten model: {_first_line(error)}", math.inf)
        error_ = max((relative_error(a, b) for a, b in zip(expected, got, strict=True)), default=0.0)
        return {"max_relative_error": error_, "why": None, "inputs": {k: list(v) for k, v in shapes.items()}}
    return _unknown(why)


def relative_error(expected: Any, got: Any) -> float:
    """Returns the largest difference over the largest magnitude of `expected`; infinite where shapes differ."""
    if not isinstance(expected, np.ndarray):
        return 0.0 if expected == got else math.inf
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return math.inf
    if expected.dtype.kind not in "fiub" or expected.size == 0:
        return 0.0 if np.array_equal(expected, got) else math.inf
    a, b = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    scale = float(np.abs(a[finite]).max(initial=0.0))
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return difference / scale if scale else (0.0 if difference == 0 else math.inf)


def _unknown(why: str, error: float | None = None) -> dict[str, Any]:
    return {"max_relative_error": error, "why": why, "inputs": {}}


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _session(model: OnnxModel) -> Any:
    import onnxruntime

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.ir_version = min(proto.ir_version, _NEWEST_IR)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Optimizations may themselves change a deconvolution's pads.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    folder = str(Path(model.path).parent.absolute())
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _candidate_shapes(inputs: Sequence[InputSpec]) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Yields input shapes to try: dimensions that come first in a shape are taken for a batch and kept small."""
    dims = dynamic_dims(inputs)
    batch = [name for name, places in dims.items() if all(place.endswith(":0") for place in places)]
    others = [name for name in dims if name not in batch]
    uniform = ((size,) * len(others) for size in _SIZES)
    mixed = itertools.product(_SIZES[:4], repeat=len(others)) if 1 < len(others) <= 3 else ()
    for sizes in itertools.chain(uniform, mixed):
        known = {**dict.fromkeys(batch, 2), **dict(zip(others, sizes, strict=True))}
        yield {s.name: tuple(d if isinstance(d, int) else known[d] for d in s.dims) for s in inputs}
        if not others:
            return


def _random_feeds(inputs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(0)
    feeds: dict[str, NDArray[Any]] = {}
    for spec in inputs:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(spec.dtype.upper()))
        if dtype.kind in "iu":
            # Ones: valid as index, token or divisor, where a random 0 may end the process inside ONNX Runtime.
            feeds[spec.name] = np.ones(shapes[spec.name], dtype)
        elif dtype.kind == "b":
            feeds[spec.name] = random.integers(0, 2, shapes[spec.name]).astype(bool)
        else:
            feeds[spec.name] = random.standard_normal(shapes[spec.name]).astype(dtype)
    return feeds
