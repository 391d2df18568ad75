"""What passes made of a model, held to the file piece by piece.

Wherever the two differ, the nodes between tensors that both compute are cut out of either and run on the same inputs
of their own, at small sizes. What a pass says that it did, or that it did anything, is not asked. A tensor of codes may
have come to mean something else under its name; whatever reads it is then compared together with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from trtconv.core import process
from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.errors import TrtconvError
from trtconv.core.frozen import frozen
from trtconv.graph.extract import shapes_at
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import known_dtype_name
from trtconv.graph.walk import all_nodes, reads
from trtconv.runtimes.assumed import Shapes, assumed_shapes
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.onnxruntime import first_line, numpy_type, session
from trtconv.runtimes.proof.feeds import sizes as feed_sizes
from trtconv.runtimes.proof.numbers import numbers_of
from trtconv.runtimes.proof.reference import has_shape, stated_shapes, stated_sizes
from trtconv.runtimes.proof.roles import integers_of, sizing_inputs

_MOST_SIZES = 3
"""That are tried until those of all tensors are known."""
_MOST_ROUNDS = 8
"""How often pieces are widened."""
_DRAWS = 400
"""How many values are tried of integers that decide sizes."""
_INTEGERS = 4
"""Below which integers are drawn that are no codes."""
_FLOAT = 2e-5
_ROUNDING = {"float64": 1e-12, "float32": _FLOAT, "float16": 1e-2, "bfloat16": 8e-2}
"""How far, over the largest magnitude, sums of a few thousand products in another order may be off."""
_STEPS = frozenset(
    (  # noqa: SIM905
        "Ceil Equal Floor Greater GreaterOrEqual Less LessOrEqual Mod Round Shrink Sign ThresholdedRelu Where"
    ).split()
)
"""Operators whose result jumps where what they read is exactly a certain number."""
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


@frozen
class Pairs:
    """What the process is to compare.

    Args:
        pieces: The name of the tensor that a piece computes, and the piece of either model, serialized.
        path: Where the model lies; external data is looked up beside it.
    """

    pieces: Sequence[tuple[str, bytes, bytes]]
    path: str


class Version:
    """One of the two models, and what its nodes compute."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.nodes: Sequence[onnx.NodeProto] = model.main.columns.nodes
        self.producers = model.main.producers
        self.inputs = {spec.name for spec in model.inputs}
        self.reads = [reads(node) for node in self.nodes]
        self._variable: dict[str, bool] = {}
        for index, node in enumerate(self.nodes):
            varies = any(name in self.inputs or self._variable.get(name, False) for name in self.reads[index])
            self._variable.update(dict.fromkeys(node.output, varies))

    def makes(self, name: str) -> bool:
        """Whether a node makes a tensor, of what the inputs hold."""
        return name in self.producers and self._variable[name]

    def key(self, name: str) -> tuple[bytes, ...]:
        """Returns what tells the node that makes a tensor, and those that make constants for it, from others."""
        parts, wanted, seen = [], [name], {name}
        while wanted:
            index = self.producers[wanted.pop()]
            copy = onnx.NodeProto()
            copy.CopyFrom(self.nodes[index])
            for field in ("name", "doc_string", "metadata_props"):
                copy.ClearField(field)
            parts.append(copy.SerializeToString(deterministic=True))
            more = {
                source for source in self.reads[index] if source in self.producers and not self._variable[source]
            } - seen
            seen |= more
            wanted += sorted(more)
        return tuple(parts)

    def cone(self, target: str, seams: set[str]) -> tuple[list[int], set[str]]:
        """Returns the nodes between a tensor and those before it, in order, and which of these they read."""
        wanted, indices, sources = [target], set[int](), set[str]()
        while wanted:
            name = wanted.pop()
            if name in self.inputs or (name in seams and name != target):
                sources.add(name)
            elif name in self.producers and self.producers[name] not in indices:
                indices.add(self.producers[name])
                wanted += self.reads[self.producers[name]]
        return sorted(indices), sources

    @functools.cached_property
    def _stated(self) -> dict[str, onnx.ValueInfoProto]:
        graph = self.model.proto.graph
        return {value.name: value for value in (*graph.value_info, *graph.output)}

    def reads_of(self, name: str) -> set[str]:
        """Returns what the node that makes a tensor reads."""
        return self.reads[self.producers[name]]

    def cut(self, target: str, seams: set[str], places: _Places) -> bytes | None:
        """Returns a piece as a model of its own, serialized; None where what it reads cannot be described."""
        nodes, sources = self.cone(target, seams)
        given = [places.value(name) for name in sorted(sources)]
        if None in given:
            return None
        part = onnx.ModelProto(ir_version=max(4, self.model.proto.ir_version))
        part.opset_import.extend(self.model.proto.opset_import)
        part.functions.extend(self.model.proto.functions)
        part.graph.name = "piece"
        part.graph.node.extend(self.nodes[index] for index in nodes)
        read = {name for index in nodes for name in self.reads[index]}
        held = self.model.main.initializers
        part.graph.initializer.extend(held[name] for name in sorted(read & held.keys()))
        part.graph.input.extend(given)
        part.graph.output.append(self._stated.get(target) or onnx.ValueInfoProto(name=target))
        data: bytes = part.SerializeToString()
        return data


