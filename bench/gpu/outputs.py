"""A network's outputs on TensorRT 8.6, as it is or through trtconv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import trtconv
from trtconv import BuildRequest, RunRequest


def outputs_of(
    proto: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], folder: Path, *, rewrite: bool
) -> dict[str, NDArray[Any]] | str:
    """Builds a network and runs its engine; returns the outputs, or why there are none."""
    path, engine, inputs, outputs = (folder / name for name in ("m.onnx", "m.engine", "in.npz", "out.npz"))
    onnx.save_model(proto, path)
    np.savez(inputs, **feeds)
    engine.unlink(missing_ok=True)
    try:
        report = trtconv.build(
            BuildRequest(path, engine=engine, rewrite=rewrite, prove="none", fail_on=None, force=True)
        )
        if report.exit_code:
            return "refused: " + "; ".join(finding.message for finding in report.findings)
        trtconv.run(RunRequest(engine, inputs=inputs, output=outputs))
    except trtconv.TrtconvError as error:
        return error.message
    return dict(np.load(outputs))
