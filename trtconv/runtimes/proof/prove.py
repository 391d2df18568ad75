"""Runs a network that was read back beside its model, and finds the first tensor at which they part.

Outputs are compared first. Where they differ, or where a layer cannot be run, every tensor that has a name in the
model is compared with what the model has there, and goes on as that: each node is then proven by itself, an error is
found where it is made, and rounding that falls to the other side of a step is none.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import InputSpec
from trtconv.core.files import Scratch
from trtconv.core.frozen import frozen
from trtconv.core.process import Process
from trtconv.runtimes.compare import Difference, Tolerance, compare
from trtconv.runtimes.proof.ahead import Ahead, NetworkRun
from trtconv.runtimes.proof.reference import SERVE, Expected, Wanted, expect
from trtconv.runtimes.proof.result import Divergence, ProofResult
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadNetwork, ReadTensor

Array = NDArray[Any]


@frozen
class Meaning:
    """What a network should compute.

    Args:
        path: Where the model lies.
        original: The model that counts, serialized; None: the file itself.
        given: Returns the model as the parser was given it, serialized: its inner tensors have the names that the
            network's have. Asked only where something is to be looked for.
        makers: Returns for each tensor of that model the name of the node that makes it.
        tolerance: How far outputs may be off.
        megabytes: How much memory the model may take.
        inputs: The model's inputs.
    """

    path: str
    original: bytes | None
    given: Callable[[], bytes]
    makers: Callable[[], Mapping[str, str]]
    tolerance: Tolerance
    megabytes: float
    inputs: Sequence[InputSpec] = ()


@frozen
class Size:
    """One size to compare at.

    Args:
        name: "min", "opt", "max", "random 1".
        shapes: Input name to its shape.
        values: Inputs whose elements are given, such as those that hold shapes.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Prover:
    """Compares a network with its model; from now on the model is run in a process of its own, and the network at the
    first size beside it.

    Args:
        read: Returns what TensorRT's parser made of the model; called at once, when that process has been started.
        meaning: What it should compute.
        sizes: At which sizes, the most telling first.
        limit: How many seconds the model may take for all of them.
        seed: Of the inputs.
        one_is_enough: The sizes are guesses, of which the first that the model takes is compared.
    """

    def __init__(
        self,
        read: Callable[[], ReadNetwork],
        meaning: Meaning,
        sizes: Sequence[Size],
        limit: float,
        *,
        seed: int = 0,
        one_is_enough: bool = False,
    ) -> None:
        self._meaning = meaning
        self._sizes = sizes
        self._one_is_enough = one_is_enough
        shapes, values = tuple(each.shapes for each in sizes), tuple(each.values for each in sizes)
        self._wanted = Wanted(meaning.path, meaning.original, shapes, seed, values, first=one_is_enough)
        self._folder = Scratch("proof")
        self._found: list[Expected] = []
        self._loaded: list[float] = []
        self._runner = Process(SERVE, meaning.megabytes)
        # A daemon: whoever gives up does not wait for it, and the process ends with this one.
        self._thread = threading.Thread(target=self._expect, args=(limit,), daemon=True)
        self._thread.start()
        self._network = read()
        self._ahead = Ahead(self._network, meaning.inputs, self._wanted, time.monotonic() + limit)

    def _expect(self, limit: float) -> None:
        expect(self._runner, self._wanted, self._folder.path, limit, self._found, self._loaded)

    def close(self) -> None:
        """Ends the process, and removes what it wrote."""
        self._runner.close()
        self._ahead.stop()
        self._thread.join()
        self._folder.remove()

    def finish(self, seconds: float) -> ProofResult:
        """Returns what was proven.

        Args:
            seconds: How long the model may take from now, and how long the network may; what is not compared by then
                is told as not proven.
        """
        asked = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < self._until(asked, seconds):
            # In short waits, so that Ctrl-C is heard.
            self._thread.join(_POLL_SECONDS)
        deadline = time.monotonic() + seconds
        found, sizes, wanted = list(self._found), self._sizes, self._wanted
        if not found:
            return ProofResult("network", why=f"the model itself took longer than {seconds:.0f} s")
        if self._one_is_enough:
            number = next((i for i, each in enumerate(found) if not each.why), 0)
            sizes, found, wanted = sizes[number : number + 1], found[number : number + 1], _only(wanted, number)
        return _all_sizes(self._network, self._meaning, sizes, found, wanted, deadline, self._ahead)

    def _until(self, asked: float, seconds: float) -> float:
        """Returns when to stop waiting: the time counts from when the model is loaded, which takes as long as it does
        on a busy machine."""
        return max([asked, *self._loaded]) + seconds if self._loaded else asked + seconds + _START_SECONDS


