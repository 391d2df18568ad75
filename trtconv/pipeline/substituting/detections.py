"""The end of a detector: boxes and scores to those that are left of them, which EfficientNMS_TRT computes."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.graph.model import OnnxModel
from trtconv.passes.spelling.writer import Writer
from trtconv.pipeline.substituting.columns import Detections, Form, Layout, layout_of
from trtconv.pipeline.substituting.parts import GraphPart, cut, downstream, upstream
from trtconv.plugins.registry import find
from trtconv.runtimes.evaluator import Evaluator

PLUGIN = "EfficientNMS_TRT"
BOUND = (
    "equal where no two scores are, no score or overlap is the very limit, and at most 5000 scores of an image pass "
    "the threshold; where the model keeps classes apart by moving boxes, overlaps are no longer rounded by that"
)
_MOST_PAIRS, _MOST_CUTS, _MOST_SUPPRESSIONS = 8, 128, 16
"""A stranger's network may have thousands: nobody waits for what hardly any detector has."""
_MOST_KEPT = 4096
_MOST_SCORES = 1 << 21
_FROM_VALUES = frozenset(("NonZero", "Compress", "Unique", "NonMaxSuppression"))
"""Operators whose results are as large as the values say: a plugin is given what is in front of them."""
_COMPARES = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_SIZES = ("TopK", "Slice", "Pad", "Expand", "ConstantOfShape", "Min", "Gather")


class Scoring(str, enum.Enum):
    """Which scores of a box count."""

    ALL = "all"
    """Those of every class."""
    BEST = "best"
    """That of its best class alone."""
    ACROSS = "across"
    """That of its best class alone, and boxes of different classes suppress one another."""


@frozen
class DetectorEnd:
    """How the plugin computes what a part does.

    Args:
        coding: The plugin's `box_coding`: 0 for two corners, 1 for the middle and the size.
        scoring: Which scores count.
        turned: Whether the classes come before the boxes in the scores.
        iou: The overlap from which on a box is suppressed.
        threshold: The least score.
        most: How many are kept of an image.
        layouts: What each output of the part consists of.
    """

    coding: int
    scoring: Scoring
    turned: bool
    iou: float
    threshold: float
    most: int
    layouts: tuple[Layout, ...]

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of the plugin's node."""
        across = {"class_agnostic": 1} if self.scoring is Scoring.ACROSS else {}
        limits = {"score_threshold": self.threshold, "iou_threshold": self.iou, "max_output_boxes": self.most}
        return {**limits, "background_class": -1, "score_activation": 0, "box_coding": self.coding, **across}


def candidates(model: OnnxModel) -> Iterator[list[GraphPart]]:
    """Yields for each NonMaxSuppression the parts that may be a detector's end, the smallest first."""
    scope = model.main
    for index in scope.by_op.get("NonMaxSuppression", ())[:_MOST_SUPPRESSIONS]:
        after = downstream(scope, index)
        results = {name for node in after for name in scope.columns.outputs[node]}
        outputs = [name for name in model.outputs if name in results]
        boxes, scores = scope.columns.inputs[index][:2]
        firsts = [name for name in _measured(model, boxes) if (scope.shape(name) or (0,))[-1] == 4]
        seconds = [name for name in _measured(model, scores) if len(scope.shape(name) or ()) <= 3]
        parts = []
        # The nearest together come first.
        order = sorted(itertools.product(range(len(firsts)), range(len(seconds))), key=sum)
        for one, two in order[:_MOST_CUTS]:
            part = cut(model, (firsts[one], seconds[two]), outputs) if firsts[one] != seconds[two] else None
            if part is not None and index in part.nodes:
                parts.append(part)
            if len(parts) == _MOST_PAIRS:
                break
        if parts:
            yield parts


