"""`--precision auto`: the fastest mix of types whose outputs stay within a tolerance on the user's data.

Whatever can be is computed in float16 at first, what does not fit there in bfloat16 or float32. Where that is too far
from the model, parts of it go back to float32. A part is a layer with weights and what follows up to the next one. Each
is measured alone: the error of the network in which nothing else is in float16. Rounding errors add up in squares, so
those come first that make the most of the square for the time that float16 saves there; as few as suffice do, and of
these the costly ones are tried in float16 again. The time is measured on the GPU where there is one, else estimated.

The emulation rounds what layers return. Kernels may also add in float16, and then an engine is further off (up to 1.9
times on TensorRT 8.6). So where there is a GPU an engine of the mix is run, and where it is beyond the tolerance, less
is asked of the emulation by as much, and searched again.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import onnx

from trtconv.core.documents.mix import Mix, TypedPart
from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.graph.order import sort
from trtconv.precision import Types
from trtconv.precision.apply import BFLOAT_SINCE, casters, kinds_of
from trtconv.precision.casting import Casting
from trtconv.precision.measure import Ranges, survey
from trtconv.precision.pinned import refuse_idle, refuse_kept, refuse_unknown
from trtconv.precision.quantize.measure import Reference
from trtconv.precision.quantize.metrics import Goal
from trtconv.precision.regions import quantized_nodes

_MOST_PARTS = 24
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
_FLOPS_PER_BYTE = 100.0
"""Of a GPU with tensor cores: an A100 has 156 TFLOP/s of TF32 and 1.5 TB/s, an H100 495 and 3.35."""
_MOST_ENGINES = 4
"""How many mixes are run before everything stays in float32: the first is mostly right, or the second."""
_MARGIN = 0.9
"""Of the error that is aimed at where an engine was beyond the tolerance."""
_SAVED = 0.5
"""Share of the time that a type of 16 bits leaves of that of 32: half the bytes, twice the operations a second."""

NodeTypes = Mapping[str, str]


@frozen
class NodeTimes:
    """What nodes take on a GPU.

    Args:
        us: Node to its microseconds in float32 and in 16 bits; of nodes that were fused the first has the time of all.
        gpu: Its name; None where nothing was measured.
        why: Why nothing was.
    """

    us: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    gpu: str | None = None
    why: str = ""


@frozen
class EngineRun:
    """What an engine computed on a GPU.

    Args:
        outputs: For every sample output to values; None where none ran.
        why: Why none did.
    """

    outputs: Sequence[Feeds] | None = None
    why: str = ""


Timed = Callable[[str], NodeTimes]
Ran = Callable[[OnnxModel, str, NodeTypes], EngineRun]


class Mixer:
    """One search.

    Args:
        model: The model after the passes, its nodes named; it is not changed.
        samples: Inputs to measure on, all of which are kept in memory.
        fixed: The types of nodes that are given.
        by_flags: Whether flags of the builder say the types, as those of a TensorRT without bfloat16.
        tell: Hears how many networks were measured, of about how many.
        goal: What counts; None for the root mean square of the error.

    Raises:
        InputError: There is no such node, or none that can have the type that is given.
        RuntimeError: The model does not run on the samples.
    """

    def __init__(
        self,
        model: OnnxModel,
        samples: Sequence[Feeds],
        fixed: Types,
        *,
        by_flags: bool,
        tell: Callable[[int, int], None],
        goal: Goal | None = None,
    ) -> None:
        refuse_unknown(model, fixed.nodes)
        refuse_idle(model, fixed.required, by_flags=by_flags)
        self._model = model = model.copy()
        sort(model)
        self._base = "int8" if model.has(_QUANTIZERS) else "fp16"
        self._fixed = dict(fixed.nodes)
        self._required = fixed.required
        self._by_flags = by_flags
        self._tell = tell
        self._measured = 0
        self._samples = list(samples)
        self._reference = Reference(model, self._samples, goal)
        self._ranges = survey(model, self._samples)
        self._parts = parts_of(model, self._ranges)
        self._times = NodeTimes(why="all that fits in 16 bits is within the tolerance")
        self._alone: dict[TypedPart, float] = {}

    def search(self, tolerance: float, source: str, timed: Timed, ran: Ran) -> Mix:
        """Finds the mix.

        Args:
            tolerance: The largest error (rms) of an output that is allowed, or the worst value of the metric.
            source: Where the samples come from, in words.
            timed: Times the nodes in float32 and in a precision; called where parts are weighed against each other.
            ran: Builds a network, cast as far as it has to be, with a precision and types, and runs it on the samples.
        """
        allowed = self._reference.allowed(tolerance)
        base = self._fixed_types(allowed, source)
        first = self._error(base)
        aim = allowed
        for rest in reversed(range(_MOST_ENGINES)):
            proposal = self._search(base, first, aim, source, timed)
            run = self._run(proposal, ran)
            error = None if run.outputs is None else self._reference.error_of(run.outputs)
            mix = dataclasses.replace(proposal, tolerance=tolerance, engine_error=error, engine_missing=run.why)
            if error is None or error <= allowed or mix.precision == "as-is":
                break
            # From what the mix has, and not from what was aimed at, lest the same be found again. Nothing is within a
            # negative one.
            aim = (_MARGIN * proposal.error * allowed / error if rest > 1 else 0.0) or -1.0
        types = mix.node_precisions
        model = self._cast(types, mix.precision)[0] if kinds_of(mix.precision, types) else self._model
        return dataclasses.replace(mix, metric=self._reference.judged(model))

    def _run(self, mix: Mix, ran: Ran) -> EngineRun:
        model = self._model.copy()
        if not self._by_flags and kinds_of(mix.precision, mix.node_precisions):
            casters(self._model, mix.precision, mix.node_precisions, self._ranges)[0](model)
        return ran(model, mix.precision, mix.node_precisions)

    def _search(self, fixed: NodeTypes, first: float, tolerance: float, source: str, timed: Timed) -> Mix:
        """Finds the mix that is within a tolerance in emulation."""
        error = first
        floats: tuple[TypedPart, ...] = ()
        if error > tolerance:
            self._weigh(fixed, timed)
            floats = self._enough(fixed, self._alone, tolerance)
            error = self._error(self._with(fixed, floats))
        base, types = self._base, self._with(fixed, floats)
        if error > tolerance or (floats and floats == self._parts):
            # Only what is given stays, and may make an error of its own.
            base, types, floats = "as-is", self._fixed, self._parts
            error = self._error(types, base) if kinds_of(base, types) else 0.0
        return Mix(
            base,
            types,
            tolerance,
            error,
            first,
            None,
            "",
            1 - sum(part.saved for part in self._parts if part not in floats),
            self._times.gpu,
            self._times.why,
            len(self._samples),
            source,
            tuple(self._part_record(part, types, base, self._alone.get(part)) for part in self._parts),
        )

    def _weigh(self, fixed: NodeTypes, timed: Timed) -> None:
        """Measures the time and the error of the parts, once."""
        if self._alone:
            return
        self._times = timed(self._base)
        self._parts = parts_of(self._model, self._ranges, self._times)
        self._alone = {part: self._error(self._with(fixed, set(self._parts) - {part})) for part in self._parts}

    def _fixed_types(self, tolerance: float, source: str) -> NodeTypes:
        """Returns the types that are no matter of choice: those given, and those of nodes whose values do not fit."""
        cast = self._cast(self._fixed)[1]
        if not self._by_flags:
            refuse_kept(self._required, cast.refused, source, sampled=True)
        floats = {**dict.fromkeys(cast.hot, "fp32"), **self._fixed}
        # The graph has bfloat16 where it says the types.
        if self._by_flags or self._model.opset < BFLOAT_SINCE or not cast.hot:
            return floats
        wide = {**dict.fromkeys(cast.hot, "bf16"), **self._fixed}
        refused = self._cast(wide)[1].refused
        types = {**floats, **{name: kind for name, kind in wide.items() if name not in refused}}
        if types == floats:
            return floats
        return types if self._error(types) <= max(tolerance, self._error(floats)) else floats

    def _enough(self, fixed: NodeTypes, alone: Mapping[TypedPart, float], tolerance: float) -> tuple[TypedPart, ...]:
        """Returns parts that have to be in float32."""
        if tolerance < 0:
            return self._parts
        order = sorted(self._parts, key=lambda part: -(alone[part] ** 2) / max(part.saved, 1e-9))
        few, many = 0, len(order)
        while few < many:
            middle = (few + many) // 2
            if self._error(self._with(fixed, order[:middle])) <= tolerance:
                many = middle
            else:
                few = middle + 1
        floats = order[:few]
        for part in sorted(floats[:-1], key=lambda part: -part.saved)[: _MOST_PARTS // 2]:
            fewer = [other for other in floats if other is not part]
            if self._error(self._with(fixed, fewer)) <= tolerance:
                floats = fewer
        return self._parts if len(floats) == len(order) else tuple(part for part in self._parts if part in floats)

    def _with(self, fixed: NodeTypes, floats: Sequence[TypedPart] | set[TypedPart]) -> NodeTypes:
        return {**{name: "fp32" for part in floats for name in part.nodes}, **fixed}

    def _error(self, types: NodeTypes, base: str = "") -> float:
        """Returns the error of the network with these types; infinite where a value is not finite."""
        error = self._reference.error(self._cast(types, base)[0])
        # Models refer to themselves, and are large and few: left alone, they stay until memory runs out.
        gc.collect()
        self._measured += 1
        self._tell(self._measured, max(self._measured, len(self._parts) + 8))
        return error

    def _cast(self, types: NodeTypes, base: str = "") -> tuple[OnnxModel, Casting]:
        """Returns the network with these types in emulation, and what was done to it."""
        copy = self._model.copy()
        return copy, casters(self._model, base or self._base, types, self._ranges)[1](copy)

    def _part_record(self, part: TypedPart, types: NodeTypes, base: str, error: float | None) -> TypedPart:
        usual = "fp32" if base == "as-is" else "fp16"
        kinds = {types.get(name, usual) for name in part.nodes}
        return dataclasses.replace(part, error=error, type=kinds.pop() if len(kinds) == 1 else "mixed")


def parts_of(model: OnnxModel, ranges: Ranges, times: NodeTimes | None = None) -> tuple[TypedPart, ...]:
    """Divides the nodes that compute floats, quantised layers left out, into parts with their times.

    Args:
        model: The model, its nodes named and in order.
        ranges: With the number of elements of its tensors.
        times: Of its nodes; the time is estimated where they have none.
    """
    us = {} if times is None else times.us
    inner = {index for position, index in quantized_nodes(model) if position == 0}
    groups: list[tuple[list[str], float, float]] = []
    weighted = False
    for index, node in enumerate(model.proto.graph.node):
        if index in inner or node.op_type in _QUANTIZERS or ranges.elements.keys().isdisjoint(node.output):
            continue
        # What stands before the first layer with weights goes with it.
        if not groups or (weighted and node.op_type in _WEIGHTED):
            groups.append(([], 0.0, 0.0))
        names, full, half = groups[-1]
        here = _time(model, node, ranges)
        more, less = us.get(node.name, (0.0, 0.0)) if us else (here, _SAVED * here)
        groups[-1] = ([*names, node.name], full + more, half + less)
        weighted = weighted or node.op_type in _WEIGHTED
    while len(groups) > _MOST_PARTS:
        pairs = [one[1] + other[1] for one, other in itertools.pairwise(groups)]
        at = pairs.index(min(pairs))
        (names, *one), (others, *other) = groups[at : at + 2]
        groups[at : at + 2] = [([*names, *others], one[0] + other[0], one[1] + other[1])]
    total = sum(full for _, full, _ in groups) or 1.0
    # What is no faster in 16 bits goes back to float32 first.
    return tuple(TypedPart(tuple(n), full / total, max(0.0, full - half) / total) for n, full, half in groups)


def _time(model: OnnxModel, node: onnx.NodeProto, ranges: Ranges) -> float:
    """Estimates the time of a node in float32, in bytes that are moved meanwhile."""
    weights = [model.main.initializers[name] for name in node.input if name in model.main.initializers]
    sizes = [math.prod(weight.dims) for weight in weights]
    moved = sum(ranges.elements.get(name, 0) for name in (*node.input, *node.output)) + sum(sizes)
    operations = 0.0
    if node.op_type in _WEIGHTED and weights and sizes[0]:
        # Every element of the result takes a product with each weight of its channel; of a deconvolution's input too.
        through = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
        channels = weights[0].dims[-1 if node.op_type == "MatMul" else 0]
        operations = 2.0 * ranges.elements.get(through, 0) * sizes[0] / max(channels, 1)
    return float(max(4.0 * moved, operations / _FLOPS_PER_BYTE))
