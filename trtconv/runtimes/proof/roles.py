"""What the inputs of nodes are read as: indices, sizes, boxes, masks."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import onnx

from trtconv.core.dims import InputSpec
from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import positions_of_readers
from trtconv.runtimes.proof.feeds import Role
from trtconv.runtimes.proof.lattice_shapes import shapes_by_lattice

_INDEXED = frozenset("Gather GatherElements GatherND Scatter ScatterElements ScatterND".split())  # noqa: SIM905
_LENGTHS = {**dict.fromkeys(("GRU", "LSTM", "RNN"), 4), "ReverseSequence": 1}
"""Operators to the input that says how many steps of a sequence there are."""
_USUAL_STEPS = 3
"""Of a sequence whose length is dynamic, so that lengths differ."""
_MASKING = frozenset("Cast Not And Or Where Equal Unsqueeze Expand".split())  # noqa: SIM905
"""What reads an integer input that says where, and not how much."""
_HANDED_ON = frozenset(
    (  # noqa: SIM905
        "Cast Reshape Unsqueeze Squeeze Flatten Transpose Identity Slice Concat Expand Tile Gather Split"
    ).split()
)
_SIZING: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (3,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}
"""Inputs whose values decide, with those of none other, what shape a result has, or along which axis it is made."""


def sizing_slots(op: str) -> tuple[int, ...]:
    """Returns which inputs of an operator decide the shape of its results by their values."""
    return (1,) if op.startswith("Reduce") else _SIZING.get(op, ())


def sizing_inputs(nodes: Iterable[onnx.NodeProto], inputs: Iterable[InputSpec]) -> frozenset[str]:
    """Returns the names of inputs whose values decide shapes, also where they are handed on first."""
    names: set[str] = set()
    # For each tensor of which that is so, the inputs that it is, handed on.
    origins = {spec.name: {spec.name} for spec in inputs}
    for node in nodes:
        slots = sizing_slots(node.op_type)
        names.update(*(origins.get(node.input[slot], ()) for slot in slots if slot < len(node.input)))
        if node.op_type in _HANDED_ON and node.input and node.input[0] in origins:
            for name in node.output:
                origins[name] = origins.get(name, set()) | origins[node.input[0]]
    return frozenset(names)


def integers_of(model: OnnxModel, runs: Sequence[Mapping[str, tuple[int | None, ...]]] = ({},)) -> dict[str, range]:
    """Returns for each integer input of a model the values that make sense: as `indices_of`, and 0 and 1 for a mask.

    Args:
        model: The model.
        runs: Shapes of its inputs in each run that the values are for.
    """
    spans, nodes, readers = indices_of(model, runs), model.main.columns.nodes, model.main.readers
    for spec in _integer_inputs(model):
        if spec.name not in spans and any(nodes[at].op_type in _MASKING for at in readers.get(spec.name, ())):
            spans[spec.name] = range(2)
    return spans


def indices_of(model: OnnxModel, runs: Sequence[Mapping[str, tuple[int | None, ...]]] = ({},)) -> dict[str, range]:
    """Returns for each input of a model that is an index, or a length, which there are.

    These are rows of the table that it looks things up in, and for a length one step at least: of none nobody says what
    comes out. Others are left out.

    Args:
        model: The model.
        runs: Shapes of its inputs in each run that the values are for.
    """
    spans = {}

    @functools.cache
    def computed(number: int) -> Mapping[str, tuple[int | None, ...]]:
        return _computed_shapes(model, runs[number])

    for spec in _integer_inputs(model):
        role, _ = role_of(model, spec.name, {})
        if role not in (Role.INDEX, Role.LENGTH):
            continue
        bounds = []
        for number, shapes in enumerate(runs):
            # Also of a table whose sizes are computed.
            _, bound = role_of(model, spec.name, shapes)
            bounds.append(bound or role_of(model, spec.name, {**shapes, **computed(number)})[1])
        bound = min(filter(None, bounds), default=0)
        if role is Role.LENGTH:
            spans[spec.name] = range(1, 1 + (bound or _USUAL_STEPS))
        elif bound:
            spans[spec.name] = range(bound)
    return spans


def _integer_inputs(model: OnnxModel) -> Iterator[InputSpec]:
    return (spec for spec in model.inputs if spec.dtype.startswith(("int", "uint")))


def _computed_shapes(
    model: OnnxModel, shapes: Mapping[str, tuple[int | None, ...]]
) -> Mapping[str, tuple[int | None, ...]]:
    """Returns the shapes that follow from those of all inputs; none where a size is not known."""
    dims = {spec.name: shapes.get(spec.name, spec.dims) for spec in model.inputs}
    inputs = {key: tuple(n for n in shape if isinstance(n, int)) for key, shape in dims.items()}
    if any(len(inputs[key]) != len(shape) for key, shape in dims.items()):
        return {}
    return shapes_by_lattice(model, inputs)


def role_of(
    model: OnnxModel,
    name: str,
    shapes: Mapping[str, tuple[int | None, ...]],
    among: Sequence[onnx.NodeProto] | None = None,
) -> tuple[Role, int]:
    """Returns what a tensor is read as, also where it is handed on first, and how many rows it chooses from.

    Args:
        model: The model.
        name: The tensor, of its main graph.
        shapes: Shapes of tensors of which it leaves sizes open.
        among: The nodes that count; None: all of them.
    """
    nodes = model.main.columns.nodes if among is None else among
    readers = model.main.readers if among is None else positions_of_readers(node.input for node in among)
    names, bounds, ahead, index = {name}, [], list(readers.get(name, ())), -1
    while ahead:
        # A node that takes several of them is ahead as often.
        before, index = index, heapq.heappop(ahead)
        if index == before:
            continue
        node = nodes[index]
        at = [slot for slot, tensor in enumerate(node.input) if tensor in names]
        role = _role_at(node, at)
        if role is not None:
            return role, _steps(model, node, shapes) if role is Role.LENGTH else 0
        if (node.op_type in _INDEXED and 1 in at) or (node.op_type == "RoiAlign" and 2 in at):
            bounds.append(_rows(model, node, shapes))
        elif node.op_type in _HANDED_ON and 0 in at:
            for output in set(node.output) - names:
                names.add(output)
                for reader in readers.get(output, ()):
                    if reader > index:
                        heapq.heappush(ahead, reader)
    rows = [bound for bound in bounds if bound]
    return (Role.INDEX, min(rows, default=0)) if bounds else (Role.NUMBER, 0)


def _role_at(node: onnx.NodeProto, slots: Collection[int]) -> Role | None:
    """Returns what a node reads inputs as; None where other nodes say so, or an index is not told from a number."""
    if node.op_type in ("Loop", "NonMaxSuppression") and 0 in slots:
        return Role.TRIPS if node.op_type == "Loop" else Role.BOXES
    if any(slot in sizing_slots(node.op_type) for slot in slots):
        return Role.SIZES
    return Role.LENGTH if _LENGTHS.get(node.op_type) in slots else None


def _steps(model: OnnxModel, node: onnx.NodeProto, shapes: Mapping[str, tuple[int | None, ...]]) -> int:
    return _size(_shape(model, node.input[0], shapes), attribute(node, "time_axis", attribute(node, "layout", 0)))


def _rows(model: OnnxModel, node: onnx.NodeProto, shapes: Mapping[str, tuple[int | None, ...]]) -> int:
    shape = _shape(model, node.input[0], shapes)
    if not shape:
        return 0
    return min((n or 0) for n in shape) if node.op_type.endswith("ND") else _size(shape, attribute(node, "axis", 0))


def _size(shape: Sequence[int | None] | None, axis: int) -> int:
    """Returns the size of an axis; 0 where it is not known, or where there is no such axis."""
    return (shape[axis] if shape and -len(shape) <= axis < len(shape) else None) or 0


def _shape(model: OnnxModel, name: str, shapes: Mapping[str, tuple[int | None, ...]]) -> tuple[int | None, ...] | None:
    """Returns the shape that the model states of a tensor; if it leaves sizes open, the one that is given."""
    own = model.main.shape(name)
    return own if own and None not in own else shapes.get(name) or own
