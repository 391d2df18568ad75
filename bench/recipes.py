"""Ways to quantise a float network, each on the same samples: trtconv's, ONNX Runtime's, ModelOpt's."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[Any]]


def outputs(model: onnx.ModelProto, feeds: Feeds) -> list[NDArray[Any]]:
    """Returns the outputs of a model on ONNX Runtime, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def trtconv(model: onnx.ModelProto, samples: Sequence[Feeds], target: Any = None, **settings: Any) -> onnx.ModelProto:
    """Quantises as `trtconv quantize` does."""
    from trtconv.core.requests.quantize import QuantizeRequest
    from trtconv.pipeline.quantizing import quantize

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save_model(model, folder / "float.onnx")
        for number, feeds in enumerate(samples):
            np.savez(folder / f"{number:04}.npz", **feeds)
        request = QuantizeRequest(
            model=folder / "float.onnx",
            output=folder / "int8.onnx",
            data=name,
            target=target,
            tolerance=1.0,
            **settings,
        )
        quantize(request)
        return onnx.load_model(folder / "int8.onnx")


def ort_default(model: onnx.ModelProto, samples: Sequence[Feeds]) -> onnx.ModelProto:
    """Quantises with what `quantize_static` does unless told otherwise: asymmetric, per tensor, int32 biases."""
    return _ort(model, samples)


def ort_symmetric(model: onnx.ModelProto, samples: Sequence[Feeds], method: str = "MinMax") -> onnx.ModelProto:
    """Quantises with the settings of ONNX Runtime's quantiser that TensorRT takes: symmetric, per channel."""
    from onnxruntime.quantization import CalibrationMethod, QuantType

    if method != "MinMax":
        # Its histograms take samples of one size only.
        samples = [each for each in samples if _shapes(each) == _shapes(samples[0])]
    return _ort(
        model,
        samples,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=getattr(CalibrationMethod, method),
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
    )


def _shapes(feeds: Feeds) -> list[tuple[int, ...]]:
    return [array.shape for array in feeds.values()]


class _Reader:
    """Hands samples to ONNX Runtime's quantiser."""

    def __init__(self, samples: Sequence[Feeds]) -> None:
        self._left = iter(samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        found = next(self._left, None)
        return None if found is None else dict(found)


def _ort(model: onnx.ModelProto, samples: Sequence[Feeds], **settings: Any) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        given, ready, result = (str(Path(name) / f"{each}.onnx") for each in ("float", "ready", "int8"))
        onnx.save_model(model, given)
        quant_pre_process(given, ready, skip_symbolic_shape=True)
        quantize_static(ready, result, _Reader(samples), quant_format=QuantFormat.QDQ, **settings)
        return onnx.load_model(result)


MODELOPT = """
import sys, numpy, onnx
from modelopt.onnx.quantization import quantize
folder, ops = sys.argv[1], sys.argv[2:]
data = dict(numpy.load(folder + "/calibration.npz"))
quantize(folder + "/float.onnx", quantize_mode="int8", calibration_data=data, output_path=folder + "/int8.onnx",
         **({"op_types_to_quantize": ops} if ops else {}), log_level="ERROR", calibration_eps=["cpu"],
         high_precision_dtype="fp32")
"""


def modelopt(model: onnx.ModelProto, samples: Sequence[Feeds], ops: Sequence[str] = ()) -> onnx.ModelProto:
    """Quantises with ModelOpt's ONNX path, in the interpreter that MODELOPT_PYTHON names: it pins other versions.

    Raises:
        RuntimeError: It is not installed there, or fails.
    """
    python = os.environ.get("MODELOPT_PYTHON", sys.executable)
    same = [each for each in samples if _shapes(each) == _shapes(samples[0])]
    with tempfile.TemporaryDirectory() as folder:
        onnx.save_model(model, Path(folder) / "float.onnx")
        joined = {name: np.concatenate([each[name] for each in same]) for name in same[0]}
        np.savez(Path(folder) / "calibration.npz", **joined)
        done = subprocess.run([python, "-c", MODELOPT, folder, *ops], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().rpartition("\n")[2][:300])
        return onnx.load_model(Path(folder) / "int8.onnx")