def _measured(model: OnnxModel, start: str) -> list[str]:
    """Returns what a tensor is computed from that is float, and as large as the model says, whatever its values are."""
    scope, tensors = model.main, []
    for name in itertools.islice(upstream(scope, start), _MOST_CUTS):
        shape = scope.shape(name)
        if scope.dtype(name) == "float32" and shape and len(shape) <= 3 and scope.constant(name) is None:
            makers = (scope.producer(tensor) for tensor in upstream(scope, name))
            if not any(node is not None and node.op_type in _FROM_VALUES for node in makers):
                tensors.append(name)
        if len(tensors) == 4 * _MOST_PAIRS:
            break
    return tensors


def fit(part: OnnxModel, run: Evaluator, seed: int = 0) -> DetectorEnd | None:
    """Returns how the plugin computes what a part does, at every random input; None where no way was found."""
    boxes, scores = (spec.dims for spec in part.inputs)
    sizes = _sizes_of(boxes, scores)
    if sizes is None:
        return None
    turned, classes = sizes
    iou, thresholds, counts = _limits(part)
    largest = _largest_number(part, boxes[-2])
    for coding, threshold in itertools.product((0, 1), thresholds):
        runs = []
        for number in range(_DRAWS):
            feeds = draw(part, turned, classes, coding, threshold, np.random.default_rng([seed, number]), number)
            if feeds is None:
                return None
            try:
                runs.append((feeds, run(feeds)))
            except Exception:  # Of some sizes the part itself makes nothing, as a TopK of more than there are.
                continue
        if len(runs) < _LEAST:
            continue
        every = counts | {size for _, outputs in runs for output in outputs for size in output.shape[:2]}
        for most, scoring in itertools.product(sorted(n for n in every if 1 <= n <= min(largest, _MOST_KEPT)), Scoring):
            ending = DetectorEnd(coding, scoring, turned, iou, threshold, most, ())
            layouts = _layouts(ending, runs)
            if layouts is not None:
                return DetectorEnd(coding, scoring, turned, iou, threshold, most, layouts)
    return None


def _largest_number(part: OnnxModel, boxes: int | str) -> int:
    """Returns of how many boxes the suppression keeps as many as there are of one class, which the plugin limits in all
    alone; 0 where a TopK chooses among them before."""
    scope = part.main
    suppression = scope.columns.nodes[scope.by_op["NonMaxSuppression"][0]]
    makers = (scope.producer(name) for end in suppression.input[:2] for name in upstream(scope, end))
    if any(node is not None and node.op_type == "TopK" for node in makers):
        return 0
    limit = scope.values(suppression.input[2]) if len(suppression.input) > 2 and suppression.input[2] else None
    if limit is None or limit.size != 1:
        return 0
    number = int(limit.reshape(-1)[0])
    return _MOST_KEPT if isinstance(boxes, int) and number >= boxes else number


def _layouts(
    ending: DetectorEnd, runs: Sequence[tuple[Mapping[str, Array], Sequence[Array]]]
) -> tuple[Layout, ...] | None:
    reference = find("TRT", PLUGIN)
    assert reference is not None
    detections = []
    for feeds, outputs in runs:
        boxes, scores = feeds.values()
        inputs = _plugin_inputs(boxes, scores, ending)
        detections.append(Detections.of(reference(inputs, ending.attributes)))
        # What is no layout of one run is none of all.
        if any(layout_of([output], detections[-1:]) is None for output in outputs if detections[-1].counts.any()):
            return None
    # How many are kept is seen where there were more, unless there never are.
    if ending.most < runs[0][0][next(iter(runs[0][0]))].shape[-2] and all(
        (f.counts < ending.most).all() for f in detections
    ):
        return None
    every = [layout_of([outputs[at] for _, outputs in runs], detections) for at in range(len(runs[0][1]))]
    layouts = tuple(layout for layout in every if layout is not None)
    return layouts if len(layouts) == len(every) else None


def _plugin_inputs(boxes: Array, scores: Array, ending: DetectorEnd) -> tuple[Array, Array]:
    """Returns what `write` gives the plugin, of arrays."""
    wide = boxes.reshape(-1, *boxes.shape[-2:])
    of = scores if scores.ndim == 3 else scores.reshape(1, *scores.shape, *((1,) if scores.ndim == 1 else ()))
    of = of.transpose(0, 2, 1) if ending.turned else of
    if ending.scoring is not Scoring.ALL:
        of = np.where(np.arange(of.shape[2]) == of.argmax(2)[..., None], of, np.float32(0))
    return wide, of


