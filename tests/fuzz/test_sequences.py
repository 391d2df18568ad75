"""A few sequences of commands over hostile folders, the same every time. `make fuzz` runs new ones."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter

import pytest
import sequences

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs Linux and tensorrt-rtx",
)

FIRST = 7
CASES = 10
MINUTES = 10
"""On any machine long enough for so many."""


def test_no_folder_makes_a_command_do_what_it_should_not() -> None:
    counts: Counter[str] = Counter()
    faults = []
    for told in sequences.fuzz(FIRST, MINUTES, cases=CASES):
        if isinstance(told, Counter):
            counts += told
        else:
            faults.append(told)
    assert counts["cases"] == CASES
    assert not faults, "\n\n".join(str(fault) for fault in faults)
