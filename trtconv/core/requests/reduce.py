"""What `reduce` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtconv.core.agreement import AGREE, CodeFile
from trtconv.core.dims import InputRange
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Bounds, Request
from trtconv.core.requests.code import PLUGINS, REFERENCES
from trtconv.core.requests.common import DIMS, PRECISION, PROFILES, REQUANTIZE, REWRITE, TARGET, VALUES
from trtconv.core.target import Target


@frozen
class ReduceRequest(Request):
    """A call of `trtconv reduce`.

    Args:
        model: The failing .onnx file; never written.
        output: Where the part goes.
        trials: How many parts are tried at most.
        timeout: Seconds after which one of them counts as hanging.
    """

    model: Path
    output: Path
    dims: Bounds = DIMS
    profiles: tuple[Bounds, ...] = PROFILES
    values: Mapping[str, InputRange] = VALUES
    precision: str = PRECISION
    rewrite: bool = REWRITE
    requantize: bool = REQUANTIZE
    target: Target | None = TARGET
    plugins: tuple[CodeFile, ...] = PLUGINS
    references: tuple[CodeFile, ...] = REFERENCES
    agree: tuple[str, ...] = AGREE
    trials: int = option("--trials", "Try at most so many parts.", metavar="N", takes=int, least=1, default=1000)
    timeout: float = option(
        "--timeout",
        "Take a part that is not built after so long for one that hangs.",
        metavar="SECONDS",
        takes=float,
        above=0,
        default=120.0,
    )
