"""How far one element of a piece may be off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from trtconv.core.documents.verify import Verdict
from trtconv.runtimes.proof.tolerance import Arithmetic, Computed, judge

EXACTLY = Arithmetic(eps=2.0**-23, approximated=False, rough=0.0, placed=0.0)


@pytest.mark.parametrize(
    ("dtype", "expected", "got", "passes"),
    [
        # Beside others at the end of the type, infinity is a matter of the order of a sum.
        ("float32", [3e38, np.inf], [3e38, np.nan], True),
        ("float32", [3e38, -np.inf], [3e38, 7e37], True),
        ("float32", [3e37, 1.0], [3e37, np.nan], False),
        # Masks and logarithms of nothing are infinite among small numbers.
        ("float32", [3.0, -np.inf], [3.0, np.nan], False),
        ("float32", [3.0, -np.inf], [3.0, -1e30], False),
        # What a wider network still holds is infinite in the model.
        ("float16", [1.0, np.inf], [1.0, 70000.0], True),
        ("float16", [1.0, np.inf], [1.0, -70000.0], False),
        ("float16", [1.0, np.inf], [1.0, 3.0], False),
        ("float32", [1.0, np.inf], [1.0, 70000.0], False),
    ],
)
def test_infinities(dtype: str, expected: Sequence[float], got: Sequence[float], passes: bool) -> None:
    value: Any = np.array(expected, dtype)
    found = judge(Computed(value), np.array(got, np.float32), EXACTLY, {"x": np.ones(1, np.float32)})
    assert (found.verdict is Verdict.PASSED) is passes, found.why
