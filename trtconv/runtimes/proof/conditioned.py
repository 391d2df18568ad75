"""Whether a tensor of a whole run is off by no more than rounding makes of what it was computed from.

Where large terms cancel, what is left of them says nothing of how far rounding takes it. The layers behind a tensor are
run by themselves on what the model has before them, as it is and moved a little, and the tensor is judged as that of a
piece is: element by element, by how much it changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trtconv.core.documents.verify import Verdict
from trtconv.graph.arrays import Array
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import tolerance
from trtconv.runtimes.proof.cut import Seams, made_of_values
from trtconv.runtimes.proof.describe import Description
from trtconv.runtimes.proof.part import part_of
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadNetwork, ReadTensor

_MOVES = 4
_NUDGES = 32
_FEW_UNITS = 4
_MOST_ASKED = 16
"""Tensors that are looked at so: a network that was misread is off at many."""


class Conditioning:
    """Judges tensors of a network by what rounding makes of their inputs.

    Args:
        network: The network.
        model: The model as the parser was given it.
        tensors: What the model has, by name: inputs, and whatever was computed.
        deadline: On the clock of `time.monotonic`.
        megabytes: How much memory a run may take.
    """

    def __init__(
        self,
        network: ReadNetwork,
        model: OnnxModel,
        tensors: Mapping[str, Array],
        deadline: float = math.inf,
        megabytes: float = math.inf,
    ) -> None:
        self._network = network
        self._model = model
        self._tensors = tensors
        self._deadline = deadline
        self._megabytes = megabytes
        self._seams: Seams | None = None
        self._count = 0

    def explains(self, tensor: ReadTensor, expected: Array, got: Array) -> bool:
        """Whether rounding alone may take a tensor from what the model has to what the network has."""
        self._count += 1
        is_float = expected.dtype.kind == "f"
        if self._count > _MOST_ASKED or expected.dtype.kind not in "fiu" or expected.shape != got.shape:
            return False
        if tolerance.eps_of([str(expected.dtype)]) > tolerance.eps_of(()) and self._is_settled(tensor.name):
            return True
        self._seams = self._seams or Seams(self._network, self._model)
        if tensor.name not in self._seams.numbers or tensor.name not in self._model.main.producers:
            return False
        piece = self._seams.cut(tensor.name)
        if not all(name in self._tensors for name in piece.sources):
            return False
        feeds = {name: np.asarray(self._tensors[name]) for name in piece.sources}
        shapes = {name: values.shape for name, values in feeds.items()}
        of = Description.of(self._network, self._model, piece, shapes)
        part = part_of(self._network, piece, self._seams.numbers, shapes, shapes)
        try:
            unmoved = self._run(part, feeds)
            # What the layers make of these inputs is how they are conditioned only where they made it in the run.
            if unmoved is None or not np.array_equal(unmoved, got, equal_nan=is_float):
                return False
            if not is_float:
                # ONNX Runtime has float32 between the nodes of narrower types, in which equal numbers may differ.
                is_narrow = of.eps > tolerance.eps_of(())
                return is_narrow and self._is_between(part, feeds, expected, got, of.eps)
            moved = [self._run(part, _moved(feeds, number)) for number in range(_MOVES)]
        except NotProven:
            return False
        wide = expected.astype(np.float64)
        with np.errstate(all="ignore"):
            nearby = [wide + (result.astype(np.float64) - unmoved) for result in moved if result is not None]
        # Without what is allowed for the size of inputs: these are a network's own, masks of -1e38 among them.
        how = tolerance.Arithmetic(of.eps, approximated=False, rough=of.rough, placed=0.0)
        return tolerance.judge(tolerance.Computed(expected, moved=nearby), got, how, feeds).verdict is Verdict.PASSED

    def _is_settled(self, name: str) -> bool:
        """Whether no values of an input go into a tensor: it is part of the pieces that it goes into, each of which is
        run by itself. Of narrow types ONNX Runtime computes it in float32."""
        is_inside = name in self._model.main.producers and name not in self._model.outputs
        return is_inside and name not in made_of_values(self._model)

    def _is_between(
        self, part: ReadNetwork, feeds: Mapping[str, Array], expected: Array, got: Array, eps: float
    ) -> bool:
        """Whether integers are others only where a few units of rounding of what they are made of decide: the place of
        the largest of numbers that are nearly alike."""
        open_ = expected != got
        for number in range(_NUDGES):
            # To one side and then to the other.
            by = _FEW_UNITS * eps * (1 if number % 2 else -1)
            nudged = self._run(part, _moved(feeds, number // 2, by))
            if nudged is not None and nudged.shape == expected.shape:
                open_ &= nudged != expected
            if not open_.any():
                return True
        return False

    def _run(self, part: ReadNetwork, feeds: Mapping[str, Array]) -> Array | None:
        run = Run(part, feeds, deadline=self._deadline, megabytes=self._megabytes)
        return next(iter(run.outputs().values()), None)


def _moved(feeds: Mapping[str, Array], seed: int, by: float = tolerance.PERTURBATION) -> dict[str, Array]:
    """Returns inputs that are moved a little."""
    random = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        return {
            name: np.asarray(values * random.choice([1 - by, 1 + by], values.shape)).astype(values.dtype)
            if values.dtype.kind == "f"
            else values
            for name, values in feeds.items()
        }
