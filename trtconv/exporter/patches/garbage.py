"""Searches for cycles, while something is exported, among what the export makes only."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from trtconv.exporter.patches import patch


@patch("garbage")
@contextlib.contextmanager
def old_objects_left_out() -> Iterator[None]:
    """While active, what was there before is not searched for cycles.

    torch, its exporters and ONNX are a million objects, and torch.export makes enough new ones for Python to go through
    all of them again and again. A process that has frozen its objects itself is left as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
