"""What a sum of large terms that cancel may be off by, in a whole run: what rounding of its terms makes, no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from trtconv.core.documents.verify import Verdict
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.proof.reference import Expected
from trtconv.runtimes.proof.watch import Watch
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TEXT = '<ir_version: 9, opset_import: ["" : 20]> g (float[64] x) => (float[1] y) { y = ReduceSum (x) }'
TENSORS = (ReadTensor(0, "x", "float32", (64,)), ReadTensor(1, "y", "float32", (1,)))
SUM = ReadLayer(0, "sum", "REDUCE", (0,), (1,), {"op": "SUM", "axes": 1, "keep_dims": True})
NETWORK = ReadNetwork(TENSORS, (SUM,), (0,), (1,))


@pytest.mark.parametrize(("off", "passes"), [(2e-6, True), (1e-2, False)])
def test_sums_that_cancel(off: float, passes: bool) -> None:
    half = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    values = np.concatenate([half, -half])
    expected = Expected(feeds={"x": values}, tensors={"y": np.array([1e-8], np.float32)})
    model = OnnxModel(onnx.shape_inference.infer_shapes(parser.parse_model(TEXT)), Path("m.onnx"))
    watch = Watch(NETWORK, model, expected, TOLERANCES["float32"])
    watch.seen(TENSORS[1], np.array([1e-8 + off], np.float32), True)
    assert (watch.diverged is None) is passes
    if watch.diverged is not None:
        assert watch.diverged[1].verdict is Verdict.BEYOND
