"""What the proofs of several sizes say together."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trtconv.core.dims import InputSpec
from trtconv.core.documents.proof import WorstOutput
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.proof.ahead import NetworkRun
from trtconv.runtimes.proof.reference import Expected, Wanted, feeds_of
from trtconv.runtimes.proof.result import ProofResult
from trtconv.runtimes.proof.whole import Size, all_sizes, only
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor


def _proof(error: float | None, agrees: bool | None, name: str) -> ProofResult:
    worst = None if error is None else WorstOutput(name, "")
    return ProofResult(sizes=1, layers=3, error=error, worst=worst, agrees=agrees)


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


def negation() -> ReadNetwork:
    """A network that negates, and asserts something."""
    tensors = tuple(ReadTensor(number, name, dtype, (-1,)) for number, (name, dtype) in enumerate(TENSORS.items()))
    layers = (ReadLayer(0, "neg", "UNARY", (0,), (2,), {"op": "NEG"}), ReadLayer(1, "go", "ASSERTION", (1,), (), {}))
    return ReadNetwork(tensors, layers, (0, 1), (2,))


TENSORS = {"x": "float32", "go": "bool", "y": "float32"}
MEANING: Any = SimpleNamespace(megabytes=1e6, tolerance=TOLERANCES["float32"])
NOT_AHEAD: Any = SimpleNamespace(ran=lambda feeds, deadline: NetworkRun.of(Run(negation(), feeds, deadline=deadline)))


def run_of(number: int, outcome: str) -> Expected:
    """What the model computes: it agrees, is off a little, is no number, does not run; or the network stops there."""
    x = np.array([1.0, -2.0], np.float32) * np.float32(np.nan if outcome == "nan" else 1)
    feeds = {"x": x, "go": np.array([outcome != "stops", True])}
    factor = 1 + 1e-6 * number if outcome == "near" else 1
    return Expected(
        number, feeds, {} if outcome == "fails" else {"y": -x * np.float32(factor)}, outcome * (outcome == "fails")
    )


def compared(*sizes: str, ahead: Any = NOT_AHEAD, deadline: float = math.inf) -> ProofResult:
    """Compares at sizes, each given as what comes of it, its group, and whether it is one besides."""
    asked, runs = [], []
    for number, size in enumerate(sizes):
        outcome, group, *besides = [*size.split(), "", ""][:3]
        group = group.strip("-")
        asked.append(Size(f"s{number}", {"x": (2,), "go": (2,)}, group=group, besides=any(besides)))
        if outcome != "none":
            runs.append(run_of(number, outcome))
    wanted = Wanted("m.onnx", None, tuple(size.shapes for size in asked), values=({},) * len(asked))
    return all_sizes(negation(), MEANING, asked, runs, wanted, deadline, ahead)


@pytest.mark.parametrize(
    ("sizes", "agrees", "count", "why"),
    [
        (["right"], True, 1, False),
        (["right", "right"], True, 2, False),
        # The first difference is enough.
        (["stops", "right"], False, 1, False),
        (["right", "stops", "right"], False, 2, False),
        # Of a group one is enough, the first that the model takes.
        (["right a", "right a", "right b"], True, 2, False),
        (["right a", "stops a"], True, 1, False),
        (["fails a", "right a"], True, 1, False),
        (["fails a", "stops a", "right a"], False, 1, False),
        (["fails a", "fails a"], None, 0, True),
        (["fails", "right"], True, 1, True),
        (["nan"], None, 1, True),
        (["nan", "right"], True, 2, True),
        # What is there besides counts where it differs alone.
        (["right - besides"], None, 0, False),
        (["stops - besides"], False, 0, False),
        (["right", "stops - besides"], False, 1, False),
        (["right", "right - besides", "fails - besides", "nan - besides"], True, 1, False),
        (["right", "fails a besides", "stops a besides"], False, 1, False),
        (["fails - besides"], None, 0, False),
        # Sizes that there was no time to run the model at.
        (["right", "none"], True, 1, True),
        (["right a", "none a"], True, 1, False),
        (["right", "none - besides"], True, 1, False),
        (["stops", "none"], False, 1, False),
    ],
)
def test_sizes_and_groups(sizes: list[str], agrees: bool | None, count: int, why: bool) -> None:
    proof = compared(*sizes)
    assert (proof.agrees, proof.sizes, bool(proof.why)) == (agrees, count, why)
    assert (proof.divergence is None) == (agrees is not False)


def test_without_time_the_first_size_is_run_and_the_others_are_counted() -> None:
    first = run_of(0, "right")
    ran = NetworkRun.of(Run(negation(), first.feeds))
    ahead = SimpleNamespace(ran=lambda feeds, deadline: ran, prepared=None)
    proof = compared("right", "right", "right b", "right b", ahead=ahead, deadline=-math.inf)
    assert (proof.agrees, proof.sizes) == (True, 1) and "2 of 3" in proof.why
    late = compared("right", deadline=-math.inf)
    assert (late.agrees, late.sizes) == (None, 0) and late.why


def test_what_is_told_of_sizes_that_agree() -> None:
    proof = compared("right", "near", "near")
    assert proof.worst == WorstOutput("y", "s2") and proof.error == pytest.approx(2e-6, rel=0.1)
    assert [(each.output, each.size, each.shapes) for each in proof.compared] == [
        ("y", f"s{number}", {"x": (2,), "go": (2,)}) for number in range(3)
    ]
    assert [each.error for each in proof.compared] == pytest.approx([0, 1e-6, 2e-6], rel=0.2)
    assert (proof.layers, proof.unproven) == (1, ())


def test_an_assertion_that_does_not_hold_is_told() -> None:
    proof = compared("stops")
    assert proof.divergence is not None
    found = proof.divergence
    assert (found.tensor, found.layer, found.kind, found.shapes) == ("go", "go", "ASSERTION", {"x": [2], "go": [2]})


def test_one_run_of_several_is_made_again_with_the_same_inputs() -> None:
    specs = [InputSpec("x", "float", ("n",)), InputSpec("n", "int64", ("n",))]
    shapes = tuple({"x": (size,), "n": (size,)} for size in (3, 4, 5))
    values: tuple[dict[str, Any], ...] = ({}, {"n": [1, 2, 3, 4]}, {})
    wanted = Wanted(
        "m.onnx", None, shapes, 7, values, spans={"n": range(99)}, groups=("a", "a", "b"), magnitudes=(1, 50, 1)
    )
    for number in range(3):
        again, first = feeds_of(only(wanted, number), 0, specs), feeds_of(wanted, number, specs)
        assert again.keys() == first.keys()
        assert all(np.array_equal(again[name], first[name]) for name in first)