_POLL_SECONDS = 0.1
_START_SECONDS = 30.0


def _all_sizes(
    network: ReadNetwork,
    meaning: Meaning,
    sizes: Sequence[Size],
    found: Sequence[Expected],
    wanted: Wanted,
    deadline: float,
    ahead: Ahead,
) -> ProofResult:
    proof = ProofResult("network")
    for number, (size, expected) in enumerate(zip(sizes, found, strict=False)):
        if number and time.monotonic() > deadline:
            break
        if expected.why:
            proof = dataclasses.replace(proof, why=proof.why or expected.why)
            continue
        try:
            ran = ahead.ran(expected.feeds, deadline) or NetworkRun.of(Run(network, expected.feeds, deadline=deadline))
        except NotProven as error:
            one = ProofResult("network", why=error.reason)
        else:
            one = _one_size(network, meaning, size, expected, _only(wanted, number), deadline, ran)
        proof = _joined(proof, one)
        if proof.agrees is False:
            break
    left = len(sizes) - proof.sizes
    if proof.agrees is not False and left and not proof.why:
        proof = dataclasses.replace(proof, why=f"{left} of {len(sizes)} sizes were left out for lack of time")
    return proof


def _only(wanted: Wanted, number: int) -> Wanted:
    """Returns what makes the run of that number again, with the same inputs."""
    return dataclasses.replace(
        wanted,
        shapes=(wanted.shapes[number],),
        values=(wanted.values[number],),
        seed=wanted.seed + number,
    )


def _joined(proof: ProofResult, one: ProofResult) -> ProofResult:
    """Returns what two proofs say together."""
    worse = one.error is not None and (proof.error is None or one.error > proof.error)
    told = {tuple(each.items()): each for each in (*proof.unproven, *one.unproven)}
    verdicts = {proof.agrees, one.agrees}
    return dataclasses.replace(
        proof,
        sizes=proof.sizes + one.sizes,
        layers=max(proof.layers, one.layers),
        unproven=tuple(told.values()),
        error=one.error if worse else proof.error,
        worst=one.worst if worse else proof.worst,
        agrees=False if False in verdicts else True if True in verdicts else None,
        why=proof.why or one.why,
        divergence=proof.divergence or one.divergence,
    )


def _one_size(
    network: ReadNetwork,
    meaning: Meaning,
    size: Size,
    expected: Expected,
    wanted: Wanted,
    deadline: float,
    ran: NetworkRun,
) -> ProofResult:
    run, got = ran.run, ran.outputs
    differences = [
        compare(name, values, got[name], meaning.tolerance) for name, values in expected.tensors.items() if name in got
    ]
    lacking = [name for name in expected.tensors if name not in got]
    if not lacking and all(is_fine(each) for each in differences):
        return dataclasses.replace(_told(network, run, differences, size), agrees=True if differences else None)
    return _tensor_by_tensor(network, meaning, size, wanted, (run, differences), deadline)


def is_fine(difference: Difference) -> bool:
    """Whether a difference is none, or shows nothing because the model itself has no finite value there."""
    return difference.passed or difference.why.startswith("the model itself")


def _told(network: ReadNetwork, run: Run, differences: Sequence[Difference], size: Size) -> ProofResult:
    """Returns what is told of a run, without a verdict."""
    worst = max((each for each in differences if not math.isnan(each.max_rel)), key=lambda d: d.max_rel, default=None)
    unproven = tuple(
        {"layer": network.layers[index].name, "kind": network.layers[index].kind, "reason": reason}
        for index, reason in sorted(run.unproven.items())
        if index >= 0
    )
    return ProofResult(
        "network",
        sizes=1,
        layers=len(run.ran),
        unproven=unproven,
        error=None if worst is None else worst.max_rel,
        worst=None if worst is None else {"output": worst.name, "size": size.name},
    )