def _sizes_of(boxes: Sequence[Any], scores: Sequence[Any]) -> tuple[bool, int] | None:
    """Returns whether the scores have the classes first, and how many classes; None where they are of other boxes."""
    count = boxes[-2]
    if len(boxes) == 2 and len(scores) == 1:
        return (False, 1) if _may_be(scores[0], count) else None
    if len(boxes) != len(scores):
        return None
    if _may_be(scores[-2], count) and isinstance(scores[-1], int):
        return False, scores[-1]
    return (True, scores[-2]) if _may_be(scores[-1], count) and isinstance(scores[-2], int) else None


def _may_be(size: int | str, count: int | str) -> bool:
    """Whether two sizes may be the same: of two dynamic ones the runs tell."""
    return size == count or (isinstance(size, str) and isinstance(count, str))


def _limits(part: OnnxModel) -> tuple[float, list[float], set[int]]:
    """Returns the overlap, the least scores and the numbers of kept boxes that a part may mean."""
    scope = part.main
    suppression = scope.columns.nodes[scope.by_op["NonMaxSuppression"][0]]
    settings = [scope.values(name) if name else None for name in [*suppression.input, "", "", ""][2:5]]
    _, iou, score = (None if array is None or array.size != 1 else float(array.reshape(-1)[0]) for array in settings)
    least = {score} if score else set()
    counts: set[int] = set()
    if settings[0] is not None and settings[0].size == 1:
        counts.add(int(settings[0].reshape(-1)[0]))
    for node in scope.columns.nodes:
        for values in (scope.values(name) for name in node.input if name):
            if values is None or values.size > 8:
                continue
            if node.op_type in _COMPARES and values.dtype.kind == "f":
                least |= {float(value) for value in values.reshape(-1) if 0 < value < 1}
            if values.dtype.kind == "i" and node.op_type in _SIZES:
                counts |= {int(value) for value in values.reshape(-1)}
    return iou or 0.0, sorted(least, reverse=True) or [0.0], counts


_DRAWS = 8
_LEAST = 4
_HOT = (24, 3, 400, 150, 60, 1000, 0, 40)
"""How many scores pass the threshold."""


