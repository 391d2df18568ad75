"""The tensors of a run beside those of the model: what is counted, what diverges, what is handed on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trtconv.core.documents.verify import Verdict
from trtconv.runtimes.compare import SHARE_STEP, TOLERANCES
from trtconv.runtimes.proof.reference import Expected
from trtconv.runtimes.proof.watch import Watch, in_order
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TENSORS = tuple(ReadTensor(number, name, "float32", (4,)) for number, name in enumerate(["x", "a", "b", "unnamed"]))


class Never:
    """A judge of conditions that explains nothing, and counts what it is asked."""

    asked = 0

    def explains(self, tensor: ReadTensor, expected: NDArray[Any], got: NDArray[Any]) -> bool:
        self.asked += 1
        return False


def watch(
    kind: str = "UNARY", never: Never | None = None, values: dict[str, Any] | None = None, **tensors: Any
) -> Watch:
    layers = (ReadLayer(0, "a", kind, (0,), (1,), values or {}), ReadLayer(1, "b", kind, (1,), (2,), values or {}))
    network = ReadNetwork(TENSORS, layers, (0,), (2,))
    expected = Expected(tensors={name: np.asarray(value) for name, value in tensors.items()})
    return Watch(network, expected, TOLERANCES["float32"], never or Never())  # type: ignore[arg-type]


ONES = np.ones(4, np.float32)


def test_what_agrees_is_counted_and_the_model_s_is_handed_on() -> None:
    seen = watch(a=ONES, b=ONES)
    near = ONES + np.float32(1e-6)
    assert np.array_equal(seen.see(TENSORS[1], near, True), ONES)
    assert np.array_equal(seen.see(TENSORS[2], ONES, True), ONES)
    assert (seen.compared, seen.diverged, seen.worst) == (2, None, "a")
    assert 0.5e-6 < seen.error < 2e-6


def test_what_the_model_has_not_or_the_network_did_not_compute_is_neither_counted_nor_replaced() -> None:
    seen = watch(a=ONES)
    assert seen.see(TENSORS[3], 5 * ONES, True)[0] == 5
    assert seen.see(TENSORS[1], 5 * ONES, False)[0] == 5
    assert seen.compared == 0 and seen.diverged is None
    assert seen.stand_in(TENSORS[3]) is None and np.array_equal(seen.stand_in(TENSORS[1]), ONES)  # type: ignore[arg-type]


def test_the_first_that_differs_is_told_and_the_worst_is_named() -> None:
    seen = watch(a=ONES, b=ONES)
    seen.see(TENSORS[1], 1.5 * ONES, True)
    seen.see(TENSORS[2], 3 * ONES, True)
    assert seen.diverged is not None and seen.diverged[0].name == "a"
    assert seen.diverged[1].verdict is Verdict.BEYOND
    assert seen.worst == "b" and seen.error == pytest.approx(2)


def test_conditions_are_asked_of_what_is_beyond_alone() -> None:
    never = Never()
    seen = watch(never=never, a=ONES, b=ONES)
    seen.see(TENSORS[1], ONES, True)
    assert never.asked == 0
    seen.see(TENSORS[2], 2 * ONES, True)
    assert never.asked == 1


@pytest.mark.parametrize(
    ("kind", "values"), [("SOFTMAX", {}), ("ACTIVATION", {"type": "SIGMOID"}), ("ACTIVATION", {"type": "TANH"})]
)
@pytest.mark.parametrize(("steps", "passes"), [(1, True), (3, False)])
def test_shares_are_rounded_as_numbers_around_1(kind: str, values: dict[str, Any], steps: int, passes: bool) -> None:
    expected = np.full(4, 1e-9, np.float32)
    off = expected + np.float32(0.9 * steps * SHARE_STEP)
    seen = watch(kind, values=values, a=expected)
    seen.see(TENSORS[1], off, True)
    assert (seen.diverged is None) == passes
    plain = watch("UNARY", a=expected)
    plain.see(TENSORS[1], off, True)
    assert plain.diverged is not None


@pytest.mark.parametrize("overflows", [False, True])
def test_nan_behind_what_overflows_in_the_model_is_no_misreading(overflows: bool) -> None:
    first = np.array([1, 2, 3, np.inf if overflows else 4], np.float32)
    seen = watch(a=first, b=ONES)
    seen.see(TENSORS[1], first, True)
    seen.see(TENSORS[2], np.array([1, 1, 1, np.nan], np.float32), True)
    assert seen.overflows == overflows and (seen.diverged is None) == overflows


def test_what_has_another_shape_is_kept() -> None:
    seen = watch(a=ONES)
    assert seen.see(TENSORS[1], np.ones((2, 2), np.float32), True).shape == (2, 2)
    assert seen.diverged is not None and seen.diverged[1].verdict is Verdict.SHAPE


def test_rows_are_compared_in_any_order() -> None:
    rows, turned = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[4, 5, 6], [1, 2, 3]])
    assert np.array_equal(in_order(turned, rows), rows)
    for other in (np.array([[4, 5, 6], [1, 2, 4]]), rows[:1], rows[0], turned.T):
        assert np.array_equal(in_order(other, rows), other)
    boxes = watch("NMS", a=rows.astype(np.float32))
    boxes.see(TENSORS[1], turned.astype(np.float32), True)
    assert boxes.diverged is None


@pytest.mark.parametrize(
    ("kind", "got", "differs", "overflows"),
    [
        ("CAST", [2**31 - 1, 5, 5, 5], False, True),
        ("IDENTITY", [-7, 5, 5, 5], False, True),
        ("UNARY", [2**31 - 1, 5, 5, 5], True, False),
        ("CAST", [2**31 - 1, 5, 5, 4], True, True),
    ],
)
def test_integers_beyond_32_bits_that_were_floats(kind: str, got: list[int], differs: bool, overflows: bool) -> None:
    """Of random numbers there are such; TensorRT 8.6 has no room for them."""
    seen = watch(kind, a=np.array([2**40, 5, 5, 5]))
    seen.see(TENSORS[1], np.array(got, np.int32), True)
    assert ((seen.diverged is not None), seen.overflows) == (differs, overflows)


def test_integers_beyond_32_bits_behind_such_a_cast() -> None:
    seen = watch("CAST", a=np.array([2**40, 5, 5, 5]), b=np.array([5, 2**40, 5, 5]))
    seen.see(TENSORS[1], np.array([2**31 - 1, 5, 5, 5], np.int32), True)
    seen.see(TENSORS[3], np.array([7, 7, 7, 7], np.int32), True)
    seen.see(TENSORS[2], np.array([5, 0, 5, 5], np.int32), True)
    assert seen.diverged is None
    seen.see(TENSORS[2], np.array([5, 0, 5, 6], np.int32), True)
    assert seen.diverged is not None


def test_integers_beyond_32_bits_in_64_bits_differ() -> None:
    seen = watch("CAST", a=np.array([2**40, 5, 5, 5]))
    seen.see(TENSORS[1], np.array([2**31 - 1, 5, 5, 5], np.int64), True)
    assert seen.diverged is not None
