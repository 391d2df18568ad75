"""What the passes made of a transposed convolution, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtconv.core.documents.explain import Axis, Layers, Rewrite
from trtconv.core.findings import Finding
from trtconv.explainer.around import attributes_of, labels_of
from trtconv.explainer.axis import describe_axes, elements
from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry
from trtconv.graph.views import Deconv, Shape
from trtconv.passes import PassResult


def rewrite_of(
    node: Deconv, changes: PassResult, result: Deconv | None, findings: tuple[Finding, ...], layers: Layers | None
) -> Rewrite:
    """Tells what the passes did to a node.

    Args:
        node: The node as it was.
        changes: What they did to the whole model.
        result: The node afterwards; None where it is gone.
        findings: What the rules still have against it.
        layers: What the installed parser makes of it.
    """
    names = labels_of(node) | ({result.node.name} if result is not None else set())
    edits = tuple(edit for edit in changes.edits if edit.node in names)
    skipped = tuple(skip for skip in changes.skipped if skip.node in names)
    if result is None or isinstance(result.geometry, str):
        return Rewrite(edits, skipped, {}, None, (), (), findings)
    behind = tuple(_behind(result, node.node.output[0]))
    why = [] if isinstance(node.geometry, str) else list(_why(node, node.geometry, result, behind, bool(edits)))
    attributes = attributes_of(result.geometry)
    return Rewrite(edits, skipped, attributes, result.weight_shape, behind, tuple(why), findings, layers)


def _behind(node: Deconv, output: str) -> Iterator[str]:
    """Yields the operators between a node and the tensor that it made before the passes."""
    current = node.node.output[0]
    earlier = {current}
    while current != output:
        # Shape nodes look at the result only; the tensor itself goes through the one that is neither.
        users = [n for n in node.scope.consumers.get(current, ()) if n.op_type != "Shape" and n.input[0] == current]
        if not users or users[0].output[0] in earlier:
            return
        yield users[0].op_type
        current = users[0].output[0]
        earlier.add(current)


def _why(node: Deconv, old: Geometry, result: Deconv, behind: Sequence[str], edited: bool) -> Iterator[str]:
    """Yields why a rewritten node computes the same."""
    new = result.geometry
    assert isinstance(new, Geometry)
    if old == new:
        what = "the attributes stay as they are" if edited else "nothing had to change"
        yield f"{what}: the pads say by themselves which part of the full result is returned"
        return
    if behind:
        yield (
            f"the deconvolution returns what taps reach, without bias; {', '.join(behind)} behind it"
            " cut or add the rest, and the bias comes last, so that it is in every element"
        )
    elif old.begin_pads + old.end_pads != new.begin_pads + new.end_pads or not old.is_explicit:
        padded = result.inputs[0] != node.inputs[0] and result.producer(0, "Pad") is not None
        yield from _why_same_window(old, (node.input_shape or ())[2:], padded)
    if old.dilations != new.dilations:
        yield (
            f"dilation {list(old.dilations)} is in the kernel now, as zeros between its taps:"
            " the same products at the same places, and zeros add nothing"
        )


def _why_same_window(old: Geometry, sizes: Shape, padded: bool) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for axis in describe_axes(old, sizes):
        if axis.begin is not None and axis.end is not None:
            reasons.setdefault(_why_on_axis(axis, Crop(axis.begin, axis.end), padded), []).append(axis.name)
    for reason, names in reasons.items():
        yield f"{', '.join(names)}: {reason}"


def _ends(low: int, high: int) -> str:
    return " and ".join(f"{n} at the {end} end" for n, end in ((low, "low"), (high, "high")) if n)


def _why_on_axis(axis: Axis, window: Crop, padded: bool) -> str:
    line = Geometry((axis.kernel,), (axis.stride,), (axis.dilation,), (0,), (0,), (0,))
    if min(window.begin, window.end) >= 0:
        full = axis.full_formula if axis.full is None else axis.full
        return f"pads {window.begin}, {window.end} cut the same window out of the same full result of {full} elements"
    growth = deconv.lengthen(line, (window,)) if padded else deconv.fold(line, (window,))
    (before,), (after,), (crop,) = growth.low, growth.high, growth.crops
    if padded:
        grown, step = f"the input is lengthened by zeros, {_ends(before, after)}. A zero", axis.stride
    else:
        taps = axis.kernel + before + after
        grown = f"the kernel is zero-extended from {axis.kernel} to {taps} taps, {_ends(before, after)}. A zero tap"
        step = axis.dilation
    length = elements((before + after) * step)
    return (
        f"{grown} adds nothing but length to the full result ({length} here), so that the crop"
        f" ({window.begin}, {window.end}) becomes ({crop.begin}, {crop.end}): the same window, from one deconvolution,"
        " with the bias in every element"
    )
