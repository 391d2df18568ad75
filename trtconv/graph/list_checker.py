"""Attributes that are lists: as long as a rank, or another list, says, and axes that exist.

TensorRT's parser reads as much of a list as it needs, where ONNX Runtime refuses the model: what the two compute of
such a node is not the same, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from onnx import AttributeProto

Dims: TypeAlias = Sequence["int | None"]
Lists: TypeAlias = Mapping[str, Sequence["float | bytes"]]
"""The attributes of a node that are lists, by name."""
Given: TypeAlias = Sequence["Dims | None"]
"""The shapes of a node's inputs, None where one is not known."""
Faults: TypeAlias = Iterator[tuple[str, str]]
"""Names of attributes, each with what is wrong with it."""
_FIELDS = {AttributeProto.INTS: "ints", AttributeProto.FLOATS: "floats", AttributeProto.STRINGS: "strings"}
_WINDOWS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 2}
"""Lists of what slides over the spatial axes, and how many entries each axis has in them."""


def lists_of(attributes: Collection[AttributeProto]) -> dict[str, Sequence[float | bytes]]:
    """Returns the attributes that are lists; those that a function's caller gives are left out."""
    lists = {}
    for attribute in attributes:
        field = _FIELDS.get(attribute.type)
        if field is not None and not attribute.ref_attr_name:
            lists[attribute.name] = getattr(attribute, field)[:]
    return lists


def list_faults(op: str, lists: Lists, shapes: Given, outputs: int, direction: bytes = b"") -> Faults:
    """Finds lists that do not fit a node.

    Args:
        op: A standard operator.
        lists: Its attributes that are lists.
        shapes: The shapes of its inputs, as far as they are known.
        outputs: How many outputs it has.
        direction: Its `direction` attribute.

    Source: ONNX's operators; ONNX Runtime 1.23 refuses each of these (measured), once it knows the rank.
    """
    if op in _CHECKS:
        yield from _CHECKS[op](lists, shapes)
    if op == "Split":
        yield from _of_length(lists, "split", outputs, "one for each output")
    if op in GATES and lists.get("activations"):
        most = GATES[op] * (2 if direction == b"bidirectional" else 1)
        yield from _of_length(lists, "activations", most, "as it has gates and directions")


def _of_length(lists: Lists, name: str, length: int | None, why: str) -> Faults:
    if name in lists and length is not None and len(lists[name]) != length:
        yield name, f"of {len(lists[name])} entries; it must have {length}, {why}"


def _rank(shapes: Given, slot: int) -> int | None:
    dims = shapes[slot] if slot < len(shapes) else None
    return None if dims is None else len(dims)


def _length(shapes: Given, slot: int) -> int | None:
    """Returns how many elements an input of rank 1 has."""
    dims = shapes[slot] if slot < len(shapes) else None
    return dims[0] if dims is not None and len(dims) == 1 else None


def _windows(*slots: int) -> Callable[[Lists, Given], Faults]:
    """Checks what slides over the spatial axes of an input, of the rank of these inputs."""

    def check(lists: Lists, shapes: Given) -> Faults:
        ranks = [rank - 2 for slot in slots if (rank := _rank(shapes, slot)) is not None and rank > 2]
        return _sliding(lists, ranks[0] if ranks else None, _rank(shapes, 0) is not None)

    return check


def _columns(lists: Lists, shapes: Given) -> Faults:
    return _sliding(lists, next((n for n in (_length(shapes, 1), _length(shapes, 2)) if n is not None), None), False)


