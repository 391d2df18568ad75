"""A plugin of pytest for `coverage run -m pytest -p contexts`: which lines each test runs, and how long it computes.

Coverage notes the lines. The seconds, of the processor and not of the clock, so that what else the machine does counts
for nothing, go into the file that TEST_TIMES in the environment names. TEST_ROOM names the package of the lines.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import coverage
import pytest

_began: dict[str, float] = {}
_seconds: dict[str, float] = {}


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    measured = coverage.Coverage.current()
    assert measured is not None, "start it with `coverage run -m pytest`"
    _forget()
    measured.switch_context(nodeid)
    _began[nodeid] = _processor_seconds()


def _forget() -> None:
    """Empties what functions of the room keep: else only the first test of those that reach a line would run it."""
    room = os.environ["TEST_ROOM"]
    for name, module in list(sys.modules.items()):
        if name == room or name.startswith(f"{room}."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _seconds[nodeid] = _processor_seconds() - _began[nodeid]


def pytest_sessionfinish() -> None:
    Path(os.environ["TEST_TIMES"]).write_text(json.dumps(_seconds), "utf-8")
