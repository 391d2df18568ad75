"""Memory that was given back is the system's again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trtconv.core import heap

SCRIPT = """
import re
from pathlib import Path
from trtconv.core import heap

def megabytes():
    return int(re.search(r"VmRSS:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

before = megabytes()
# Each smaller than what the C library asks the system for by itself; the last one lies above all.
blocks = [bytes([1]) * 100_000 for _ in range(1000)]
last = bytes(100_000)
del blocks
held = megabytes() - before
heap.trim()
print(held, megabytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone gives back on request")
def test_what_was_freed_is_returned() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    held, left = map(int, done.stdout.split())
    assert held > 60 and left < held // 3


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    def none(_: object) -> object:
        if platform != "linux":
            raise AssertionError("there is no such library")
        return object()

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("ctypes.CDLL", none)
    heap.trim()
