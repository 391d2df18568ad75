"""What two trials of a model mean for whoever upgrades."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trtconv.core import codes
from trtconv.core.documents.upgrade import BuildTrial, Effect, Fate, LayerDifference, ModelUpgrade, TrialSummary
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.frozen import frozen
from trtconv.core.stages import Stage
from trtconv.pipeline.upgrading.layers import differences

ROUNDING = 1e-6
"""A relative error that grows by less grows by nothing: float32 sums in another order differ by as much."""
_LEAST_SECONDS = 1.0
"""A build that takes longer by less takes as long."""
_SHOWN = 3


@frozen
class Allowance:
    """What may grow.

    Args:
        tolerance: By what part the error of the proof may.
        slower: How many times as long a build may take; None: any.
    """

    tolerance: float
    slower: float | None = None


def judged(model: str, before: BuildTrial, after: BuildTrial, allowed: Allowance) -> ModelUpgrade:
    """Returns what became of a model."""
    one, other = _side(before), _side(after)
    layers = differences(before.layers, after.layers) if before.layers and after.layers else ()
    worse = tuple(_regressions(before, after, one, other, allowed))
    otherwise = tuple(_parsed_otherwise(layers))
    change = _change(one, other, bool(worse), bool(layers))
    return ModelUpgrade(model, change, one, other, layers, (*worse, *otherwise))


def _side(trial: BuildTrial) -> TrialSummary:
    proof = trial.proof
    # After a refusal nothing was compared, or not all of it.
    error = None if proof is None else proof.max_relative_error
    errors = dict.fromkeys(finding.code for finding in trial.findings if finding.severity is Severity.ERROR)
    build_s = trial.seconds.get(Stage.BUILD.value)
    return TrialSummary(
        trial.fate,
        trial.why,
        error,
        build_s,
        trial.engine_bytes,
        len(trial.layers),
        tuple(errors),
        trial.hint,
        trial.exit_code,
    )


_UNFINISHED = {Fate.TOO_LONG, Fate.OUT_OF_MEMORY}
"""Where both sides ended so, nothing was found out of either."""


def _change(before: TrialSummary, after: TrialSummary, worse: bool, otherwise: bool) -> Effect:
    if worse:
        return Effect.REGRESSION
    if Fate.NOT_TRIED in (before.fate, after.fate) or {before.fate, after.fate} <= _UNFINISHED:
        return Effect.NOT_TRIED
    if after.fate.good and not before.fate.good:
        return Effect.IMPROVEMENT
    same = before.fate is after.fate and before.codes == after.codes and _as_exact(before, after)
    return Effect.SAME if same and not otherwise else Effect.CHANGED


def _as_exact(before: TrialSummary, after: TrialSummary) -> bool:
    if before.error is None or after.error is None:
        return before.error is after.error
    return abs(before.error - after.error) <= ROUNDING


def _regressions(
    before: BuildTrial, after: BuildTrial, one: TrialSummary, other: TrialSummary, allowed: Allowance
) -> Iterator[Finding]:
    if not before.fate.good or after.fate is Fate.NOT_TRIED:
        return
    if not after.fate.good:
        yield from _failures(before, after)
        return
    if one.error is not None and other.error is not None and _grown(one.error, other.error, allowed.tolerance):
        message = f"the error of the proof grows from {one.error:.1e} to {other.error:.1e}"
        yield codes.UPGRADE_REGRESSION.finding(message)
    if allowed.slower is None or one.build_s is None or other.build_s is None:
        return
    if other.build_s > one.build_s * allowed.slower and other.build_s - one.build_s > _LEAST_SECONDS:
        message = f"the build takes {other.build_s:.1f} s, and took {one.build_s:.1f} s"
        yield codes.UPGRADE_REGRESSION.finding(message)


def _grown(before: float, after: float, tolerance: float) -> bool:
    # A result that is not finite is as far off as can be.
    before, after = (math.inf if math.isnan(error) else error for error in (before, after))
    return after > before * (1 + tolerance) + ROUNDING


def _failures(before: BuildTrial, after: BuildTrial) -> Iterator[Finding]:
    """Yields why a model has no engine any more: the errors that are new, or what ended the process."""
    faults = {finding.fault for finding in before.findings if finding.severity is Severity.ERROR}
    new = [finding for finding in after.findings if finding.severity is Severity.ERROR and finding.fault not in faults]
    for finding in new:
        message = f"{before.fate.value}, now {after.fate.value} ({finding.code}): {finding.message}"
        yield codes.UPGRADE_REGRESSION.finding(message, place=finding.location, fix=finding.fix)
    if not new:
        why = f": {after.why}" if after.why else ""
        yield codes.UPGRADE_REGRESSION.finding(f"{before.fate.value}, now {after.fate.value}{why}")


def _parsed_otherwise(layers: tuple[LayerDifference, ...]) -> Iterator[Finding]:
    """Yields one finding a node."""
    by_node: dict[str, list[LayerDifference]] = {}
    for difference in layers:
        by_node.setdefault(difference.node, []).append(difference)
    for node, changes in by_node.items():
        more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        message = f"parsed otherwise: {'; '.join(map(str, changes[:_SHOWN]))}{more}"
        yield codes.PARSED_OTHERWISE.finding(message, Severity.INFO, Location(node=node))
