"""A plugin of pytest for `coverage run -m pytest -p contexts`: coverage notes for each line the tests that run it."""

from __future__ import annotations

import coverage
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    measured = coverage.Coverage.current()
    assert measured is not None, "start it with `coverage run -m pytest`"
    measured.switch_context(nodeid)
