"""What passes made of a model, held to the file piece by piece.

Wherever the two differ, the nodes between tensors that both compute are cut out of either and run on the same inputs
of their own, at small sizes. What a pass says that it did, or that it did anything, is not asked. A tensor of codes may
have come to mean something else under its name; whatever reads it is then compared together with it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from trtconv.core import process
from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.errors import TrtconvError
from trtconv.core.frozen import frozen
from trtconv.graph.extract import shapes_at, shapes_with
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import known_dtype_name
from trtconv.runtimes.assumed import Shapes, assumed_shapes
from trtconv.runtimes.proof.lattice_shapes import shapes_by_lattice
from trtconv.runtimes.proof.rewritten_runs import Pairs
from trtconv.runtimes.proof.terms.defined import is_kept
from trtconv.runtimes.proof.version import Version
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_MOST_SIZES = 3
"""That are tried until those of all tensors are known."""
_MOST_ROUNDS = 8
"""How often pieces are widened."""
_FLOAT = 2e-5
_ROUNDING = {"float64": 1e-12, "float32": _FLOAT, "float16": 1e-2, "bfloat16": 8e-2}
"""How far, over the largest magnitude, sums of a few thousand products in another order may be off."""
_QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger")


@frozen
class Claim:
    """What the passes say of all that they did.

    Args:
        exact: The same numbers, up to the order of float sums.
        tolerance: How far pieces that quantise may be off, over the largest magnitude; all pieces, if they are not
            exact.
    """

    exact: bool
    tolerance: float


@frozen
class Changed:
    """A tensor that a rewritten model computes otherwise.

    Args:
        tensor: Its name.
        error: How far it is off, over its largest magnitude; infinite for another shape or type.
        shapes: Input shapes of the whole model at which the piece was run.
    """

    tensor: str
    error: float
    shapes: Mapping[str, Sequence[int]]


@frozen
class Kept:
    """What was found of the pieces.

    Args:
        matches: How many were shown to be the same.
        changed: The first that is not.
        missing: Tensors whose piece could not be run, and why.
    """

    matches: int = 0
    changed: Changed | None = None
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Differences:
    """Where two models differ.

    Args:
        file: The model as it was read.
        rewritten: What the passes made of it.
        network: What TensorRT made of that, which knows the sizes of tensors; None: nothing does.
    """

    def __init__(self, file: OnnxModel, rewritten: OnnxModel, network: ReadNetwork | None = None) -> None:
        self.before, self.after = before, after = Version(file), Version(rewritten)
        self._network = network
        both = {name for name in before.producers if before.makes(name) and after.makes(name)}
        # Codes of another type mean something else, and so do the bits of a constant in another shape.
        types = file.whole.element_types, rewritten.whole.element_types
        recoded = {name for name in both if types[0][name] != types[1][name]}
        recoded |= _constants_in_other_shapes(file, rewritten) | _outputs_of_other_types(file, rewritten)
        self._recoded = recoded
        self.both = both - recoded
        """Tensors that both make."""
        changed = {name for name in self.both if not before.makes_alike(after, name) or before.reads_of(name) & recoded}
        self._unchanged = self.both - changed
        self.targets = {name for name in changed if not self._is_kept(name)}
        """Those of them that each makes in another way, and that are not the same by their definition."""
        self.defined = len(changed) - len(self.targets)
        """How many are."""

    def is_defined(self) -> bool:
        """Whether all that differs is shown by its definition, what only one makes of inputs too."""
        before, after = self.before.model, self.after.model
        if self.targets or not set(before.outputs) - self.before.inputs <= self.both:
            return False
        if before.inputs != after.inputs or not _functions(after) <= _functions(before):
            return False
        shared = self.both | (self.before.inputs & self.after.inputs)
        if before.opset != after.opset:
            # The same node may mean something else.
            return all(map(self._is_kept, self._unchanged))
        # What a node reads may have become a constant, or no longer be one: the node itself is as it was.
        return all(
            not any(self.before.varies(read) or self.after.varies(read) for read in self.before.reads_of(name) - shared)
            or self._is_kept(name)
            for name in self._unchanged
        )

    @property
    def without_a_run(self) -> Kept:
        """What is known already: outputs that are something else in each are compared nowhere."""
        before, after = self.before, self.after
        others = (
            name
            for name in before.model.outputs
            if name in self._recoded or (after.makes(name) and not before.varies(name))
        )
        return Kept(self.defined, None, dict.fromkeys(others, "in the file it is of another type, shape or origin"))

    def constants_of(self, target: str, seams: set[str]) -> list[str]:
        """Returns the constants that the node of a target reads and that nodes make, in each model others; none where
        anything else of it may be otherwise."""
        sides = (self.before, self.after)
        one, other = (side.nodes[side.producers[target]] for side in sides)
        reads, types = self.before.reads_of(target), [side.model.main.types for side in sides]
        constants = {name for name in reads - seams if any(name in side.producers for side in sides)}
        if (
            one != other
            or self.before.model.opset != self.after.model.opset
            or reads & self._recoded
            or any(side.varies(name) for name in constants for side in sides)
            or any(types[0].get(name) != types[1].get(name) for name in constants)
        ):
            return []
        return sorted(constants)

    def _is_kept(self, target: str) -> bool:
        network = self._network
        if network is None:
            return False
        cones = [side.cone(target, self.both) for side in (self.before, self.after)]
        names = set().union(*(sources for _, sources in cones))
        tensors = [network.named[name] for name in names if name in network.named]
        before, after = (nodes for nodes, _ in cones)
        return len(tensors) == len(names) and is_kept(
            self.before.model, self.after.model, (before, after), target, tensors
        )


def _functions(model: OnnxModel) -> set[bytes]:
    return {function.SerializeToString(deterministic=True) for function in model.proto.functions}


def _outputs_of_other_types(file: OnnxModel, rewritten: OnnxModel) -> set[str]:
    """Returns the outputs that two models state otherwise, whatever their nodes make."""
    one, other = ({v.name: v.type.tensor_type.elem_type for v in m.proto.graph.output} for m in (file, rewritten))
    return {name for name, kind in one.items() if other.get(name, kind) != kind}


def _constants_in_other_shapes(file: OnnxModel, rewritten: OnnxModel) -> set[str]:
    """Returns the initializers that have another shape or type in another model; their bits are compared elsewhere."""
    others = rewritten.main.initializers
    return {
        name
        for name, tensor in file.main.initializers.items()
        if name in others and (tensor.data_type, tensor.dims) != (others[name].data_type, others[name].dims)
    }


def compared_pieces(differences: Differences, claim: Claim, runner: process.Process, seconds: float = math.inf) -> Kept:
    """Compares the pieces in which two models differ.

    Args:
        differences: The models, and where they differ.
        claim: What the passes claim.
        runner: The process, of `proof.SERVE`.
        seconds: How long it may take.
    """
    before, after, both, targets = differences.before, differences.after, differences.both, differences.targets
    file, rewritten, equal = before.model, after.model, differences.defined
    if not targets:
        return differences.without_a_run
    missing = dict(differences.without_a_run.missing)
    places, deadline = _Places(file, rewritten), time.monotonic() + seconds
    seams = {name for name in both if not (before.makes_of_sizes(name) or after.makes_of_sizes(name))}
    left = set(both)
    for _ in range(_MOST_ROUNDS):
        cut = _cut(differences, targets, seams, places)
        pieces = [(name, one, other) for name, (one, other) in cut.items() if one is not None and other is not None]
        answers = _ran(runner, Pairs(pieces, str(file.path)), deadline)
        off = set()
        for name in sorted(cut, key=before.producers.__getitem__):
            answer = answers.get(name, "the sizes of what it reads are not known")
            if isinstance(answer, str):
                missing[name] = answer
            elif answer <= _limit((before, after), name, seams, claim):
                equal += 1
            elif name not in both:
                missing[name] = "it has other values, and the sizes of what is read beside it are not known"
            elif name in rewritten.outputs or (claim.exact and places.is_float(name)):
                return Kept(equal, Changed(name, answer, places.shapes), missing)
            else:
                off.add(name)
        seams -= off
        left -= off
        targets = {name for name in left if before.reads_of(name) & off or after.reads_of(name) & off}
        if not targets:
            break
    missing.update(dict.fromkeys(targets, f"{_MOST_ROUNDS} tensors before it have other values, one behind another"))
    return Kept(equal, None, missing)


def _cut(
    differences: Differences, targets: Collection[str], seams: set[str], places: _Places
) -> dict[str, list[bytes | None]]:
    """Returns the pieces of both models that make each target; where the sizes of what one reads are not known, those
    that make the constants which its node reads, if these are all that is otherwise."""
    sides = (differences.before, differences.after)
    cut = {}
    for name in sorted(targets):
        own = _seams_outside(sides, name, seams)
        cut[name] = [side.cut(name, own, places.value) for side in sides]
    for name in [name for name, pieces in cut.items() if None in pieces]:
        constants = differences.constants_of(name, seams)
        if constants:
            del cut[name]
            cut |= {constant: [side.cut(constant, set(), places.value) for side in sides] for constant in constants}
    return cut


def _seams_outside(sides: Sequence[Version], target: str, seams: set[str]) -> set[str]:
    """Returns the seams without those that a node of either piece makes beside what the piece is for: fed to the other
    piece, they would not be what that node computes."""
    while True:
        cones = [side.cone(target, seams) for side in sides]
        results = {
            output
            for side, (nodes, _) in zip(sides, cones, strict=True)
            for index in nodes
            for output in side.nodes[index].output
        }
        inside = results & (cones[0][1] | cones[1][1])
        if not inside:
            return seams
        seams = seams - inside


def _limit(sides: Sequence[Version], target: str, seams: set[str], claim: Claim) -> float:
    """Returns how far a piece may be off: by rounding, and by steps where it quantises."""
    nodes = [side.nodes[index] for side in sides for index in side.cone(target, seams)[0]]
    read = {name for node in nodes for name in node.input}
    initializers = [side.model.main.initializers for side in sides]
    codes = {tensors[name].data_type for tensors in initializers for name in read & tensors.keys()}
    # What the file itself computes in a half type; one that it only casts, or that passes brought in, excuses nothing.
    file = sides[0]
    reads = {name for node in _computing(file, target, seams) for name in node.input}
    codes |= {file.model.main.types.get(name, 0) for name in reads}
    rounding = max((_ROUNDING[name] for name in map(known_dtype_name, codes) if name in _ROUNDING), default=_FLOAT)
    if not claim.exact:
        return max(rounding, claim.tolerance)
    return max(rounding, claim.tolerance) if any(node.op_type in _QUANTIZERS for node in nodes) else rounding


def _computing(side: Version, target: str, seams: set[str]) -> Iterator[onnx.NodeProto]:
    nodes = (side.nodes[index] for index in side.cone(target, seams)[0])
    return (node for node in nodes if node.op_type != "Cast")


def _ran(runner: process.Process, pairs: Pairs, deadline: float) -> dict[str, float | str]:
    """Returns for each piece how far it is off, or why it was not run."""
    answers: dict[str, float | str] = {}

    def hear(event: Mapping[str, Any]) -> None:
        answers[event["target"]] = event["why"] or float(event["error"])

    left, why = max(deadline - time.monotonic(), 0.0), ""
    try:
        runner.call(pairs, left, hear)
    except process.Lost as lost:
        why = lost.why
    except process.WorkerBug as bug:
        why = bug.summary
    except TrtconvError as error:
        why = error.message
    return {**{name: why for name, *_ in pairs.pieces if why}, **answers}


class _Places:
    """Shapes and types of the tensors of two models, at sizes that cost little."""

    def __init__(self, file: OnnxModel, rewritten: OnnxModel) -> None:
        self.shapes: Shapes = {}
        self._models = (file, rewritten)
        self._dims: Mapping[str, tuple[int | None, ...]] = {}
        self._both = (file.main.types, rewritten.main.types)
        self._types = {**rewritten.main.types, **file.main.types}
        self._types.update({value.name: value.type.tensor_type.elem_type for value in file.proto.graph.input})
        for shapes in itertools.islice(assumed_shapes(file, batches=(1,)), _MOST_SIZES):
            profile = ShapeProfile({name: InputRange(shape, shape, shape) for name, shape in shapes.items()}, {})
            all_shapes = {**shapes_at(file, profile, "min"), **shapes}
            if sum(None not in shape for shape in all_shapes.values()) > sum(
                None not in e for e in self._dims.values()
            ):
                self.shapes, self._dims = shapes, all_shapes

    def is_float(self, name: str) -> bool:
        """Whether a tensor holds numbers in both models, and not codes of numbers."""
        return all(known_dtype_name(types.get(name, 0)) in _ROUNDING for types in self._both)

    def value(self, name: str) -> onnx.ValueInfoProto | None:
        """Describes a tensor; None where its type or a size is not known."""
        shape, element = self._dims.get(name), self._types.get(name)
        if shape is None or None in shape:
            shape = self._others.get(name)
        return (
            None
            if shape is None or None in shape or not element
            else helper.make_tensor_value_info(name, element, shape)
        )

    @functools.cached_property
    def _others(self) -> Mapping[str, tuple[int | None, ...]]:
        """Shapes that inference does not know of the file, of what passes wrote down, or computed of sizes."""
        file, rewritten = self._models
        return {**shapes_with(rewritten, self.shapes), **shapes_by_lattice(file, self.shapes)}
