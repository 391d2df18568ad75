"""A prepared model divided into parts: which nodes run together, and what crosses between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trtconv.core.dims import Range, ShapeProfile
from trtconv.core.documents.pipeline import PartKind, PartTensor, PlannedCut, PlannedPart
from trtconv.core.frozen import frozen
from trtconv.graph.between import nodes_between
from trtconv.graph.cut_shapes import CutShapes, Run
from trtconv.graph.divisible import Divisible
from trtconv.graph.model import OnnxModel
from trtconv.graph.partition import cut
from trtconv.pipeline.refusals import Reasons, left_nodes
from trtconv.runtimes.observed import NodeRuns
from trtconv.shapes.lattice import sizes_of
from trtconv.shapes.points import accepted_points
from trtconv.shapes.size_values import SizeValues
from trtconv.shapes.spread import Spread

_SEED = 7
_INSIDE = 6
"""Random sizes of each profile at which tensors that cross are looked at."""
_CODES = ("int8", "uint8")
_UNBOUNDED = "a tensor that it reads has a size that only values tell, and no bounds"
_UNKNOWN = "nobody knows what a tensor is that it reads: values decide it, or nothing here runs what makes it"


@frozen
class Slice:
    """One part of a model.

    Args:
        is_engine: Whether an engine is to run it.
        nodes: Positions of its nodes in the model's main graph; those that are copied into it are not among them.
        inputs: What it reads.
        outputs: What it makes.
        dims: The range of every dynamic dimension of its inputs, one mapping a profile; empty without an engine.
    """

    is_engine: bool
    nodes: tuple[int, ...]
    inputs: tuple[PartTensor, ...]
    outputs: tuple[PartTensor, ...]
    dims: tuple[Mapping[str, Range], ...] = ()


class Cutting:
    """A model, cut.

    Args:
        model: The model after the passes, its nodes in order.
        reasons: Which nodes no engine takes, and why; nodes behind sizes without bounds are added.
        profiles: Sizes of the model's inputs.
        bounds: Bounds of sizes that only values tell.
        run: Runs the model; see `trtconv.graph.cut_shapes.Run`.
        file: Returns the model as its file has it, whose nodes may stand for those of the passes; None: nothing does.

    Attributes:
        slices: The parts, in the order in which they run.
        unbounded: Names of the sizes for want of whose bounds nodes stay with ONNX Runtime.
        unused: Names of bounds that are no size of a tensor which crosses.
    """

    def __init__(
        self,
        model: OnnxModel,
        reasons: Reasons,
        profiles: Sequence[ShapeProfile],
        bounds: Mapping[str, Range],
        run: Run,
        file: Callable[[], Divisible] | None = None,
    ) -> None:
        self._divisible, self._file = Divisible(model, reasons), file
        inside = [accepted_points(sizes_of(model), profile, _SEED)[:_INSIDE] for profile in profiles]
        self._shapes = CutShapes(self._divisible, profiles, bounds, run, inside, _spread(model, profiles))
        self._lost: list[int] = []
        self.slices = self._slices(reasons)
        self.unbounded = tuple(dict.fromkeys(name for index in self._lost for name in self._shapes.unbounded(index)))
        self.unused = sorted(bounds.keys() - self._shapes.ranges[0].keys())

    def _slices(self, reasons: Reasons) -> tuple[Slice, ...]:
        divisible, shapes = self._divisible, self._shapes
        while True:
            parts = cut(divisible.links, reasons, divisible.is_worth_it)
            crossing = [name for part in parts for name in divisible.inputs(part.nodes)]
            shapes.observe(list(dict.fromkeys(crossing)))
            losses: dict[int, str] = {}
            for part in parts:
                names = [name for name in divisible.inputs(part.nodes) if not shapes.is_settled(name)]
                if part.is_engine and names:
                    why = _UNBOUNDED if all(shapes.has_rank(name) for name in names) else _UNKNOWN
                    losses |= dict.fromkeys(sorted(shapes.behind(names, part.nodes)), why)
            if not losses:
                return tuple(self._slice(part.is_engine, part.nodes) for part in parts)
            self._lost += losses
            reasons.update(losses)

    def _slice(self, is_engine: bool, nodes: tuple[int, ...]) -> Slice:
        inputs = tuple(self._shapes.tensor(name) for name in self._divisible.inputs(nodes))
        outputs = tuple(self._shapes.tensor(name) for name in self._divisible.outputs(nodes))
        names = {size for tensor in inputs for size in tensor.shape or () if isinstance(size, str)}
        dims = [{name: ranges[name] for name in sorted(names)} for ranges in self._shapes.ranges] if is_engine else []
        return Slice(is_engine, nodes, inputs, outputs, tuple(dims))

    def model_of(self, part: Slice) -> OnnxModel:
        """Returns a part as a model with its weights inside."""
        inputs = [self._shapes.value(tensor.name) for tensor in part.inputs]
        outputs = [self._shapes.result(tensor.name) for tensor in part.outputs]
        divisible, nodes = self._as_in_file(part) or (self._divisible, part.nodes)
        model = OnnxModel(divisible.part(nodes, inputs, outputs), divisible.model.path)
        model.embed()
        return model

    def _as_in_file(self, part: Slice) -> tuple[Divisible, Sequence[int]] | None:
        """Returns the nodes of the file that do what a part for ONNX Runtime does, which knows nothing of what passes
        write for TensorRT; None where no nodes of the file do."""
        if part.is_engine or self._file is None:
            return None
        file, model = self._file(), self._divisible.model
        sources, targets = ([tensor.name for tensor in tensors] for tensors in (part.inputs, part.outputs))
        links = self._divisible.links
        elsewhere = {name for index in links.keys() - set(part.nodes) for name in links[index].makes}
        nodes = nodes_between(file.model, sources, targets, elsewhere)
        kinds = file.model.whole.element_types, model.whole.element_types
        if nodes is None or any(kinds[0][name] != kinds[1][name] for name in (*sources, *targets)):
            return None
        # Codes mean what their quantiser says, which passes may have changed.
        if any(tensor.dtype in _CODES for tensor in (*part.inputs, *part.outputs)):
            return None
        return file, nodes

    def origin(self, part: Slice) -> Sequence[int]:
        """Returns where the nodes of a part's model are in the whole model."""
        return self._divisible.with_copies(part.nodes)


def _spread(model: OnnxModel, profiles: Sequence[ShapeProfile]) -> Spread:
    """Returns the sizes of a model's tensors, which are looked at once however often it is cut."""
    earlier: tuple[tuple[ShapeProfile, ...], Spread] | None = model.whole.derived.get("spread")
    if earlier is not None and earlier[0] == tuple(profiles):
        return earlier[1]
    tensors = sum(map(len, model.main.columns.outputs))
    with NodeRuns() as runs:
        spread = Spread(sizes_of(model), tensors, profiles, _SEED, SizeValues(model, runs))
    model.whole.derived["spread"] = tuple(profiles), spread
    return spread


def planned_cut(cutting: Cutting, model: OnnxModel, reasons: Reasons) -> PlannedCut:
    """Returns a cut as documents have it."""
    kinds = {True: PartKind.ENGINE, False: PartKind.ONNX}
    parts = (PlannedPart(kinds[p.is_engine], p.inputs, p.outputs, len(p.nodes)) for p in cutting.slices)
    return PlannedCut(tuple(parts), left_nodes(model, reasons), cutting.unbounded)
