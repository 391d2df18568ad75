"""A spelling that is broken on purpose is caught: the network is compared with the model as its file has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import trtconv
from trtconv.passes.spelling import fourier, pooling, regions, resize, scatter

pytest.importorskip("tensorrt_rtx")

MODELS = {
    "resize": (
        18,
        """(float[1,1,4,6] x) => (float[1,1,2,3] y) <float[4] s = {1, 1, 0.5, 0.5}>
        { y = Resize <antialias = 1, mode = "linear"> (x, , s) }""",
    ),
    "scatter": (
        18,
        """(float[5] x, float[2] u) => (float[5] y) <int64[2,1] i = {1, 3}>
        { y = ScatterND <reduction = "add"> (x, i, u) }""",
    ),
    "pool": (13, "(float[1,1,8] x) => (float[1,1,4] y) { y = MaxPool <kernel_shape = [3], dilations = [2]> (x) }"),
    "regions": (
        16,
        """(float[2,1,6,6] x, float[3,4] rois, int64[3] b) => (float[3,1,2,2] y)
        { y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2> (x, rois, b) }""",
    ),
    "deform": (
        19,
        """(float[1,2,5,5] x, float[2,2,3,3] w, float[1,18,5,5] move) => (float[1,2,5,5] y)
        { y = DeformConv <pads = [1, 1, 1, 1]> (x, w, move) }""",
    ),
    "fourier": (17, "(float[1,8,1] x) => (float[1,8,2] y) { y = DFT <axis = 1> (x) }"),
}
BROKEN: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "resize": (resize, "weights", lambda right: lambda *given: np.roll(right(*given), 1, axis=1)),
    "scatter": (scatter, "_REDUCTIONS", lambda right: {**right, "add": right["max"]}),
    "regions": (regions, "_hats", lambda right: lambda w, at, *rest: right(w, w("Neg", at), *rest)),
    "deform": (regions, "_base", lambda right: lambda *given: right(*given)[::-1]),
    "pool": (pooling._Window, "taps", lambda right: lambda window: right(window)[:-1]),
    "fourier": (fourier, "_matrix", lambda right: lambda *given: right(*given)[:, :, ::-1]),
}


def report_of(folder: Path, name: str) -> Any:
    opset, text = MODELS[name]
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}'), path)
    return trtconv.check(trtconv.CheckRequest(model=path))


@pytest.mark.parametrize("name", MODELS)
def test_a_spelling_is_proven(name: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, name)
    assert report.proof is not None
    assert report.proof.agrees is True


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_spelling_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, broken = BROKEN[name]
    monkeypatch.setattr(place, attribute, broken(getattr(place, attribute)))
    report = report_of(tmp_path, name)
    assert "TC402" in {finding.code for finding in report.findings}
