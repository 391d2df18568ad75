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
    [
        ("SIGMOID", 1e-7, True),
        ("TANH", 15.5 * 2.0**-23, True),
        ("HARD_SIGMOID", 15.5 * 2.0**-23, True),
        ("SIGMOID", 16.5 * 2.0**-23, False),
        ("RELU", 1e-7, False),
    ],
)
def test_of_a_closed_gate_no_more_is_left_than_its_rounding(activation: str, off: float, passes: bool) -> None:
    expected = np.array([[1e-9, 0, 2e-9]], np.float32)
    found = judge("ACTIVATION", activation).compare(1, expected, expected + np.float32(off))
    assert (found.verdict is Verdict.PASSED) is passes


def test_a_gate_of_the_other_sign_is_off_by_both() -> None:
    expected = np.full((1, 3), 2e-6, np.float32)
    assert judge("ACTIVATION", "TANH").compare(1, expected, -expected).verdict is Verdict.BEYOND


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


def chain(*layers: tuple[str, str], dtypes: dict[int, str] | None = None, most: str = "quantized") -> Judge:
    """Of a network in which each layer, a kind and an activation, takes the tensor of the one before."""
    types = {number: (dtypes or {}).get(number, "float32") for number in range(len(layers) + 1)}
    tensors = tuple(ReadTensor(number, f"t{number}", dtype, (1, 2, 4)) for number, dtype in types.items())
    read = tuple(
        ReadLayer(number, f"l{number}", kind, (number,), (number + 1,), {"type": activation})
        for number, (kind, activation) in enumerate(layers)
    )
    return Judge(ReadNetwork(tensors, read, (0,), (len(layers),)), TOLERANCES[most])


PLAIN = ("ELEMENTWISE", "SUM")
VALUES = np.array([[[1.0, -2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]]], np.float32)


def passes(judge: Judge, number: int, relative: float, given: tuple[str, ...] = ()) -> bool:
    off = VALUES.copy()
    off[0, 0, 3] += np.float32(relative * 4)
    return judge.compare(number, VALUES, off, given).verdict is Verdict.PASSED


@pytest.mark.parametrize(("dtype", "key"), [("float32", "float32"), ("float16", "fp16"), ("bfloat16", "bf16")])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_coarsest_type_that_a_tensor_was_computed_in_counts(dtype: str, key: str, at: int) -> None:
    judge = chain(PLAIN, PLAIN, dtypes={at: dtype})
    assert passes(judge, 2, 0.9 * TOLERANCES[key].relative)
    assert not passes(judge, 2, 1.1 * TOLERANCES[key].relative)


def test_what_lies_before_given_tensors_and_behind_counts_for_nothing() -> None:
    within = 0.9 * TOLERANCES["fp16"].relative
    assert not passes(chain(PLAIN, PLAIN, dtypes={0: "float16"}), 2, within, given=("t1",))
    assert passes(chain(PLAIN, PLAIN, dtypes={1: "float16"}), 2, within, given=("t1",))
    assert not passes(chain(PLAIN, PLAIN, dtypes={2: "float16"}), 1, within)


@pytest.mark.parametrize("inputs", [(1, 2), (2, 1)])
def test_types_behind_every_input_count(inputs: tuple[int, int]) -> None:
    """Beside an input of the network, too, which nothing makes."""
    dtypes = ("float16", "float32", "float32", "float32")
    tensors = tuple(ReadTensor(number, f"t{number}", dtype, (1, 2, 4)) for number, dtype in enumerate(dtypes))
    layers = (
        ReadLayer(0, "cast", "CAST", (0,), (1,), {}),
        ReadLayer(1, "sum", "ELEMENTWISE", inputs, (3,), {"op": "SUM"}),
    )
    judge = Judge(ReadNetwork(tensors, layers, (0, 2), (3,)), TOLERANCES["quantized"])
    assert passes(judge, 3, 0.9 * TOLERANCES["fp16"].relative)


