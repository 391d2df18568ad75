"""What `--precision` makes of a model."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.runtimes.tensorrt import Capabilities


def casts(precision: str, capabilities: Capabilities, nodes: Mapping[str, str]) -> bool:
    """Whether a precision, or that of single nodes, is had by casting the graph."""
    return (precision != "as-is" or bool(nodes)) and not capabilities.builder_precision_flags
