"""What `rewrite` is asked."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.agreement import CodeFile
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Request
from trtconv.core.requests.code import EXTEND
from trtconv.core.requests.common import REQUANTIZE, REWRITE_RULES, SUBSTITUTE, TARGET
from trtconv.core.rewrite_rules import RewriteRule
from trtconv.core.target import Target


@frozen
class RewriteRequest(Request):
    """A call of `trtconv rewrite`.

    Args:
        model: The .onnx file; never written.
        output: Where the rewritten model goes.
        only: Names of the only passes to run; empty means all.
        skip: Names of passes to leave out.
    """

    model: Path
    output: Path
    only: tuple[str, ...] = option(
        "--only", "Run this pass and no other. Repeatable.", metavar="PASS", many=True, default=()
    )
    skip: tuple[str, ...] = option("--skip", "Leave this pass out. Repeatable.", metavar="PASS", many=True, default=())
    target: Target | None = TARGET
    requantize: bool = REQUANTIZE
    rewrite_rules: tuple[RewriteRule, ...] = REWRITE_RULES
    substitute: tuple[str, ...] = SUBSTITUTE
    extend: tuple[CodeFile, ...] = EXTEND
