"""A short run of the fuzzer, the same cases every time. `make fuzz` runs ten minutes of new ones."""

from __future__ import annotations

import importlib.util
import sys
import time

import pytest
import run

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs Linux and tensorrt-rtx",
)

CASES = range(150)
BUDGET_SECONDS = 20.0


def test_nothing_breaks_it() -> None:
    faults = list(run.fuzz(CASES, time.monotonic() + BUDGET_SECONDS, jobs=2))
    assert not faults, "\n\n".join(str(fault) for fault in faults)
