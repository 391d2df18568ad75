"""The whole network beside the whole model, at sizes that were asked for: finds the first tensor at which they part.

Outputs are compared first. Where they differ, or where a layer cannot be run, every tensor that has a name in the
model is compared with what the model has there, and goes on as that: each node is then proven by itself, an error is
found where it is made, and rounding that falls to the other side of a step is none.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.documents.parts import UnprovenLayer
from trtconv.core.documents.proof import ComparedOutput, WorstOutput
from trtconv.core.documents.verify import Difference, Verdict
from trtconv.core.frozen import frozen
from trtconv.core.scratch import Scratch
from trtconv.graph.chance import RANDOM
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.proof.ahead import Ahead, NetworkRun
from trtconv.runtimes.proof.conditioned import Conditioning
from trtconv.runtimes.proof.judging import Judge
from trtconv.runtimes.proof.meaning import Meaning
from trtconv.runtimes.proof.reference import Expected, Wanted
from trtconv.runtimes.proof.rerun import LOOKING_SECONDS, groups_of, run_again
from trtconv.runtimes.proof.result import Divergence, ProofResult
from trtconv.runtimes.proof.watch import Watch
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadLayer, ReadNetwork, ReadTensor


@frozen
class Size:
    """One size to compare at.

    Args:
        name: "min", "opt", "max", "random 1".
        shapes: Input name to its shape.
        values: Inputs whose elements are given, such as those that hold shapes.
        group: Sizes of one group stand for each other: the first that the model takes is compared. Empty: of none.
        besides: Nothing is said where the model takes none of the group.
        magnitude: Of the inputs' floats, which are positive where it is not 1.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    group: str = ""
    besides: bool = False
    magnitude: float = 1.0


def choose(sizes: Sequence[Size], runs: Sequence[Expected]) -> list[Expected]:
    """Returns what is to be compared: of each group the first run that the model took, or else the first."""
    groups: dict[str, Expected] = {}
    for expected in runs:
        size = sizes[expected.number]
        key = size.group or str(expected.number)
        earlier = groups.get(key)
        if (earlier is None or earlier.why) and not (expected.why and (size.besides or earlier is not None)):
            groups[key] = expected
    return list(groups.values())


def all_sizes(
    network: ReadNetwork,
    meaning: Meaning,
    sizes: Sequence[Size],
    runs: Sequence[Expected],
    goal: Wanted,
    deadline: float,
    ahead: Ahead,
) -> ProofResult:
    """Compares a network with its model at each size, until there is a difference or no more time.

    Args:
        network: The network.
        meaning: What it should compute.
        sizes: At which sizes.
        runs: What the model computes there.
        goal: What it was run for.
        deadline: On the clock of `time.monotonic`.
        ahead: The run of the network at the first size.
    """
    proof = ProofResult()
    count = 0
    for expected in choose(sizes, runs):
        size = sizes[expected.number]
        if proof.agrees is False or (count and time.monotonic() > deadline):
            break
        count += not size.besides
        if expected.why:
            proof = dataclasses.replace(proof, why=proof.why or expected.why)
            continue
        try:
            ran = ahead.ran(expected.feeds, deadline)
        except NotProven as error:
            one = ProofResult(why=error.reason)
        else:
            one = _one_size(network, meaning, size, expected, only(goal, expected.number), deadline, ran)
        overflows = size.magnitude != 1 and one.divergence is not None and one.divergence.overflows
        if size.besides and (one.agrees is None or overflows):
            continue
        # That it agrees there says nothing of the sizes that count.
        proof = proof.joined(dataclasses.replace(one, sizes=0, agrees=one.agrees and None) if size.besides else one)
    left = len({size.group or str(number) for number, size in enumerate(sizes) if not size.besides}) - count
    if proof.agrees is not False and left > 0 and not proof.why:
        proof = dataclasses.replace(proof, why=f"{left} of {left + count} sizes were left out for lack of time")
    return proof


