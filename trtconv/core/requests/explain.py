"""What `trtconv explain` is asked."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.frozen import frozen
from trtconv.core.requests.common import TARGET
from trtconv.core.target import Target


@frozen
class ExplainRequest:
    """A call of `trtconv explain`.

    Args:
        model: The .onnx file; never written.
        node: Name, index, place ("graph/node[5]") or output tensor of a ConvTranspose; empty for the only one there is,
            or for a list of several.
    """

    model: Path
    node: str = ""
    target: Target | None = TARGET