@pytest.mark.parametrize("kind", ["QUANTIZE", "DEQUANTIZE"])
def test_steps_of_quantisers_count_and_none_is_further_off_than_allowed(kind: str) -> None:
    steps = chain((kind, ""), PLAIN)
    assert passes(steps, 2, 0.9 * TOLERANCES["int8"].relative)
    assert not passes(steps, 2, 1.1 * TOLERANCES["int8"].relative)
    assert not passes(chain((kind, ""), PLAIN, most="fp16"), 2, 1.1 * TOLERANCES["fp16"].relative)


def test_a_missing_tensor_and_another_shape_differ() -> None:
    assert chain(PLAIN).compare(1, VALUES, None).verdict is Verdict.MISSING
    assert chain(PLAIN).compare(1, VALUES, VALUES[:, :1]).verdict is Verdict.SHAPE
    assert chain(PLAIN).compare(0, VALUES, VALUES).verdict is Verdict.PASSED


@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_small_channel_is_held_to_its_own_magnitude(channel: int, value: float) -> None:
    """The whole is far larger, so that only the channel shows it; what is not finite is none of its magnitude."""
    expected = np.array([[[1e6, -2e6, 3e6, value], [1e6, 1e6, 1e6, 1e6]]], np.float32)[:, [channel, 1 - channel]]
    expected[0, 1 - channel if channel else 1] = [50.0, 0.0, 0.0, 0.0]
    small = int(np.argmin(np.nan_to_num(np.abs(expected[0])).max(1)))
    judge = chain(PLAIN)
    allowed = 100 * TOLERANCES["float32"].relative * 50 + 64 * 2.0**-23 * 3e6
    for share, verdict in ((0.9, Verdict.PASSED), (1.1, Verdict.BEYOND)):
        off = expected.copy()
        off[0, small, 1] = share * allowed
        found = judge.compare(1, expected, off)
        assert found.verdict is verdict, found.why
    assert f"channel {small} of" in found.why


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
@pytest.mark.parametrize(("share", "verdict"), [(0.995, Verdict.PASSED), (1.005, Verdict.BEYOND)])
def test_what_is_left_of_a_channel_is_held_to_what_is_finite(value: float, share: float, verdict: Verdict) -> None:
    expected = np.array([[[0.01, value], [3.0, -3.0]]], np.float32)
    off = expected.copy()
    off[0, 0, 0] += np.float32(share * (100 * TOLERANCES["float32"].relative * 0.01 + 64 * 2.0**-23 * 3))
    assert chain(PLAIN).compare(1, expected, off).verdict is verdict


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((1, 2, 3), np.float32),
        np.zeros((1, 0, 3), np.float32),
        np.float32([[[1e-3, np.nan]]]),
        np.arange(6).reshape(1, 2, 3),
    ],
)
def test_what_is_the_same_passes(values: np.ndarray) -> None:
    assert chain(PLAIN).compare(1, values, values.copy()).verdict is Verdict.PASSED
    assert chain(PLAIN).compare(0, values, values.copy()).verdict is Verdict.PASSED


@pytest.mark.parametrize(("op", "passes"), [("SUM", True), ("MAX", False)])
def test_sums_of_integers_that_overflow_are_left_open(op: str, passes: bool) -> None:
    tensors = tuple(ReadTensor(number, name, "int32", (2,)) for number, name in enumerate("xy"))
    layer = ReadLayer(0, "sum", "REDUCE", (0, None), (1,), {"op": op})
    judge = Judge(ReadNetwork(tensors, (layer,), (0,), (1,)), TOLERANCES["fp16"])
    most = np.array([np.iinfo(np.int32).max, 3], np.int32)
    assert (judge.compare(1, most, np.array([-5, 3], np.int32)).verdict is Verdict.PASSED) is passes
    assert judge.compare(1, most, None).verdict is Verdict.MISSING


def test_channels_of_plain_matrices_are_not_told_apart() -> None:
    expected = np.array([[3e6, 50.0]], np.float32)
    assert chain(PLAIN).compare(1, expected, expected + np.float32([0, 100.0])).verdict is Verdict.PASSED
