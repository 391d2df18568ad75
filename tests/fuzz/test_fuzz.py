"""A short run of the fuzzer, the same cases every time. `make fuzz` runs ten minutes of new ones."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter

import pytest

import fuzz

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs Linux and tensorrt-rtx",
)

FIRST = 0
CASES = 160
MINUTES = 10
"""On any machine long enough for so many."""


def test_nothing_breaks_it() -> None:
    counts: Counter[str] = Counter()
    faults = []
    for told in fuzz.fuzz(FIRST, MINUTES, jobs=2, cases=CASES):
        if isinstance(told, Counter):
            counts += told
        else:
            faults.append(told)
    assert counts["models"] == CASES
    assert not faults, "\n\n".join(str(fault) for fault in faults)