def compared_pieces(
    file: OnnxModel, rewritten: OnnxModel, claim: Claim, runner: process.Process, seconds: float = math.inf
) -> Kept:
    """Compares the pieces in which two models differ.

    Args:
        file: The model as it was read.
        rewritten: What the passes made of it.
        claim: What they claim.
        runner: The process, of `proof.SERVE`.
        seconds: How long it may take.
    """
    before, after = Version(file), Version(rewritten)
    both = {name for name in before.producers if before.makes(name) and after.makes(name)}
    # Codes of another type mean something else.
    recoded = {name for name in both if file.main.types.get(name) != rewritten.main.types.get(name)}
    both -= recoded
    targets = {name for name in both if before.key(name) != after.key(name) or before.reads_of(name) & recoded}
    if not targets:
        return Kept()
    places, deadline = _Places(file, rewritten), time.monotonic() + seconds
    seams, shown, missing = set(both), 0, {}
    for _ in range(_MOST_ROUNDS):
        cut = {name: [side.cut(name, seams, places) for side in (before, after)] for name in sorted(targets)}
        pieces = [(name, one, other) for name, (one, other) in cut.items() if one is not None and other is not None]
        answers = _ran(runner, Pairs(pieces, str(file.path)), deadline)
        off = set()
        for name in sorted(targets, key=before.producers.__getitem__):
            answer = answers.get(name, "the sizes of what it reads are not known")
            if isinstance(answer, str):
                missing[name] = answer
            elif answer <= _limit((before, after), name, seams, claim):
                shown += 1
            elif name in rewritten.outputs or (claim.exact and places.is_float(name)):
                return Kept(shown, Changed(name, answer, places.shapes), missing)
            else:
                off.add(name)
        seams -= off
        targets = {name for name in both & seams if before.reads_of(name) & off or after.reads_of(name) & off}
        if not targets:
            break
    return Kept(shown, None, missing)


def _limit(sides: Sequence[Version], target: str, seams: set[str], claim: Claim) -> float:
    """Returns how far a piece may be off: by rounding, and by steps where it quantises."""
    nodes = [side.nodes[index] for side in sides for index in side.cone(target, seams)[0]]
    read = {name for node in nodes for name in node.input}
    held = [side.model.main.initializers for side in sides]
    codes = {tensors[name].data_type for tensors in held for name in read & tensors.keys()}
    rounding = max((_ROUNDING[name] for name in map(known_dtype_name, codes) if name in _ROUNDING), default=_FLOAT)
    if not claim.exact:
        return max(rounding, claim.tolerance)
    return max(rounding, claim.tolerance) if any(node.op_type in _QUANTIZERS for node in nodes) else rounding


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