def _sliding(lists: Lists, axes: int | None, exactly: bool) -> Faults:
    """Checks lists over so many spatial axes; an empty one stands for the default unless they must fit `exactly`."""
    windows = {name: times for name, times in _WINDOWS.items() if lists.get(name) or (exactly and name in lists)}
    if axes is None:
        # They must at least fit each other: the first says how many axes there are.
        axes = next((len(lists[name]) // times for name, times in windows.items()), None)
    for name, times in windows.items():
        # Nearly all are as long as they should be.
        if axes is not None and len(lists[name]) != axes * times:
            both = "two" if times == 2 else "one"
            yield from _of_length(lists, name, axes * times, f"{both} for each spatial axis")


def _perm(lists: Lists, shapes: Given) -> Faults:
    perm, rank = lists.get("perm"), _rank(shapes, 0)
    if perm is None:
        return
    yield from _of_length(lists, "perm", rank, "one for each axis")
    if rank in (None, len(perm)) and sorted(perm) != list(range(len(perm))):
        yield "perm", "that does not name every axis once"


def _axes(lists: Lists, shapes: Given) -> Faults:
    rank = _rank(shapes, 0)
    # A reduction of a single number may name its only axis.
    yield from _in_range(lists, None if rank is None else max(rank, 1))


def _in_range(lists: Lists, rank: int | None) -> Faults:
    for axis in lists.get("axes", ()):
        if rank is not None and not (isinstance(axis, int) and -rank <= axis < rank):
            yield "axes", f"with {axis!r}, which is not an axis of {rank}"
            return


def _squeeze(lists: Lists, shapes: Given) -> Faults:
    yield from _axes(lists, shapes)
    dims = (shapes[0] if shapes else None) or ()
    for axis in lists.get("axes", ()):
        if isinstance(axis, int) and -len(dims) <= axis < len(dims) and dims[axis] not in (None, 1):
            yield "axes", f"with {axis}, an axis of size {dims[axis]}, which cannot be left out"


def _unsqueeze(lists: Lists, shapes: Given) -> Faults:
    axes, rank = lists.get("axes", ()), _rank(shapes, 0)
    after = None if rank is None else rank + len(axes)
    yield from _in_range(lists, after)
    numbers = [axis for axis in axes if isinstance(axis, int)]
    if len({axis if after is None else axis % after for axis in numbers}) < len(numbers):
        yield "axes", "that names an axis twice"


def _slice(lists: Lists, shapes: Given) -> Faults:
    starts = len(lists["starts"]) if "starts" in lists else None
    for name in ("ends", "axes"):
        yield from _of_length(lists, name, starts, "as many as starts")
    yield from _axes(lists, shapes)


def _resize(lists: Lists, shapes: Given) -> Faults:
    yield from _axes(lists, shapes)
    sizes = next((n for n in (_length(shapes, 2), _length(shapes, 3)) if n), None)
    yield from _of_length(lists, "axes", sizes, "one for each scale or size")


def _crop_or_pad(lists: Lists, shapes: Given) -> Faults:
    yield from _axes(lists, shapes)
    yield from _of_length(lists, "axes", _length(shapes, 1), "one for each size")


def _scales(lists: Lists, shapes: Given) -> Faults:
    yield from _of_length(lists, "scales", _rank(shapes, 0), "one for each axis")


def _pads(lists: Lists, shapes: Given) -> Faults:
    rank = _rank(shapes, 0)
    for name in ("pads", "paddings"):
        yield from _of_length(lists, name, None if rank is None else 2 * rank, "two for each axis")


def _pooled(lists: Lists, shapes: Given) -> Faults:
    yield from _of_length(lists, "pooled_shape", 2, "a height and a width")


_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)
_CHECKS: dict[str, Callable[[Lists, Given], Faults]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _windows(0, 1)),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "MaxUnpool"), _windows(0)),
    "QLinearConv": _windows(0, 3),
    "Col2Im": _columns,
    "Transpose": _perm,
    **dict.fromkeys((*_REDUCTIONS, "MeanVarianceNormalization"), _axes),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Resize": _resize,
    "CenterCropPad": _crop_or_pad,
    "Upsample": _scales,
    "Pad": _pads,
    "MaxRoiPool": _pooled,
}
GATES = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""Activations of each direction."""
LISTED = frozenset((*_CHECKS, *GATES, "Split"))
"""Operators that have such attributes; what is wrong with a ConvTranspose is a finding of its own (TC108)."""