def _tensor_by_tensor(
    network: ReadNetwork,
    meaning: Meaning,
    size: Size,
    wanted: Wanted,
    first: tuple[Run, Sequence[Difference]],
    deadline: float,
) -> ProofResult:
    """Compares every tensor that the model has too, each computed from what the model has before it."""
    run, differences = first
    proof = _told(network, run, differences, size)
    wrong = next((each for each in differences if not is_fine(each)), None)
    shapes = {name: list(shape) for name, shape in size.shapes.items()}
    names = tuple(dict.fromkeys(tensor.name for tensor in network.tensors))
    with Scratch("proof") as folder:
        again = dataclasses.replace(wanted, model=meaning.given(), inner=names)
        found: list[Expected] = []
        left = max(deadline - time.monotonic(), _LOOKING_SECONDS)
        with Process(SERVE, meaning.megabytes) as runner:
            expect(runner, again, folder.path, left, found, [])
        if not found or found[0].why:
            why = found[0].why if found else "there was no time to look for it"
            if wrong is None:
                return dataclasses.replace(proof, sizes=0, why=why)
            lost = Divergence(wrong.name, meaning.makers().get(wrong.name, ""), "", "", wrong.why, shapes)
            return dataclasses.replace(proof, agrees=False, divergence=lost, why=f"the layer is not known: {why}")
        watch = _Watch(network, found[0].tensors, meaning.tolerance)
        second = Run(network, found[0].feeds, watch.given, watch.seen, deadline + _LOOKING_SECONDS)
        second.outputs()
        told = dataclasses.replace(
            _told(network, second, [], size), error=proof.error, worst=proof.worst, layers=len(second.ran)
        )
    missing = _extra_input(network, wanted)
    if watch.diverged is not None or missing:
        divergence = _divergence(network, meaning, watch, shapes, missing)
        return dataclasses.replace(told, agrees=False, divergence=divergence)
    if watch.overflows and wrong is not None:
        return dataclasses.replace(told, sizes=0, error=None, worst=None, why="the model's values overflow")
    if not watch.compared:
        return dataclasses.replace(told, sizes=0, why="no layer whose result is in the model could be run")
    # Every node is right by itself: what is left is order (of boxes) and rounding (onto steps).
    return dataclasses.replace(told, agrees=True, error=watch.error, worst={"output": watch.worst, "size": size.name})


_LOOKING_SECONDS = 30.0
"""How long the layer at fault may be looked for; that there is one is then known."""


def _extra_input(network: ReadNetwork, wanted: Wanted) -> ReadTensor | None:
    """Returns an input of the network that the model does not have."""
    names = wanted.shapes[0].keys()
    inputs = (network.tensors[number] for number in network.inputs)
    return next((tensor for tensor in inputs if tensor.name not in names), None)


def _divergence(
    network: ReadNetwork, meaning: Meaning, watch: _Watch, shapes: dict[str, list[int]], extra: ReadTensor | None
) -> Divergence:
    if watch.diverged is None:
        assert extra is not None
        why = f"TensorRT made {extra.name!r}, which is inside the model, an input of the whole network"
        return Divergence(extra.name, "", "", "INPUT", why, shapes)
    tensor, difference = watch.diverged
    layer = next(each for each in network.layers if tensor.index in each.outputs)
    node = meaning.makers().get(tensor.name, layer.onnx_node)
    return Divergence(tensor.name, node, layer.name, layer.kind, difference.why, shapes)


class _Watch:
    """Compares the tensors of a run with the model's, and hands the model's on."""

    def __init__(self, network: ReadNetwork, tensors: Mapping[str, Array], tolerance: Tolerance) -> None:
        self.diverged: tuple[ReadTensor, Difference] | None = None
        self.compared = 0
        self.error = 0.0
        self.worst = ""
        self.overflows = False
        self._tensors = tensors
        self._tolerance = tolerance
        self._boxes = {n for layer in network.layers if layer.kind == "NMS" for n in layer.outputs}

    def given(self, tensor: ReadTensor) -> Array | None:
        """Returns what the model has under a tensor's name."""
        return self._tensors.get(tensor.name)

    def seen(self, tensor: ReadTensor, value: Array, computed: bool) -> Array:
        """Compares a value; returns the model's."""
        expected = self._tensors.get(tensor.name)
        if expected is None or not computed:
            return value
        if tensor.index in self._boxes:
            value = _in_order(value, expected)
        difference = compare(tensor.name, expected, value, self._tolerance)
        self.compared += 1
        if not math.isnan(difference.max_rel) and difference.max_rel > self.error:
            self.error, self.worst = difference.max_rel, tensor.name
        self.overflows = self.overflows or not _is_finite(expected)
        # Zeros that a pass puts into a kernel make NaN of infinities: no sign of a misreading.
        spoilt = self.overflows and "NaN or infinite" in difference.why
        if not is_fine(difference) and not spoilt and self.diverged is None:
            self.diverged = (tensor, difference)
        return expected.astype(value.dtype) if expected.shape == value.shape else value


def _is_finite(values: Array) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _in_order(value: Array, expected: Array) -> Array:
    """Returns rows in the order of others where they are the same: TensorRT sorts boxes by score, ONNX by class."""
    if value.shape != expected.shape or value.ndim != 2:
        return value
    same = np.array_equal(np.unique(value, axis=0), np.unique(expected, axis=0))
    return expected if same else value