def serve(pairs: Pairs, tell: process.Tell) -> None:
    """Is the other process of `kept`: runs both sides of each piece on ONNX Runtime."""
    for number, (target, *sides) in enumerate(pairs.pieces):
        models = [OnnxModel(onnx.load_model_from_string(data), Path(pairs.path)) for data in sides]
        try:
            error, why = str(_error(models, target, number)), ""
        except Exception as failure:  # ONNX Runtime raises its own types, one for each status.
            error, why = "nan", first_line(failure) or type(failure).__name__
        tell({"event": "piece", "target": target, "error": error, "why": why})


def _error(models: Sequence[OnnxModel], target: str, seed: int) -> float:
    sessions = [session(model, small=True) for model in models]
    for runner in sessions:
        if isinstance(runner, str):
            raise ValueError(runner)
    nodes = all_nodes(models[0].proto.graph.node)
    sizing = sizing_inputs(nodes, models[0].inputs)
    shape, stated = stated_shapes(models[0]).get(target), stated_sizes(models[0])
    for draw in range(1 + _DRAWS if sizing else 1):
        feeds = _feeds(models, np.random.default_rng([seed, draw]), sizing if draw else frozenset(), stated)
        with contextlib.suppress(*((Exception,) if sizing else ())):
            expected = _outcome(sessions[0], target, feeds)
            if sizing and not has_shape(expected, shape):
                continue
            got = _outcome(sessions[1], target, feeds)
            # Axes that the passes took from a shape further on are some of those that make that shape.
            if not sizing or np.shape(got) == np.shape(expected):
                met = _meeting(models, feeds, np.random.default_rng([seed, draw]))
                error = relative_error(expected, got)
                return (
                    max(error, relative_error(*(_outcome(runner, target, met) for runner in sessions)))
                    if met
                    else error
                )
    raise ValueError(f"no values of {min(sizing)!r} were found for which it has the shape that the model states")


def _outcome(runner: Any, target: str, feeds: Mapping[str, NDArray[Any]]) -> Any:
    return runner.run([target], {value.name: feeds[value.name] for value in runner.get_inputs()})[0]


def _feeds(
    models: Sequence[OnnxModel], random: np.random.Generator, sizing: Container[str], stated: Collection[int]
) -> dict[str, NDArray[Any]]:
    feeds: dict[str, NDArray[Any]] = {}
    below = {name: high for model in models for name, high in integers_of(model).items()}
    for spec in (entry for model in models for entry in model.inputs):
        dtype, shape = numpy_type(spec), tuple(int(size) for size in spec.dims)
        if spec.name in sizing:
            values = feed_sizes(shape, dtype, random, stated)
        elif dtype.kind in "iu":
            high = below.get(spec.name, 256 if dtype.itemsize == 1 else _INTEGERS)
            values = random.integers(0, high, shape).astype(dtype)
        else:
            values = (random.standard_normal(shape) if dtype.kind != "b" else random.random(shape) < 0.5).astype(dtype)
        feeds.setdefault(spec.name, values)
    return feeds


def _meeting(
    models: Sequence[OnnxModel], feeds: Mapping[str, NDArray[Any]], random: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Returns inputs that are exactly the numbers that either side holds; none where nothing jumps there."""
    held: list[float] = []
    steps = False
    for model in models:
        nodes = list(all_nodes(model.proto.graph.node))
        steps = steps or any(node.op_type in _STEPS for node in nodes)
        held += numbers_of(model, nodes)
    around = [sign * number for number in dict.fromkeys(held) if number and math.isfinite(number) for sign in (1, -1)]
    if not steps or not around:
        return {}

    def met(values: NDArray[Any]) -> NDArray[Any]:
        if values.dtype.kind != "f":
            return values
        with np.errstate(over="ignore"):
            exact = random.choice(around, values.shape).astype(values.dtype)
        return np.where((random.random(values.shape) < 0.5) & np.isfinite(exact), exact, values)

    return {name: met(values) for name, values in feeds.items()}


class _Places:
    """Shapes and types of the tensors of two models, at sizes that cost little."""

    def __init__(self, file: OnnxModel, rewritten: OnnxModel) -> None:
        self.shapes: Shapes = {}
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
        shape, element = self._dims.get(name), self._types.get(name, 0)
        return (
            None
            if shape is None or None in shape or not element
            else helper.make_tensor_value_info(name, element, shape)
        )
