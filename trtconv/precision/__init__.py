"""What `--precision` makes of a model."""

from __future__ import annotations

from trtconv.runtimes.tensorrt import Capabilities


def casts(precision: str, capabilities: Capabilities) -> bool:
    """Whether a precision is had by casting the graph."""
    return precision != "as-is" and not capabilities.builder_precision_flags
