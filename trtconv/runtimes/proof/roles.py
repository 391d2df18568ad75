"""What the inputs of nodes are read as: indices, sizes, boxes, masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from trtconv.core.dims import InputSpec
from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
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
    nodes, spans = model.main.columns.nodes, indices_of(model, runs)
    for spec in _integer_inputs(model):
        if spec.name not in spans and any(spec.name in node.input and node.op_type in _MASKING for node in nodes):
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
    nodes, spans = model.main.columns.nodes, {}
    for spec in _integer_inputs(model):
        role, _ = role_of(model, nodes, spec.name, {})
        if role not in (Role.INDEX, Role.LENGTH):
            continue
        bound = min(filter(None, (_bound(model, nodes, spec.name, shapes) for shapes in runs)), default=0)
        if role is Role.LENGTH:
            spans[spec.name] = range(1, 1 + (bound or _USUAL_STEPS))
        elif bound:
            spans[spec.name] = range(bound)
    return spans


def _integer_inputs(model: OnnxModel) -> Iterator[InputSpec]:
    return (spec for spec in model.inputs if spec.dtype.startswith(("int", "uint")))


def _bound(
    model: OnnxModel, nodes: list[onnx.NodeProto], name: str, shapes: Mapping[str, tuple[int | None, ...]]
) -> int:
    """Returns how many rows a tensor chooses from, or steps it counts; also of a table whose sizes are computed."""
    role, bound = role_of(model, nodes, name, shapes)
    if bound or role not in (Role.INDEX, Role.LENGTH):
        return bound
    dims = {spec.name: shapes.get(spec.name, spec.dims) for spec in model.inputs}
    inputs = {key: tuple(n for n in shape if isinstance(n, int)) for key, shape in dims.items()}
    if any(len(inputs[key]) != len(shape) for key, shape in dims.items()):
        return 0
    return role_of(model, nodes, name, {**shapes, **shapes_by_lattice(model, inputs)})[1]


def role_of(
    model: OnnxModel, nodes: list[onnx.NodeProto], name: str, shapes: Mapping[str, tuple[int | None, ...]]
) -> tuple[Role, int]:
    """Returns what a tensor is read as, also where it is handed on first, and how many rows it chooses from."""
    names, bounds = {name}, []
    for node in nodes:
        at = [slot for slot, tensor in enumerate(node.input) if tensor in names]
        if not at:
            continue
        if node.op_type == "Loop" and 0 in at:
            return Role.TRIPS, 0
        if node.op_type == "NonMaxSuppression" and 0 in at:
            return Role.BOXES, 0
        if any(slot in sizing_slots(node.op_type) for slot in at):
            return Role.SIZES, 0
        if _LENGTHS.get(node.op_type) in at:
            return Role.LENGTH, _steps(model, node, shapes)
        if (node.op_type in _INDEXED and 1 in at) or (node.op_type == "RoiAlign" and 2 in at):
            bounds.append(_rows(model, node, shapes))
        elif node.op_type in _HANDED_ON and 0 in at:
            names.update(node.output)
    rows = [bound for bound in bounds if bound]
    return (Role.INDEX, min(rows, default=0)) if bounds else (Role.NUMBER, 0)


def _steps(model: OnnxModel, node: onnx.NodeProto, shapes: Mapping[str, tuple[int | None, ...]]) -> int:
    axis = attribute(node, "time_axis", attribute(node, "layout", 0))
    shape = _shape(model, node.input[0], shapes)
    return (shape[axis] if shape and len(shape) > axis else None) or 0


def _rows(model: OnnxModel, node: onnx.NodeProto, shapes: Mapping[str, tuple[int | None, ...]]) -> int:
    shape = _shape(model, node.input[0], shapes)
    if not shape:
        return 0
    size = min((n or 0) for n in shape) if node.op_type.endswith("ND") else shape[attribute(node, "axis", 0)]
    return size or 0


def _shape(model: OnnxModel, name: str, shapes: Mapping[str, tuple[int | None, ...]]) -> tuple[int | None, ...] | None:
    """Returns the shape that the model states of a tensor; if it leaves sizes open, the one that is given."""
    own = model.main.shape(name)
    return own if own and None not in own else shapes.get(name) or own
