"""Casts the float32 part of a graph to float16 or bfloat16, for runtimes that compute in the types of the graph.

ONNX's own operator schemas say which inputs and outputs of a node share a type, and which types they may have. So a
node is cast as a whole - activations, kernel and bias of a ConvTranspose alike - or not at all, what ONNX defines in
float32 alone (a Resize's scales, the boxes of NonMaxSuppression) stays so, and operators that are new tomorrow need no
table here.

Every tensor keeps its name, type and values; a cast node writes a new tensor of the lower precision, and a Cast makes
the old one of it only where something still reads it. So graph inputs and outputs, subgraphs that read a tensor from
outside, and nodes that were not cast find what they found before.

What is not cast:

- nodes that read or write a tensor in `hot`: the values do not fit;
- nodes that do not depend on an input's values: sizes, position tables and constants that are folded anyway;
- quantised layers, between DequantizeLinear and QuantizeLinear: TensorRT takes them for int8 as they are;
- nodes that are to be of another type, by their names;
- operators of `KEPT`, and those of other domains.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import TensorProto

from trtconv.core.frozen import frozen
from trtconv.graph.attributes import attribute
from trtconv.graph.chance import RANDOM
from trtconv.graph.model import OnnxModel
from trtconv.graph.order import sort
from trtconv.precision.lowered import LoweredGraph, Lowering
from trtconv.precision.regions import data_names, quantized_nodes
from trtconv.precision.schemas import FLOAT, Kind, Slots, slots_of

KEPT = frozenset(
    # Positions and sums in which each step counts.
    {"Range", "CumSum", "GridSample", "RoiAlign", "AffineGrid"}
    # Their result has a type by attribute.
    | RANDOM
    | {"EyeLike"}
    | {"ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"}
    # They hold graphs, whose nodes are cast one by one.
    | {"If", "Loop", "Scan", "SequenceMap"}
    | {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
    # Defined by other operators with constants in float32, which readers put in as they are.
    | {"Celu"}
    # Its first input must be the network's own.
    | {"TensorScatter"}
)
"""Operators that stay in float32 though ONNX allows others."""
_EXACT = frozenset({TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4})
"""Types whose values float16 and bfloat16 hold all."""
_STANDARD = ("", "ai.onnx")


class WhyKept(enum.Enum):
    """Why a node stays in float32, as reports say it."""

    OPERATOR = "operators that are kept"
    OTHER_TYPE = "of another type by name"
    IN_LOOP = "in a loop"
    INT8 = "computed in int8"
    INDEPENDENT = "independent of the inputs' values"
    INTEGERS = "converted integers"
    TOO_LARGE = "values that do not fit"
    FOREIGN = "no operators of ONNX"
    UNDEFINED = "defined in float32 alone"
    UNKNOWN = "types not known"


UNABLE = (WhyKept.FOREIGN, WhyKept.UNDEFINED, WhyKept.UNKNOWN)
"""Reasons for which a node cannot be cast whatever its values are."""


@frozen
class CastRefusal:
    """Why a node that was to be cast was not.

    Args:
        why: Of what kind.
        text: In words.
    """

    why: WhyKept
    text: str


@frozen
class Casting:
    """What was done to a model.

    Args:
        cast: Number of nodes that compute in the lower precision now.
        floats: Of the others that have float32 outputs, how many for each reason.
        hot: Names of those that were kept because of their values.
        lowered: Tensors of the main graph that cast nodes make, by the name that they had before.
        refused: Names of nodes that were to be cast and were not, and why.
    """

    cast: int
    floats: Mapping[WhyKept, int]
    hot: tuple[str, ...]
    lowered: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, CastRefusal] = dataclasses.field(default_factory=dict)


def cast(
    model: OnnxModel,
    kind: Kind,
    hot: frozenset[str] = frozenset(),
    float_ops: frozenset[str] = KEPT,
    selects: Callable[[str], bool] = lambda name: True,
    *,
    stored: bool = True,
    emulated: bool = False,
) -> Casting:
    """Casts what can be cast, in place.

    Args:
        model: The model, its functions inlined.
        kind: What to cast to.
        hot: Tensors of the main graph whose values do not fit.
        float_ops: Operators that stay in float32.
        selects: Whether a node of this name is to be cast.
        stored: Store weights in the lower precision; otherwise they stay as they are, with a Cast behind each.
        emulated: Compute in float32 and round what every node returns: the same numbers as far as they depend on the
            cast, on runtimes that have no kernels for the type.
    """
    sort(model)
    return _Caster(Lowering(model, kind, stored, emulated), hot, float_ops, selects).run()


def joined(castings: Sequence[Casting]) -> Casting:
    """Returns what several casts of a model, each to another type, did to it; what is kept is told by the first."""
    lowered = {name: lower for casting in castings for name, lower in casting.lowered.items()}
    refused = {name: why for casting in castings for name, why in casting.refused.items()}
    return dataclasses.replace(
        castings[0], cast=sum(casting.cast for casting in castings), lowered=lowered, refused=refused
    )


class _Caster:
    """One cast of one model.

    Casts that are needed behind a tensor are collected by the graph that the tensor is of, and put in at the end.
    """

    def __init__(
        self, lowering: Lowering, hot: frozenset[str], float_ops: frozenset[str], selects: Callable[[str], bool]
    ) -> None:
        self.lowering = lowering
        self.hot = hot
        self.float_ops = float_ops
        self.selects = selects
        model = lowering.model
        self.opset = model.opset
        self.data = data_names(model)
        self.quantized = quantized_nodes(model)
        self.cast = 0
        self.floats: dict[WhyKept, int] = {}
        self.refused: dict[str, CastRefusal] = {}
        self.hot_nodes: list[str] = []

    def run(self) -> Casting:
        """Does it all."""
        model = self.lowering.model
        graphs = [LoweredGraph(self.lowering, scope) for scope in model.scopes]
        self.lowering.graphs = dict(enumerate(graphs))
        for graph in graphs:
            self._visit(graph)
        # A graph inside another may ask for casts in it, so outer ones are written last.
        names = {name for graph in graphs for name in graph.reads()}
        for graph in reversed(graphs):
            graph.write(names)
        model.proto.ir_version = max(model.proto.ir_version, 4)
        model.touch()
        return Casting(self.cast, self.floats, tuple(self.hot_nodes), graphs[0].raised(), self.refused)

    def _visit(self, graph: LoweredGraph) -> None:
        for index, node in enumerate(graph.nodes):
            why = self._cast_node(graph, index, node)
            if why:
                self.floats[why] = self.floats.get(why, 0) + 1
                if self.selects(node.name):
                    note = f"no {node.op_type} is cast to {self.lowering.kind.name}"
                    self.refused[node.name] = CastRefusal(why, note if why is WhyKept.OPERATOR else why.value)
                if why is WhyKept.TOO_LARGE:
                    self.hot_nodes.append(node.name or next(iter(node.output), ""))

    def _cast_node(self, graph: LoweredGraph, index: int, node: onnx.NodeProto) -> WhyKept | None:
        """Casts a node if it can be. Returns why not, for a node with a float32 output."""
        slots = slots_of(node.op_type, self.opset, self.lowering.kind) if node.domain in _STANDARD else None
        outputs = [i for i, name in enumerate(node.output) if name and graph.element(name) == FLOAT]
        if slots is None:
            return WhyKept.FOREIGN if outputs else None
        if not outputs:
            self._lower_inputs(graph, node, slots)
            return None
        why = self._refusal(graph, index, node)
        cast = [i for i in outputs if slots.output(i)]
        if why or not cast:
            return why or WhyKept.UNDEFINED
        if node.op_type == "Cast":
            _set_to(node, self.lowering.kind.code)
        # Emulated, a Cast to the type is one to float32 that is rounded behind.
        if node.op_type == "Cast" and self.lowering.emulated:
            _set_to(node, FLOAT)
        for i, name in enumerate(node.input):
            if name and slots.input(i) and graph.element(name) == FLOAT:
                node.input[i] = graph.lower(name)
        for i in cast:
            graph.write_lower(index, node, i)
        self.cast += 1
        return None

    def _refusal(self, graph: LoweredGraph, index: int, node: onnx.NodeProto) -> WhyKept | None:
        names = [name for name in (*node.input, *node.output) if name]
        if node.op_type in self.float_ops or node.op_type == "Constant" or _accumulates(node):
            return WhyKept.OPERATOR
        if not self.selects(node.name):
            return WhyKept.OTHER_TYPE
        if graph.repeated:
            return WhyKept.IN_LOOP
        if (graph.scope.position, index) in self.quantized:
            return WhyKept.INT8
        if not any((graph.scope.position, name) in self.data for name in node.output):
            return WhyKept.INDEPENDENT
        if node.op_type == "Cast" and graph.element(node.input[0]) not in (*_EXACT, FLOAT, TensorProto.DOUBLE):
            return WhyKept.INTEGERS
        if graph.scope.parent is None and not self.hot.isdisjoint(names):
            return WhyKept.TOO_LARGE
        if any(graph.overflows(name) for name in node.input):
            return WhyKept.TOO_LARGE
        return None if all(graph.element(name) for name in names) else WhyKept.UNKNOWN

    def _lower_inputs(self, graph: LoweredGraph, node: onnx.NodeProto, slots: Slots) -> None:
        """Lets a node without float32 outputs (a comparison, a Shape) read the lower precision where that is there."""
        floats = [i for i, name in enumerate(node.input) if name and graph.element(name) == FLOAT]
        computed = [i for i in floats if not graph.is_constant(node.input[i])]
        ready = all(graph.is_lower(node.input[i]) and slots.input(i) for i in computed)
        fits = all(slots.input(i) and not graph.overflows(node.input[i]) for i in floats)
        if computed and ready and fits and node.op_type not in self.float_ops:
            for i in floats:
                node.input[i] = graph.lower(node.input[i])


def _accumulates(node: onnx.NodeProto) -> bool:
    """Whether a node sums up step by step: a scatter with a reduction, or a recurrent layer with lengths.

    Neither ONNX Runtime nor TensorRT-RTX 1.7 has these in float16.
    """
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return len(node.input) > 4 and bool(node.input[4])
    return node.op_type.startswith("Scatter") and bool(attribute(node, "reduction", b"none") != b"none")


def _set_to(node: onnx.NodeProto, code: int) -> None:
    for entry in node.attribute:
        if entry.name == "to":
            entry.i = code
