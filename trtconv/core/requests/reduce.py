"""What `reduce` is asked, and what it found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.dims import InputRange
from trtconv.core.frozen import frozen
from trtconv.core.requests.common import SCHEMA, Bounds, as_paths
from trtconv.core.target import Target


@frozen
class ReduceRequest:
    """A call of `trtconv reduce`; fields as in `BuildRequest` where not told.

    Args:
        model: The failing .onnx file; never written.
        output: Where the part goes.
        trials: How many parts are tried at most.
        timeout: Seconds after which one of them counts as hanging.
    """

    model: Path
    output: Path
    dims: Bounds = dataclasses.field(default_factory=dict)
    profiles: tuple[Bounds, ...] = ()
    target: Target | None = None
    precision: str = "as-is"
    rewrite: bool = True
    requantize: bool = False
    values: Mapping[str, InputRange] = dataclasses.field(default_factory=dict)
    trials: int = 1000
    timeout: float = 120.0

    def __post_init__(self) -> None:
        as_paths(self, "model", "output")


@frozen
class Failure:
    """One way in which a model fails on a target.

    Args:
        code: Rule code of the finding, "crash", "timeout", "verify" (the rewritten model computes something else), or
            the name of another exception.
        name: Name of the rule or kind.
        message: What was said.
        op: Operator of the node that it is about, possibly empty.
        node: Name of that node, possibly empty.
    """

    code: str
    name: str
    message: str
    op: str = ""
    node: str = ""


@frozen
class ReduceReport:
    """What `trtconv reduce` found.

    Args:
        model: Path and SHA-256 of the whole.
        output: Path, SHA-256 and bytes of the part.
        failure: How both fail.
        nodes_before: Nodes of the whole.
        nodes: Nodes of the part.
        trials: Number of parts that were tried.
        minimal: Whether the part without any one of its nodes no longer fails so.
        command: What shows the failure of the part.
    """

    model: dict[str, Any]
    output: dict[str, Any]
    failure: Failure
    nodes_before: int
    nodes: int
    trials: int
    minimal: bool
    command: str
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "output": self.output,
            "failure": dataclasses.asdict(self.failure),
            "nodes": {"before": self.nodes_before, "after": self.nodes},
            "trials": self.trials,
            "minimal": self.minimal,
            "command": self.command,
            "exit_code": self.exit_code,
        }
