"""Nodes in other forms, exactly: for those of which a builder has no implementation in their own, or where they stand.

None of these passes runs by itself; a build that fails tries them on the nodes that fail (`pipeline/respelling.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST_GROUPS = 64
_END = np.iinfo(np.int64).max
_EPSILON = 1e-5
"""Of an InstanceNormalization that names none."""


class OtherForm(Spelling):
    """Writes the named nodes in another form.

    Args:
        nodes: Their names.
    """

    ops = frozenset({"Conv", "ConvTranspose"})

    def __init__(self, nodes: Collection[str]) -> None:
        self._nodes = frozenset(nodes)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return scope.columns.names[index] in self._nodes


class LiftToPlane(OtherForm):
    """Computes a convolution along one axis as one of images that are one row high."""

    name = "lift-to-plane"

    def write(self, writer: Writer, target: Target) -> str | None:
        kernel = _kernel(writer, 1)
        if kernel.ndim != 3:
            raise Unwritable("")
        if any(writer.attrs.get("output_padding", ())) or "output_shape" in writer.attrs:
            raise Unwritable("its size is not that of its pads alone")
        wide = {
            "kernel_shape": [1, kernel.shape[2]],
            "strides": [1, *_steps(writer, "strides", 1)],
            "dilations": [1, *_steps(writer, "dilations", 1)],
            "pads": [pad for side in _pads(writer, 1) for pad in (0, *side)],
            "output_padding": None,
        }
        rows = writer.unsqueeze(writer.input(0), [2])
        weight = writer.constant(kernel[:, :, None])
        flat = f"{writer.output()}/plane"
        writer.again([rows, weight, *writer.node.input[2:]], [flat := writer.model.fresh_name(flat)], **wide)
        writer.squeeze(flat, [2], to=writer.output())
        return f"{writer.node.op_type} along one axis written as one of images with one row"


class DivideGroups(OtherForm):
    """Computes each group of a convolution by itself."""

    name = "divide-groups"

    def write(self, writer: Writer, target: Target) -> str | None:
        groups = int(writer.attrs.get("group", 1))
        kernel = _kernel(writer, groups)
        if not 1 < groups <= _MOST_GROUPS:
            raise Unwritable("")
        transposed = writer.node.op_type == "ConvTranspose"
        channels = kernel.shape[0] if transposed else kernel.shape[1] * groups
        bias = writer.values(2, "bias") if writer.input(2) else None
        parts = writer.split(writer.input(0), [channels // groups] * groups, 1)
        biases = [None] * groups if bias is None else np.split(bias, groups)
        outputs = []
        for part, weight, added in zip(parts, np.split(kernel, groups), biases, strict=True):
            outputs.append(writer.model.fresh_name(f"{writer.output()}/group"))
            own = [part, writer.constant(weight), *([] if added is None else [writer.constant(added)])]
            node = writer.again(own, [outputs[-1]], group=1)
            node.name = writer.model.fresh_name(f"{writer.node.name}/group")
        writer("Concat", *outputs, to=writer.output(), axis=1)
        return f"{groups} groups of {writer.node.op_type} computed one by one"


class DeconvolveByConv(OtherForm):
    """Computes a deconvolution as the convolution with the mirrored kernel, of its input with zeros in between."""

    name = "deconvolve-by-conv"
    ops = frozenset({"ConvTranspose"})

    def write(self, writer: Writer, target: Target) -> str | None:
        groups = int(writer.attrs.get("group", 1))
        kernel = _kernel(writer, groups)
        rank = kernel.ndim - 2
        if any(writer.attrs.get("output_padding", ())) or "output_shape" in writer.attrs:
            raise Unwritable("its size is not that of its pads alone")
        strides, dilations = _steps(writer, "strides", rank), _steps(writer, "dilations", rank)
        reach = [(k - 1) * d for k, d in zip(kernel.shape[2:], dilations, strict=True)]
        low, high = _pads(writer, rank)
        begin = [r - p for r, p in zip(reach, low, strict=True)]
        # Zeros follow the last place too.
        end = [r - p - (s - 1) for r, p, s in zip(reach, high, strides, strict=True)]
        tensor = _spread(writer, strides) if max(strides) > 1 else writer.input(0)
        cut = [axis for axis in range(rank) if begin[axis] < 0 or end[axis] < 0]
        if cut:
            starts = [max(-begin[axis], 0) for axis in cut]
            ends = [end[axis] if end[axis] < 0 else _END for axis in cut]
            tensor = writer.slice(tensor, starts, ends, [axis + 2 for axis in cut])
        writer(
            "Conv",
            tensor,
            _mirrored(kernel, groups),
            *writer.node.input[2:],
            to=writer.output(),
            kernel_shape=list(kernel.shape[2:]),
            dilations=dilations,
            pads=[max(pad, 0) for pad in (*begin, *end)],
            group=groups,
        )
        return "ConvTranspose written as Conv with the mirrored kernel, of the input with zeros between its places"


class NormalizeByMeans(OtherForm):
    """Computes an instance normalisation as a mean, that of the squares of what differs from it, and a division."""

    name = "normalize-by-means"
    ops = frozenset({"InstanceNormalization"})

    def write(self, writer: Writer, target: Target) -> str | None:
        x = writer.input(0)
        rank, dtype = len(writer.shape(x)), writer.dtype(x)
        if rank < 3 or dtype.name not in ("float32", "float64"):
            # Squares of small floats overflow.
            raise Unwritable("its squares do not fit its type")
        axes = list(range(2, rank))
        centered = writer("Sub", x, writer.reduce("ReduceMean", x, axes))
        variance = writer.reduce("ReduceMean", writer("Mul", centered, centered), axes)
        epsilon = writer.constant(writer.attrs.get("epsilon", _EPSILON), dtype)
        normal = writer("Div", centered, writer("Sqrt", writer("Add", variance, epsilon)))
        scale, bias = (writer.unsqueeze(writer.input(slot), list(range(1, rank - 1))) for slot in (1, 2))
        writer("Add", writer("Mul", normal, scale), bias, to=writer.output())
        return "InstanceNormalization written as means, of the input and of squares"


OTHER_FORMS: Mapping[str, type[OtherForm]] = {
    "plane": LiftToPlane,
    "groups": DivideGroups,
    "conv": DeconvolveByConv,
    "means": NormalizeByMeans,
}
"""The forms by the names that a build's report has."""