def only(goal: Wanted, number: int) -> Wanted:
    """Returns what makes the run of that number again, with the same inputs."""
    return dataclasses.replace(
        goal,
        shapes=(goal.shapes[number],),
        values=(goal.values[number],),
        groups=(),
        magnitudes=goal.magnitudes[number : number + 1],
        seed=goal.seed + number,
    )


def _one_size(
    network: ReadNetwork,
    meaning: Meaning,
    size: Size,
    expected: Expected,
    goal: Wanted,
    deadline: float,
    ran: NetworkRun,
) -> ProofResult:
    run, got = ran.run, ran.outputs
    if ran.broken is not None:
        proof = _proof_of(network, run, (), size)
        return dataclasses.replace(proof, agrees=False, divergence=assertion(network, ran.broken, size))
    judge = Judge(network, meaning.tolerance)
    numbers = {network.tensors[number].name: number for number in network.outputs}
    differences = [
        judge.compare(numbers[name], values, got[name]) for name, values in expected.tensors.items() if name in got
    ]
    lacking = [name for name in expected.tensors if name not in got]
    if not lacking and not any(difference.verdict.refutes for difference in differences):
        agrees = any(difference.passed for difference in differences)
        why = "" if agrees else "the model returns nothing but NaN and infinities"
        return dataclasses.replace(_proof_of(network, run, differences, size), agrees=agrees or None, why=why)
    return _tensor_by_tensor(network, meaning, size, goal, (run, differences, expected), deadline)


def assertion(network: ReadNetwork, layer: ReadLayer, size: Size) -> Divergence:
    """Returns what is said of an assertion that does not hold."""
    (name,) = (network.tensors[number].name for number in layer.inputs if number is not None)
    shapes = {name: list(shape) for name, shape in size.shapes.items()}
    why = "an engine stops there, since what it asserts does not hold, and the model does not"
    return Divergence(name, layer.onnx_node, layer.name, layer.kind, why, shapes)


def _proof_of(network: ReadNetwork, run: Run, differences: Sequence[Difference], size: Size) -> ProofResult:
    """Returns what is told of a run, without a verdict."""
    worst = max(
        (difference for difference in differences if not math.isnan(difference.max_rel)),
        key=lambda d: d.max_rel,
        default=None,
    )
    unproven = tuple(
        UnprovenLayer(network.layers[index].name, network.layers[index].kind, reason)
        for index, reason in sorted(run.unproven.items())
        if index >= 0
    )
    return ProofResult(
        sizes=1,
        layers=len(run.ran),
        unproven=unproven,
        error=None if worst is None else worst.max_rel,
        worst=None if worst is None else WorstOutput(worst.name, size.name),
        compared=tuple(
            ComparedOutput(difference.name, size.name, size.shapes, difference.max_rel) for difference in differences
        ),
    )


def _tensor_by_tensor(
    network: ReadNetwork,
    meaning: Meaning,
    size: Size,
    goal: Wanted,
    first: tuple[Run, Sequence[Difference], Expected],
    deadline: float,
) -> ProofResult:
    """Compares every tensor that the model has too, each computed from what the model has before it."""
    run, differences, expected = first
    proof = _proof_of(network, run, differences, size)
    wrong = next((difference for difference in differences if difference.verdict.refutes), None)
    shapes = {name: list(shape) for name, shape in size.shapes.items()}
    names = tuple(dict.fromkeys(tensor.name for tensor in network.tensors))
    # Integers may decide sizes: the rewritten model does not say which.
    same = {name: values for name, values in expected.feeds.items() if values.dtype.kind in "iu"}
    again = dataclasses.replace(goal, inner=names, values=({**goal.feeds(0), **same},))
    with Scratch("proof") as folder:
        groups = () if meaning.parsed.has(RANDOM) else groups_of(network, size.shapes, meaning.megabytes)
        inner, outer = run_again(meaning, again, groups, folder.path, deadline)
        if inner.why:
            if wrong is None:
                return dataclasses.replace(proof, sizes=0, why=inner.why)
            lost = Divergence(wrong.name, meaning.makers().get(wrong.name, ""), "", "", wrong.why, shapes)
            return dataclasses.replace(proof, agrees=False, divergence=lost, why=f"the layer is not known: {inner.why}")
        until = deadline + LOOKING_SECONDS
        watch = _watch(network, meaning, inner, until)
        second = Run(network, inner.feeds, watch.stand_in, watch.see, until, meaning.megabytes)
        why = ""
        try:
            second.outputs()
        except NotProven as error:
            why = error.reason
        unproven = _proof_of(network, second, [], size).unproven
        proof = dataclasses.replace(proof, layers=len(second.ran), unproven=unproven)
        rewritten = _rewritten_error(meaning, expected, outer, watch.overflows)
    divergence = _divergence(network, meaning, watch, shapes, _extra_input(network, goal)) or _changed(
        meaning, rewritten, shapes
    )
    if divergence is not None:
        return dataclasses.replace(proof, agrees=False, divergence=divergence)
    if why or not watch.compared:
        return dataclasses.replace(proof, sizes=0, why=why or "no layer whose result is in the model could be run")
    if watch.overflows and wrong is not None:
        return dataclasses.replace(proof, sizes=0, error=None, worst=None, why="the model's values overflow")
    # Every node is right by itself: what is left is order (of boxes) and rounding (onto steps).
    largest, where = max((watch.error, watch.worst), rewritten or (0.0, ""))
    return dataclasses.replace(proof, agrees=True, error=largest, worst=WorstOutput(where, size.name))


