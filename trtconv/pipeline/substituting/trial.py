"""Parts of a model beside the plugin that may stand for them, run at random inputs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from trtconv.core import budget, process
from trtconv.core.decode import decoded
from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.graph.model import OnnxModel
from trtconv.passes.spelling.writer import Unwritable, Writer
from trtconv.pipeline.substituting import attention, detections
from trtconv.pipeline.substituting.attention import Attention
from trtconv.pipeline.substituting.detections import DetectorEnd
from trtconv.pipeline.substituting.parts import GraphPart
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.evaluator import Evaluator, evaluator

Way = DetectorEnd | Attention
"""How a plugin computes a part."""
_START_SECONDS = 30.0
_NEAR = 1e-4


@frozen
class Substitute:
    """A plugin that may stand for a part of a model.

    Args:
        name: As `--substitute` takes it.
        plugin: The plugin.
        bound: In which respect the two are not the same.
        candidates: Yields lists of parts; of each list one may be what the plugin computes.
        way: The class of what says how the plugin computes a part.
        fit: Returns how the plugin computes a part.
        write: Writes the plugin in the place of a part.
    """

    name: str
    plugin: str
    bound: str
    candidates: Callable[[OnnxModel], Iterator[list[GraphPart]]]
    way: type[Way]
    fit: Callable[..., Way | None]
    write: Callable[[Writer, GraphPart, Any], None]


SUBSTITUTES: Mapping[str, Substitute] = {
    substitute.name: substitute
    for substitute in (
        Substitute(
            "efficient-nms",
            detections.PLUGIN,
            detections.BOUND,
            candidates=detections.candidates,
            way=DetectorEnd,
            fit=detections.fit,
            write=detections.write,
        ),
        Substitute(
            "deformable-attention",
            attention.PLUGIN,
            attention.BOUND,
            candidates=attention.candidates,
            way=Attention,
            fit=attention.fit,
            write=attention.write,
        ),
    )
}
Fit = tuple[int, Way]
"""Which part of a list it is, and how the plugin computes it."""


def fits_of(name: str, lists: Sequence[Sequence[GraphPart]]) -> list[Fit | None]:
    """Returns what of each list of parts a plugin computes; None where there is none, or that was not to be seen.

    The parts run in a process of their own, with limits: they are a stranger's.
    """
    seconds, megabytes = budget.allowance(0)
    try:
        answers = process.call(
            "trtconv.pipeline.substituting.trial:serve",
            (name, lists),
            _START_SECONDS + seconds * len(lists),
            megabytes=megabytes,
        )
    except (process.Lost, process.WorkerBug):
        return [None] * len(lists)
    kind = SUBSTITUTES[name].way
    return [None if answer is None else (answer[0], decoded(kind, answer[1])) for answer in answers]


def serve(argument: tuple[str, Sequence[Sequence[GraphPart]]], _: process.Tell) -> list[Fit | None]:
    """Answers `tried`, in a process of its own."""
    name, lists = argument
    return [_first(SUBSTITUTES[name], parts) for parts in lists]


def _first(substitute: Substitute, parts: Sequence[GraphPart]) -> Fit | None:
    for number, part in enumerate(parts):
        model = OnnxModel(onnx.ModelProto.FromString(part.model), Path("part.onnx"))
        run = evaluator(model)
        if run is None or isinstance(run, str):
            continue
        way = substitute.fit(model, run)
        if way is not None and _is_equal(substitute, model, run, part, way):
            return number, way
    return None


def _is_equal(substitute: Substitute, model: OnnxModel, run: Evaluator, part: GraphPart, way: Way) -> bool:
    """Whether the plugin's nodes, as they would be written, make what the part makes of other inputs."""
    network = replaced(substitute, model, part, way)
    other = None if network is None else evaluator(network)
    try:
        return callable(other) and substitute.fit(model, lambda feeds: _both(run, other, feeds), seed=1) == way
    except _Unequal:
        return False


def _both(one: Evaluator, two: Evaluator, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs two; returns what the first makes.

    Raises:
        _Unequal: They make something else.
    """
    expected = one(feeds)
    for values, others in zip(expected, two(feeds), strict=True):
        if values.shape != others.shape or values.dtype != others.dtype or relative_error(values, others) > _NEAR:
            raise _Unequal
    return expected


class _Unequal(BaseException):
    """The written nodes make something else; no part of what a fit may pass over."""


def replaced(substitute: Substitute, model: OnnxModel, part: GraphPart, way: Way) -> OnnxModel | None:
    """Returns a part's model with the plugin in its place; None where its opset has not what that takes."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    writer = Writer(model, model.main, len(model.main.columns) - 1)
    try:
        substitute.write(writer, part, way)
        writer.check()
    except Unwritable:
        return None
    del proto.graph.node[:]
    proto.graph.node.extend(writer.nodes)
    proto.graph.initializer.extend(writer.initializers)
    proto.opset_import.append(onnx.helper.make_opsetid("TRT", 1))
    return OnnxModel(proto, model.path)