def other_forms(forms: Mapping[str, str]) -> tuple[OtherForm, ...]:
    """Returns the passes that give nodes their forms; those of no other form are left alone."""
    nodes = {key: [node for node, form in forms.items() if form == key] for key in OTHER_FORMS}
    return tuple(OTHER_FORMS[key](names) for key, names in nodes.items() if names)


def _kernel(writer: Writer, groups: int) -> NDArray[Any]:
    """Returns a node's kernel; raises `Unwritable` where it is no constant, or the node does not say its pads."""
    if writer.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Unwritable(f"its auto_pad is {writer.attrs['auto_pad']}")
    kernel = writer.scope.values(writer.input(1))
    if kernel is None:
        raise Unwritable("its kernel is no constant")
    if kernel.ndim < 3 or groups < 1 or kernel.shape[0] % groups:
        raise Unwritable("its kernel has not the shape of one")
    return kernel


def _steps(writer: Writer, name: str, rank: int) -> list[int]:
    return [int(step) for step in writer.attrs.get(name, [1] * rank)]


def _pads(writer: Writer, rank: int) -> tuple[list[int], list[int]]:
    pads = [int(pad) for pad in writer.attrs.get("pads", [0] * 2 * rank)]
    return pads[:rank], pads[rank:]


def _mirrored(kernel: NDArray[Any], groups: int) -> NDArray[Any]:
    """Returns the kernel (C_in, C_out/group, k...) as that of the convolution, (C_out, C_in/group, k...), mirrored."""
    parts = [np.swapaxes(part, 0, 1) for part in np.split(kernel, groups)]
    return np.ascontiguousarray(np.flip(np.concatenate(parts), tuple(range(2, kernel.ndim))))


def _spread(writer: Writer, strides: list[int]) -> str:
    """Returns the input with `stride - 1` zeros behind each place along each axis."""
    rank = len(strides)
    zero = writer.constant(np.zeros((), writer.dtype(writer.input(0))))
    apart = writer.unsqueeze(writer.input(0), [3 + 2 * axis for axis in range(rank)])
    behind = [count for stride in strides for count in (0, stride - 1)]
    padded = writer("Pad", apart, np.array([0] * (2 + 2 * rank) + [0, 0, *behind], np.int64), zero)
    factors = np.array([1, 1, *strides], np.int64)
    return writer.reshape(padded, writer("Mul", writer("Shape", writer.input(0)), factors))