def _watch(network: ReadNetwork, meaning: Meaning, expected: Expected, until: float) -> Watch:
    values = {**expected.feeds, **expected.tensors}
    conditioning = Conditioning(network, meaning.parsed, values, until, meaning.megabytes)
    return Watch(network, expected, meaning.tolerance, conditioning)


def _changed(meaning: Meaning, rewritten: tuple[float, str] | None, shapes: dict[str, list[int]]) -> Divergence | None:
    """Returns where the passes changed what the model computes, if they did."""
    if rewritten is None or rewritten[0] <= meaning.rewritten_error:
        return None
    error, name = rewritten
    why = f"the model after them is off by {error:.2g} of the largest magnitude"
    return Divergence(name, meaning.makers().get(name, ""), "", "", why, shapes, by_passes=True)


def _rewritten_error(
    meaning: Meaning, expected: Expected, rewritten: Expected, overflows: bool
) -> tuple[float, str] | None:
    """Returns how far, relatively, the model the parser was given is from the one that counts, and at which output;
    None where the two ran on other inputs, or values overflow: zeros in a kernel make NaN of infinities."""
    if meaning.parsed.has(RANDOM):
        return None
    if not all(
        name in rewritten.feeds and np.array_equal(values, rewritten.feeds[name])
        for name, values in expected.feeds.items()
    ):
        return None
    steps = meaning.steps()
    errors = (
        (relative_error(values, rewritten.tensors[name], steps.get(name, 0.0)), name)
        for name, values in expected.tensors.items()
        if name in rewritten.tensors and values.dtype.kind in "fiub"
    )
    largest = max(errors, default=None)
    return None if overflows and largest is not None and math.isinf(largest[0]) else largest


def _extra_input(network: ReadNetwork, goal: Wanted) -> ReadTensor | None:
    """Returns an input of the network that the model does not have."""
    names = goal.shapes[0].keys()
    inputs = (network.tensors[number] for number in network.inputs)
    return next((tensor for tensor in inputs if tensor.name not in names), None)


def _divergence(
    network: ReadNetwork, meaning: Meaning, watch: Watch, shapes: dict[str, list[int]], extra: ReadTensor | None
) -> Divergence | None:
    if watch.diverged is None:
        if extra is None:
            return None
        why = f"TensorRT made {extra.name!r}, which is inside the model, an input of the whole network"
        return Divergence(extra.name, "", "", "INPUT", why, shapes)
    tensor, difference = watch.diverged
    layer = next(candidate for candidate in network.layers if tensor.index in candidate.outputs)
    node = meaning.makers().get(tensor.name, layer.onnx_node)
    overflows = difference.verdict is Verdict.NOT_FINITE
    return Divergence(tensor.name, node, layer.name, layer.kind, difference.why, shapes, overflows=overflows)
