"""The terms of nodes that move elements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtconv.runtimes.proof.terms import parts
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.lengths import reshaped_to
from trtconv.runtimes.proof.terms.node_call import NodeCall, Words, axes_of
from trtconv.runtimes.proof.terms.term import Term, Wordless


def _transpose(call: NodeCall) -> Term:
    source = call.operand()
    return terms.transposed(source, call.take("perm", range(source.rank)[::-1]))


def _reshape(call: NodeCall) -> Term:
    source, target, zero_copies = call.operand(0), call.operand(1), not call.flag("allowzero", 0)
    if target.array is None:
        return reshaped_to(source, target, zero_copies)
    return terms.reshaped(source, target.array.reshape(-1).tolist(), zero_copies)


def _flatten(call: NodeCall) -> Term:
    source, axis = call.operand(), call.take("axis", 1)
    if not source.is_static or not -source.rank <= axis <= source.rank:
        raise Wordless("sizes that are computed")
    return terms.reshaped(source, (int(np.prod(source.sizes[:axis], dtype=np.int64)), -1))


def _squeeze(call: NodeCall) -> Term:
    return terms.squeezed(call.operand(), call.ints(1) if call.opset >= 13 else call.take("axes", None))


def _unsqueeze(call: NodeCall) -> Term:
    return terms.unsqueezed(call.operand(), axes_of(call, 13))


def _concat(call: NodeCall) -> Term:
    return parts.concatenated(call.all(), call.take("axis", 0))


def _split(call: NodeCall) -> list[Term]:
    source = call.operand()
    axis, lengths = source.axis(call.take("axis", 0)), call.ints(1) if call.opset >= 13 else call.take("split", None)
    count = call.take("num_outputs", call.results)
    if not lengths:
        size = source.sizes[axis]
        if size % count:
            raise Wordless("uneven parts")
        lengths = [size // count] * count
    if sum(lengths) != source.sizes[axis]:
        raise Wordless("other parts")
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    return [_part(source, {axis: (start, length, 1)}) for start, length in zip(starts, lengths, strict=True)]


def _part(source: Term, rows: Mapping[int, tuple[int, int, int]]) -> Term:
    all_rows = [rows.get(axis, (0, size, 1)) for axis, size in enumerate(source.sizes)]
    starts, sizes, steps = zip(*all_rows, strict=True)
    return parts.cut(source, starts, sizes, steps)


def _slice(call: NodeCall) -> Term:
    source = call.operand()
    starts, ends, axes, steps = (call.ints(at) for at in (1, 2, 3, 4))
    if starts is None or ends is None:
        raise Wordless("sizes that are computed")
    axes = list(range(len(starts))) if axes is None else [source.axis(axis) for axis in axes]
    steps = [1] * len(starts) if steps is None else steps
    if len(set(axes)) != len(axes):
        raise Wordless("an axis twice")
    rows = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = source.sizes[axis]
        # Backwards, an end before the first place is one that Python would count from the other side.
        last = None if step < 0 and end < -size else end
        places = range(size)[start:last:step]
        rows[axis] = (places.start, len(places), step)
    return _part(source, rows)


def _pad(call: NodeCall) -> Term:
    source, mode = call.operand(), call.take("mode", b"constant")
    pads = call.ints(1) if call.opset >= 11 else call.take("pads", None)
    fill = call.scalar(2, 0.0) if call.opset >= 11 else call.take("value", 0.0)
    if pads is None:
        raise Wordless("pads that are computed")
    if not any(pads):
        return source
    return parts.padded(source, pads[: source.rank], pads[source.rank :], _MODES[mode], fill)


_MODES = {b"constant": "FILL", b"edge": "CLAMP", b"reflect": "REFLECT", b"wrap": "WRAP"}


def _expand(call: NodeCall) -> Term:
    source, target = call.operand(0), call.ints(1)
    if target is None or not source.is_static:
        raise Wordless("sizes that are computed")
    source = terms.unsqueezed(source, range(len(target) - source.rank))
    sizes = np.broadcast_shapes(source.sizes, tuple(target))
    steps = [int(new == own) for new, own in zip(sizes, source.sizes, strict=True)]
    return parts.cut(source, [0] * source.rank, sizes, steps)


def _depth_to_space(call: NodeCall) -> Term:
    source, block, mode = call.operand(), call.take("blocksize", 0), call.take("mode", b"DCR")
    if mode not in (b"DCR", b"CRD"):
        raise Wordless("a mode of its own")
    batch, channels, height, width = source.sizes
    depth, order = channels // block**2, (0, 3, 4, 1, 5, 2)
    split = (batch, block, block, depth, height, width)
    if mode == b"CRD":
        split, order = (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
    blocks = terms.transposed(terms.reshaped(source, split), order)
    return terms.reshaped(blocks, (batch, depth, height * block, width * block))


def _gather(call: NodeCall) -> Term:
    return parts.gathered(call.operand(0), call.operand(1), call.take("axis", 0))


def _gather_nd(call: NodeCall) -> Term:
    return parts.gathered_nd(call.operand(0), call.operand(1), call.take("batch_dims", 0))


_PLACES = {
    "half_pixel": ("HALF_PIXEL", "FORMULA"),
    "pytorch_half_pixel": ("HALF_PIXEL", "UPPER"),
    "asymmetric": ("ASYMMETRIC", "FORMULA"),
    "align_corners": ("ALIGN_CORNERS", "UPPER"),
}


_NEAREST = {"round_prefer_floor": "HALF_DOWN", "round_prefer_ceil": "HALF_UP", "floor": "FLOOR", "ceil": "CEIL"}


def _resize(call: NodeCall) -> Term:
    source = call.operand(0)
    # What lies around it counts in one mode of the places alone, which has no words.
    call.optional(1), call.take("extrapolation_value", None)
    scales, sizes = call.optional(2), call.ints(3)
    if not sizes:
        if scales is None or scales.array is None:
            raise Wordless("sizes that are computed")
        growth = parts.grown(source, scales.array.reshape(-1).tolist())
    elif scales is None or scales.sizes == (0,):
        growth = parts.Resizing(tuple(sizes))
    else:
        raise Wordless("sizes and scales")
    places = _PLACES[call.take("coordinate_transformation_mode", b"half_pixel").decode()]
    nearest = _NEAREST[call.take("nearest_mode", b"round_prefer_floor").decode()]
    smooth = call.take("exclude_outside", 0) or call.take("antialias", 0)
    if smooth or call.take("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise Wordless("places of its own")
    mode, cubic = call.take("mode", b"nearest").decode().upper(), call.take("cubic_coeff_a", -0.75)
    return parts.resized(source, growth, mode, places[0], nearest=nearest, cubic=cubic, single=places[1])


WORDS: dict[str, Words] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Operators to the words for them."""
