"""What the proofs of several sizes say together."""

from __future__ import annotations

import itertools

import pytest

from trtconv.core.documents.proof import WorstOutput
from trtconv.runtimes.proof.result import ProofResult


def _proof(error: float | None, agrees: bool | None, name: str) -> ProofResult:
    worst = None if error is None else WorstOutput(name, "")
    return ProofResult("network", sizes=1, layers=3, error=error, worst=worst, agrees=agrees)


@pytest.mark.parametrize("errors", list(itertools.permutations((0.1, 0.3, 0.2))))
def test_the_largest_error_stays(errors: tuple[float, ...]) -> None:
    first, *others = (_proof(error, True, f"y{error}") for error in errors)
    for other in others:
        first = first.joined(other)
    assert (first.sizes, first.error, first.worst) == (3, 0.3, WorstOutput("y0.3", ""))


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [((True, False), False), ((False, True), False), ((None, True), True), ((True, None), True), ((None, None), None)],
)
def test_one_size_that_differs_is_enough(verdicts: tuple[bool | None, bool | None], together: bool | None) -> None:
    one, other = (_proof(None, verdict, "y") for verdict in verdicts)
    assert one.joined(other).agrees is together
