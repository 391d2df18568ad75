"""How far a tensor of a whole network may be off."""

from __future__ import annotations

import numpy as np
import pytest

from trtconv.core.documents.verify import Verdict
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.proof.judging import Judge
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor


def judge(kind: str, activation: str, dtype: str = "float32") -> Judge:
    """Of a network of one activation, from tensor 0 to tensor 1."""
    tensors = ReadTensor(0, "x", dtype, (1, 3)), ReadTensor(1, "y", dtype, (1, 3))
    layer = ReadLayer(0, "gate", kind, (0,), (1,), {"type": activation})
    return Judge(ReadNetwork(tensors, (layer,), (0,), (1,)), TOLERANCES["fp16"])


@pytest.mark.parametrize(
    ("activation", "off", "passes"),
    [("SIGMOID", 1e-7, True), ("TANH", 1e-6, True), ("SIGMOID", 3e-6, False), ("RELU", 1e-7, False)],
)
def test_of_a_closed_gate_no_more_is_left_than_its_rounding(activation: str, off: float, passes: bool) -> None:
    expected = np.array([[1e-9, 0, 2e-9]], np.float32)
    found = judge("ACTIVATION", activation).compare(1, expected, expected + np.float32(off))
    assert (found.verdict is Verdict.PASSED) is passes


def test_gates_in_half_have_no_such_room() -> None:
    expected = np.array([[1e-3, 0, 2e-3]], np.float16)
    found = judge("ACTIVATION", "SIGMOID", "float16").compare(1, expected, expected + np.float16(1e-3))
    assert found.verdict is Verdict.BEYOND


@pytest.mark.parametrize(("dtype", "passes"), [(np.float16, True), (np.float32, False)])
def test_what_the_model_rounds_is_judged_by_its_type(dtype: type, passes: bool) -> None:
    expected = np.linspace(1, 2, 3, dtype=dtype).reshape(1, 3)
    got = expected.astype(np.float32) * np.float32(1.001)
    found = judge("ELEMENTWISE", "PROD").compare(1, expected, got)
    assert (found.verdict is Verdict.PASSED) is passes
