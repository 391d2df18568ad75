"""In these tests every pass that edits runs a second time, which must edit nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.contracts import run_twice
from trtconv.passes import base


@pytest.fixture(autouse=True, scope="session")
def idempotence() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "run_one", run_twice)
        yield
