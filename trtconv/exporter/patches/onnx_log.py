"""The tracing exporter's log of its graph."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from trtconv.exporter.patches import patch, replaced


@patch("onnx_log")
def no_dump() -> contextlib.AbstractContextManager[Any]:
    """Keeps the tracing exporter from writing its whole graph to stdout when it fails.

    It turns the log on itself, whatever was set before.
    """
    return replaced(torch._C, "_jit_onnx_log", lambda *_: None)
