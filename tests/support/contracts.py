"""What only tests and the fuzzer check of passes: that a second run edits nothing."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import BrokenContract, Pass, PassResult, base

_run_once = base.run_one


def run_twice(model: OnnxModel, pass_: Pass, target: Target, before: int) -> tuple[PassResult, int]:
    """Does as `passes.base.run_one`, and then runs the pass again.

    Raises:
        BrokenContract: The second run edited something.
    """
    result, after = _run_once(model, pass_, target, before)
    again = pass_.run(model, target).edits if result.edits else ()
    if again:
        raise BrokenContract(f"pass {pass_.name} is not idempotent: {again[0]}")
    return result, after


def check_idempotence() -> None:
    """Has every pass that runs in this process from now on run twice."""
    base.run_one = run_twice
