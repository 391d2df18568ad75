"""What `check` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtconv.core.agreement import AGREE, CodeFile
from trtconv.core.builder_options import parse_bytes
from trtconv.core.dims import InputRange
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Bounds, Request
from trtconv.core.requests.code import EXTEND, PLUGINS, REFERENCES
from trtconv.core.requests.common import (
    DIMS,
    FAIL_ON,
    LEAVE,
    PARTITION,
    PROFILES,
    PROVE,
    PROVE_TIME,
    REQUANTIZE,
    REWRITE,
    REWRITE_RULES,
    SELECTION,
    SUBSTITUTE,
    TARGET,
    VALUES,
)
from trtconv.core.rewrite_rules import RewriteRule
from trtconv.core.selection import Selection
from trtconv.core.target import Target


@frozen
class CheckRequest(Request):
    """A call of `trtconv check`. Bounds may be left out: sizes are then not checked."""

    model: Path
    dims: Bounds = DIMS
    profiles: tuple[Bounds, ...] = PROFILES
    values: Mapping[str, InputRange] = VALUES
    target: Target | None = TARGET
    rewrite: bool = REWRITE
    requantize: bool = REQUANTIZE
    rewrite_rules: tuple[RewriteRule, ...] = REWRITE_RULES
    substitute: tuple[str, ...] = SUBSTITUTE
    extend: tuple[CodeFile, ...] = EXTEND
    fail_on: Severity | None = FAIL_ON
    selection: Selection = SELECTION
    prove: str = PROVE
    prove_time: float = PROVE_TIME
    plugins: tuple[CodeFile, ...] = PLUGINS
    references: tuple[CodeFile, ...] = REFERENCES
    agree: tuple[str, ...] = AGREE
    gpu_memory: int | None = option(
        "--gpu-memory",
        "Memory of the GPU, such as 24G: at the max of every profile the model and its activations must fit (TC208).",
        metavar="SIZE",
        least=1,
        default=None,
        read=parse_bytes,
        key="gpu-memory",
        about="Memory of the GPU, which the model and its activations must fit into at every max: 24G.",
        schema={"type": ["string", "integer"]},
        load=lambda size: parse_bytes(str(size)),
    )
    partition: bool = PARTITION._replace(
        flags=(
            PARTITION.flags[0]._replace(
                help="Say where build --partition would cut the model, and what would cross (docs/partition.md); what "
                "it would leave to ONNX Runtime does not fail the check."
            ),
        )
    )
    leave: tuple[str, ...] = LEAVE
    thorough: bool = option(
        "--thorough",
        "Build an engine, and throw it away, to be sure of the verdict.",
        default=False,
        key="thorough",
        about="Whether check builds engines to be sure; default: false.",
    )