def draw(
    part: OnnxModel, turned: bool, classes: int, coding: int, threshold: float, random: np.random.Generator, number: int
) -> dict[str, Array] | None:
    """Returns random boxes, in clusters, and scores, none twice; None where there are too many.

    Coordinates are multiples of an eighth, so that what moves boxes far away rounds nothing.
    """
    first, second = part.inputs
    batch, size = (first.dims[0] if len(first.dims) == 3 else 1), first.dims[-2]
    images = batch if isinstance(batch, int) else 1 + number % 2
    count = size if isinstance(size, int) else 180 + number
    total = images * count * classes
    if total > _MOST_SCORES or (not threshold and count * classes > 5000):
        return None
    hot = np.zeros((images, count, classes), bool)
    for image in range(images):
        picks = random.permutation(count)[: _HOT[number]]
        hot[image, picks, random.integers(0, classes, len(picks)) if number % 4 else 0] = True
        again = picks[: len(picks) // 3]
        hot[image, again, random.integers(0, classes, len(again))] = True
    places = (random.permutation(total).reshape(hot.shape) + 0.5) / total
    scores = np.where(hot, threshold + (1 - threshold) * (0.05 + 0.9 * places), threshold * 0.9 * places)
    scores = (scores if threshold else places).astype(np.float32)
    clusters = random.uniform(60, 560, (max(2, _HOT[number] // 4), 2))
    middles = clusters[random.integers(0, len(clusters), (images, count))] + random.normal(0, 12, (images, count, 2))
    extents = random.uniform(30, 110, (images, count, 2))
    sides = (middles, extents) if coding else (middles - extents / 2, middles + extents / 2)
    boxes = np.clip(np.rint(np.concatenate(sides, -1) * 8) / 8, 0, 640).astype(np.float32)
    scores = np.ascontiguousarray(scores.transpose(0, 2, 1) if turned else scores)
    shape = scores.shape[3 - len(second.dims) :] if len(second.dims) > 1 else (-1,)
    return {first.name: boxes.reshape(boxes.shape[-len(first.dims) :]), second.name: scores.reshape(shape)}


def write(writer: Writer, part: GraphPart, ending: DetectorEnd) -> None:
    """Writes the plugin, and what makes the part's outputs of what it finds."""
    boxes, scores = part.inputs
    rank = len(writer.shape(boxes))
    score_rank = len(writer.shape(scores))
    wide = boxes if rank == 3 else writer.unsqueeze(boxes, [0])
    of = scores if score_rank == 3 else writer.unsqueeze(scores, [0] if score_rank == 2 else [0, 2])
    of = writer("Transpose", of, perm=[0, 2, 1]) if ending.turned else of
    if ending.scoring is not Scoring.ALL:
        classes = writer.shape(scores)[-2 if ending.turned else -1] if score_rank > 1 else 1
        best = writer("ArgMax", of, axis=2, keepdims=1)
        is_best = writer("Equal", best, np.arange(classes or 1, dtype=np.int64).reshape(1, 1, -1))
        of = writer("Where", is_best, of, np.float32(0))
    outputs = writer(PLUGIN, wide, of, outputs=4, **ending.attributes)
    writer.nodes[-1].domain = "TRT"
    for name, layout in zip(part.outputs, ending.layouts, strict=True):
        _Output(writer, outputs, ending.most, layout).write(name)


class _Output:
    """One output of the part.

    Args:
        writer: Writes it.
        outputs: The plugin's outputs.
        most: How many are kept of an image.
        layout: What it consists of.
    """

    def __init__(self, writer: Writer, outputs: Sequence[str], most: int, layout: Layout) -> None:
        self._writer = writer
        self._count, self._boxes, self._scores, self._classes = outputs
        self._most = most
        self._layout = layout

    def write(self, name: str) -> None:
        """Writes it under its name."""
        writer, layout = self._writer, self._layout
        if layout.form is Form.COUNT:
            writer.cast(writer.reshape(self._count, layout.shape or ()), layout.dtype, to=name)
            return
        columns = [self._column(column) for column in layout.columns]
        table = writer("Concat", *columns, axis=2) if len(columns) > 1 else columns[0]
        if any(layout.pads) and layout.form is not Form.ROWS:
            pads = np.array(layout.pads, np.float32).reshape(1, 1, -1)
            table = writer("Where", writer.unsqueeze(self._present(), [2]), table, pads)
        if layout.form is Form.ROWS:
            places = writer("Transpose", writer("NonZero", self._present()), perm=[1, 0])
            table = writer("GatherND", table, places)
        axes = {Form.PADDED: [2], Form.SINGLE: [0, 2], Form.ROWS: [1]}[layout.form]
        axes = axes if layout.flat else axes[:-1]
        table = writer.squeeze(table, axes) if axes else table
        writer.cast(table, layout.dtype, to=name)

    def _present(self) -> str:
        places = np.arange(self._most, dtype=np.int32).reshape(1, -1)
        return self._writer("Less", self._writer.constant(places), self._count)

    def _column(self, number: int) -> str:
        """Returns (images, most, 1), as float."""
        writer = self._writer
        if number < 4:
            return writer.slice(self._boxes, [number], [number + 1], [2])
        if number == 4:
            return writer.unsqueeze(self._scores, [2])
        classes = writer.unsqueeze(writer.cast(self._classes, np.float32), [2])
        if number == 5:
            return classes
        # The image of each: how many images there are up to it, less one.
        ones = writer("Add", writer("Mul", classes, np.float32(0)), np.float32(1))
        return writer("Sub", writer("CumSum", ones, np.array(0, np.int64)), np.float32(1))
