"""Multi-scale deformable attention, written with a GridSample for each level: MultiscaleDeformableAttnPlugin_TRT."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.writer import Writer
from trtconv.pipeline.substituting.parts import GraphPart, cut, downstream, upstream
from trtconv.plugins.registry import find
from trtconv.runtimes.compare import TOLERANCES, relative_error
from trtconv.runtimes.evaluator import Evaluator

PLUGIN = "MultiscaleDeformableAttnPlugin_TRT"
BOUND = "equal up to the order of float sums"
_MOST, _MOST_OUTPUTS, _MOST_CUTS, _MOST_ENDS, _MOST_SAMPLES = 12, 40, 256, 16, 64
"""A stranger's network may have thousands: nobody waits for what hardly any attention has."""


class HeadOrder(str, enum.Enum):
    """How a part holds (images, queries, heads, channels)."""

    HEADS = "heads"
    """As it is."""
    FLAT = "flat"
    """(images, queries, heads * channels)."""
    CHANNELS_FIRST = "channels first"
    """(images, heads * channels, queries)."""


@frozen
class Attention:
    """How the plugin computes what a part does.

    Args:
        levels: Height and width of each level.
        order: How the part's output is held.
        flat_weights: Whether levels and points are one axis of the weights.
    """

    levels: tuple[tuple[int, int], ...]
    order: HeadOrder
    flat_weights: bool


def candidates(model: OnnxModel) -> Iterator[list[GraphPart]]:
    """Yields, for each set of GridSamples whose results are added, the parts that may be an attention."""
    scope = model.main
    queue = list(scope.by_op.get("GridSample", ())[:_MOST_SAMPLES])
    while queue:
        value, place = scope.columns.inputs[queue[0]][:2]
        after = sorted(downstream(scope, queue.pop(0)))
        results = (name for index in after[1:] for name in scope.columns.outputs[index])
        # The last outputs of a chain come first: they hold the most of it.
        outputs = [name for name in results if len(scope.shape(name) or ()) in (3, 4)][:_MOST_OUTPUTS][::-1]
        ends = ((output, inputs) for output in outputs for inputs in _ends(scope, output, value, place))
        cuts = (cut(model, inputs, (output,)) for output, inputs in itertools.islice(ends, _MOST_CUTS))
        parts = list(itertools.islice((part for part in cuts if part is not None and _is_whole(model, part)), _MOST))
        if parts:
            yield parts
            queue = [index for index in queue if not any(index in part.nodes for part in parts)]


def _ends(scope: Scope, output: str, value: str, place: str) -> Iterator[tuple[str, str, str]]:
    """Yields what an output may be computed from: values, places and weights."""
    before = list(upstream(scope, output))
    for places in _of_rank(scope, place, 6):
        _, queries, heads, levels, points = (scope.shape(places) or ())[:5]
        tails = ((queries, heads, levels, points), (queries, heads, (levels or 0) * (points or 0)))
        weights = [name for name in before if (scope.shape(name) or ())[1:] in tails][:_MOST_ENDS]
        for values in _of_rank(scope, value, 4):
            if (scope.shape(values) or ())[2] == heads:
                yield from ((values, places, weight) for weight in weights)


def _of_rank(scope: Scope, start: str, rank: int) -> list[str]:
    return [name for name in upstream(scope, start) if len(scope.shape(name) or ()) == rank][:_MOST_ENDS]


def _is_whole(model: OnnxModel, part: GraphPart) -> bool:
    """Whether a part takes float32, and has a GridSample for each level."""
    scope = model.main
    samples = sum(scope.columns.ops[index] == "GridSample" for index in part.nodes)
    levels = (scope.shape(part.inputs[1]) or (0,) * 6)[3]
    return samples == levels and all(scope.dtype(name) == "float32" for name in part.inputs)


def fit(part: OnnxModel, run: Evaluator, seed: int = 0) -> Attention | None:
    """Returns how the plugin computes what a part does, at every random input; None where no way was found."""
    value, places, weights = part.inputs
    if any(isinstance(dim, str) for dim in (*value.dims[1:], *places.dims[2:])):
        return None
    levels = _levels(part)
    if levels is None or sum(h * w for h, w in levels) != value.dims[1] or len(levels) != places.dims[3]:
        return None
    reference = find("TRT", PLUGIN)
    assert reference is not None
    sizes, starts = _constants(levels)
    order: HeadOrder | None = None
    for number in range(4):
        random = np.random.default_rng([seed, number])
        feeds = {spec.name: _draw(spec.dims, number, random) for spec in part.inputs}
        feeds[places.name] = random.uniform(-0.2, 1.2, feeds[places.name].shape).astype(np.float32)
        try:
            (output,) = run(feeds)
        except Exception:  # The shapes that were drawn need not fit each other.
            return None
        heads = feeds[weights.name].reshape(feeds[places.name].shape[:-1])
        (expected,) = reference((feeds[value.name], sizes, starts, feeds[places.name], heads), {})
        order = next(
            (choice for choice in HeadOrder if order in (None, choice) and _is(choice, output, expected)), None
        )
        if order is None:
            return None
    assert order is not None
    return Attention(levels, order, len(weights.dims) == 4)


def _draw(shape: Sequence[Any], number: int, random: np.random.Generator) -> Array:
    # The images first, then the queries, are what may be dynamic.
    sizes = [
        dim if isinstance(dim, int) else (1 + number % 2 if at == 0 else 7 + number) for at, dim in enumerate(shape)
    ]
    return random.standard_normal(sizes).astype(np.float32)


def _levels(part: OnnxModel) -> tuple[tuple[int, int], ...] | None:
    """Returns height and width of each level, in the order of the GridSamples."""
    scope, levels = part.main, []
    for index in scope.by_op.get("GridSample", ()):
        shape = scope.shape(scope.columns.inputs[index][0])
        if shape is None or len(shape) != 4 or shape[2] is None or shape[3] is None:
            return None
        levels.append((shape[2], shape[3]))
    return tuple(levels)


def _constants(levels: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    areas = np.array([height * width for height, width in levels])
    return np.array(levels, np.int32), (np.cumsum(areas) - areas).astype(np.int32)


def _is(order: HeadOrder, output: Array, expected: Array) -> bool:
    flat = expected.reshape(*expected.shape[:2], -1)
    goal = {HeadOrder.HEADS: expected, HeadOrder.FLAT: flat, HeadOrder.CHANNELS_FIRST: flat.transpose(0, 2, 1)}[order]
    return output.shape == goal.shape and relative_error(goal, output) <= TOLERANCES["float32"].relative


def write(writer: Writer, part: GraphPart, attention: Attention) -> None:
    """Writes the plugin, and what makes the part's output of its own."""
    value, places, weights = part.inputs
    sizes, starts = _constants(attention.levels)
    if attention.flat_weights:
        heads, levels, points = writer.shape(places)[2:5]
        weights = writer.reshape(weights, [0, 0, heads, levels, points])
    is_whole = attention.order is HeadOrder.HEADS
    result = writer(PLUGIN, value, sizes, starts, places, weights, to=part.outputs[0] if is_whole else "")
    writer.nodes[-1].domain = "TRT"
    if attention.order is HeadOrder.FLAT:
        writer.reshape(result, [0, 0, -1], to=part.outputs[0])
    elif attention.order is HeadOrder.CHANNELS_FIRST:
        writer("Transpose", writer.reshape(result, [0, 0, -1]), perm=[0, 2, 1], to=part.outputs[0])
