"""Explains one ConvTranspose: what it computes, what TensorRT's parser makes of it, and what the passes do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from onnx import NodeProto

from trtconv import deconv, runtime
from trtconv.axes import describe_axes, describe_node, elements, joint_advice
from trtconv.deconv import Crop, Geometry
from trtconv.errors import EnvironmentMissing, InputError
from trtconv.explanation import (
    Axis,
    ExplainReport,
    ExplainRequest,
    Explanation,
    Layers,
    Listed,
    Parser,
    Quantization,
    Rewrite,
)
from trtconv.findings import Finding, Severity
from trtconv.frozen import frozen
from trtconv.isolate import parse_alone
from trtconv.model import CONCERNED, OnnxModel, Scope
from trtconv.passes import PassResult, passes_for, run_passes
from trtconv.plan import Target
from trtconv.rules import run_rules
from trtconv.rules.base import Deconv, ModelView
from trtconv.runtime import Runtime

_PER_ELEMENT = ("QuantizeLinear", "DequantizeLinear", "Cast", "Identity")
_NEAR_NAMES = 5
_FLOAT_INPUT = "not dequantised"

Shape = tuple[int | None, ...]


def explain(request: ExplainRequest) -> ExplainReport:
    """Explains one ConvTranspose of a model, or lists them all where several could be meant.

    Args:
        request: The model, the node and what it is meant for.

    Returns:
        The report. Without a TensorRT that works here it has no parser's verdict, but all the rest.

    Raises:
        InputError: An unreadable model, an unknown node, or a node that is no ConvTranspose.
    """
    model = OnnxModel.load(request.model)
    # A node in a model-local function gets a place of its own, and its weight, only where the function is called.
    model.inline_functions_with(*CONCERNED)
    nodes = ModelView(model).deconvs
    asked = find(model, nodes, request.node) if request.node else nodes[0] if len(nodes) == 1 else None
    desk = _Desk.at(request.target)
    listed = tuple(_listed(node) for node in nodes)
    explanation = None if asked is None else _explain(model, asked, desk)
    return ExplainReport(str(request.model), desk.target, listed, explanation)


@frozen
class _Desk:
    """For what a node is explained, and whose parser can be asked."""

    target: Target
    engine: Runtime | None
    why_not: str = ""

    @classmethod
    def at(cls, target: Target | None) -> _Desk:
        try:
            engine = runtime.load(target)
        except EnvironmentMissing as error:
            return cls(target or Target("tensorrt"), None, error.message)
        return cls(target if target is not None and target.version else engine.info.target, engine)


def find(model: OnnxModel, nodes: Sequence[Deconv], asked: str) -> Deconv:
    """Finds the ConvTranspose that a user means.

    Args:
        model: The model.
        nodes: Its ConvTransposes.
        asked: A node's name, its index in the main graph, its place ("graph/node[5]"), or its output tensor.

    Raises:
        InputError: There is no such node, it is no ConvTranspose, or several have that name.
    """
    places = {(node.scope.path, node.index): node for node in nodes}
    matches = list(_matches(model, asked))
    for kind in ("name", "place", "output"):
        found = [places[at] for k, at in matches if k == kind and at in places]
        if len(found) == 1:
            return found[0]
        if found:
            where = ", ".join(_place(node) for node in found)
            raise InputError(f"{asked!r} is {len(found)} ConvTranspose nodes", f"Give the place of one: {where}.")
    if matches:
        path, index = matches[0][1]
        scope = next(s for s in model.scopes if s.path == path)
        raise InputError(f"{scope.location(index)} is not a ConvTranspose", _choices(nodes, asked))
    raise InputError(f"{model.path} has no node {asked!r}", _choices(nodes, asked))


def _matches(model: OnnxModel, asked: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yields how a node fits what was asked, and its graph and index; every operator counts."""
    place = re.match(r"(?:(.*)/)?(?:node\[)?(\d+)\]?(?: |$)", asked)
    for scope in model.scopes:
        for index, node in enumerate(scope.graph.node):
            at = (scope.path, index)
            if node.name and node.name == asked:
                yield "name", at
            if place and int(place[2]) == index and (place[1] or "graph") == (scope.path or "graph"):
                yield "place", at
            if asked in node.output:
                yield "output", at


def _place(node: Deconv) -> str:
    return f"{node.scope.path or 'graph'}/node[{node.index}]"


def _choices(nodes: Sequence[Deconv], asked: str) -> str:
    """Returns a hint that names ConvTransposes, those with near names first."""
    if not nodes:
        return "The model has no ConvTranspose."
    names = [node.node.name or _place(node) for node in nodes]
    outputs: dict[str, str] = {node.node.output[0]: name for name, node in zip(names, nodes, strict=True)}
    labels = outputs | {name: name for name in names}
    close = difflib.get_close_matches(asked, labels, n=_NEAR_NAMES, cutoff=0.5)
    near = dict.fromkeys(labels[label] for label in close)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(names) - _NEAR_NAMES} more" if len(names) > _NEAR_NAMES else ""
    return f"Its ConvTranspose nodes: {', '.join(names[:_NEAR_NAMES])}{more}."


def _listed(node: Deconv) -> Listed:
    geometry = node.geometry
    place, name, output = _place(node), node.node.name, node.node.output[0]
    if isinstance(geometry, str):
        return Listed(place, name, output, fault=geometry)
    return Listed(
        place,
        name,
        output,
        geometry.kernel,
        geometry.strides,
        geometry.begin_pads + geometry.end_pads,
        geometry.output_padding,
        geometry.auto_pad,
        geometry.output_shape,
        _sizes_text(describe_axes(geometry, _spatial(node))),
    )


def _sizes_text(axes: Sequence[Axis]) -> str:
    if all(axis.size is not None and axis.out is not None for axis in axes):
        return f"{'x'.join(str(axis.size) for axis in axes)} -> {'x'.join(str(axis.out) for axis in axes)}"
    formulas = [f"{axis.size} -> {axis.out}" if axis.size is not None else f"in -> {axis.out_formula}" for axis in axes]
    return ", ".join(dict.fromkeys(formulas))


def _spatial(node: Deconv) -> Shape:
    shape = node.scope.shape(node.node.input[0])
    return () if shape is None else shape[2:]


def _explain(model: OnnxModel, node: Deconv, desk: _Desk) -> Explanation:
    geometry = node.geometry
    before = _Before.of(model, node, desk)
    after = _After.of(model, node, desk)
    fault = geometry if isinstance(geometry, str) else ""
    axes = describe_axes(geometry, before.spatial) if isinstance(geometry, Geometry) else ()
    advice = [f"{', '.join(names)}: {text}" for text, names in _by_text(axes).items()]
    return Explanation(
        place=before.place,
        name=before.name,
        output=before.output,
        fault=fault,
        attributes=_attributes(geometry) if isinstance(geometry, Geometry) else {},
        input_shape=before.input_shape,
        weight=before.weight,
        axes=axes,
        parts=describe_node(geometry, before.weight, before.has_bias) if isinstance(geometry, Geometry) else (),
        parser=_parser(fault, before, desk),
        rewrite=_rewrite(before, after, geometry),
        quantization=_quantization(before, after),
        advice=(*advice, *joint_advice(axes)),
    )


def _by_text(axes: Sequence[Axis]) -> dict[str, list[str]]:
    """Returns each piece of advice, and the axes that it is for."""
    found: dict[str, list[str]] = {}
    for axis in axes:
        for text in axis.advice:
            found.setdefault(text, []).append(axis.name)
    return found


@frozen
class _Before:
    """What is known of a node before the passes change the model.

    Args:
        related: Names under which passes report edits of the node and its quantisers.
        layers: What the installed parser makes of it.
    """

    place: str
    name: str
    input: str
    output: str
    spatial: Shape
    input_shape: Shape | None
    weight: Shape | None
    has_bias: bool
    related: frozenset[str]
    findings: tuple[Finding, ...]
    quantizers: _Quantizers
    layers: Layers | None

    @classmethod
    def of(cls, model: OnnxModel, node: Deconv, desk: _Desk) -> _Before:
        scope = node.scope
        around = {node.index, *_around(node)}
        found = run_rules(model, desk.target)
        related = {label for index in around for label in _labels(scope, index)}
        return cls(
            place=_place(node),
            name=node.node.name,
            input=node.node.input[0],
            output=node.node.output[0],
            spatial=_spatial(node),
            input_shape=scope.shape(node.node.input[0]),
            weight=_weight_shape(node),
            has_bias=bool(node.bias),
            related=frozenset(related),
            findings=tuple(f for f in found if f.location.graph == scope.path and f.location.index in around),
            quantizers=_Quantizers.of(node),
            layers=None if desk.engine is None else parse_alone(model, node, desk.engine),
        )


@frozen
class _After:
    """What the passes made of a node.

    Args:
        done: What they did to the whole model.
        node: The node; None where it is gone.
        findings: What the rules still have against it.
        layers: What the installed parser makes of it.
    """

    done: PassResult
    node: Deconv | None
    findings: tuple[Finding, ...] = ()
    layers: Layers | None = None

    @classmethod
    def of(cls, model: OnnxModel, node: Deconv, desk: _Desk) -> _After:
        """Runs the passes on the model, in place."""
        model.name_nodes("ConvTranspose")
        name = node.node.name
        done = run_passes(model, passes_for("as-is"), desk.target)
        made = next((each for each in ModelView(model).deconvs if each.node.name == name), None)
        if made is None:
            return cls(done, None)
        here = (made.scope.path, made.index)
        found = (f for f in run_rules(model, desk.target) if (f.location.graph, f.location.index) == here)
        layers = None if desk.engine is None else parse_alone(model, made, desk.engine)
        return cls(done, made, tuple(found), layers)


def _around(node: Deconv) -> Iterator[int]:
    """Yields the nodes that quantise, dequantise or cast a node's inputs and output."""
    producers, nodes = node.scope.producers, node.scope.graph.node
    queue = list(node.node.input)
    for name in queue:
        index = producers.get(name)
        if index is not None and nodes[index].op_type in _PER_ELEMENT:
            yield index
            queue.append(nodes[index].input[0])
    for user in node.scope.consumers.get(node.node.output[0], ()):
        if user.op_type == "QuantizeLinear":
            yield producers[user.output[0]]


def _labels(scope: Scope, index: int) -> Iterator[str]:
    node = scope.graph.node[index]
    yield str(scope.location(index))
    yield from (node.name, *node.output) if node.name else node.output


def _weight_shape(node: Deconv) -> Shape | None:
    return node.scope.shape(node.node.input[1]) if len(node.node.input) > 1 else None


def _attributes(geometry: Geometry) -> dict[str, Any]:
    """Returns a node's attributes, those that say nothing left out."""
    found: dict[str, Any] = {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.strides),
        "dilations": list(geometry.dilations),
        "pads": list(geometry.begin_pads + geometry.end_pads),
        "output_padding": list(geometry.output_padding),
        "group": geometry.group,
    }
    if geometry.auto_pad != "NOTSET":
        found["auto_pad"] = geometry.auto_pad
    if geometry.output_shape is not None:
        found["output_shape"] = list(geometry.output_shape)
    return found


def _parser(fault: str, before: _Before, desk: _Desk) -> Parser:
    findings = tuple(f for f in before.findings if f.code.startswith("TC1"))
    if fault:
        expected = "reads the node as something, or fails"
    elif findings:
        expected = "; ".join(f.message for f in findings)
    else:
        expected = "reads the node as it is meant: one deconvolution, with the crops above as its pre and post padding"
        expected += _but_quantizers(before.findings)
    why_not = desk.why_not
    if before.layers is None and not why_not:
        why_not = fault or "the weight's shape is not known, so the node cannot be parsed by itself"
    return Parser(expected, findings, before.layers, "" if before.layers else why_not)


def _but_quantizers(findings: Sequence[Finding]) -> str:
    """Returns what qualifies a right reading of the node itself: that its quantisers are misread or refused."""
    codes = sorted({f.code for f in findings if f.code.startswith("TC3") and f.severity is not Severity.INFO})
    return f"; not so what quantises it, see {', '.join(codes)} below" if codes else ""


def _rewrite(before: _Before, after: _After, old: Geometry | str) -> Rewrite:
    """Tells what the passes did to a node."""
    made = after.node
    named = before.related if made is None else before.related | {made.node.name}
    edits = tuple(edit for edit in after.done.edits if edit.node in named)
    skipped = tuple(skip for skip in after.done.skipped if skip.node in named)
    if made is None or isinstance(made.geometry, str):
        return Rewrite(edits, skipped, {}, None, (), (), after.findings)
    behind = tuple(_behind(made, before.output))
    producer = made.scope.producer(made.node.input[0])
    padded = made.node.input[0] != before.input and producer is not None and producer.op_type == "Pad"
    return Rewrite(
        edits=edits,
        skipped=skipped,
        attributes=_attributes(made.geometry),
        weight=_weight_shape(made),
        behind=behind,
        why=()
        if isinstance(old, str)
        else tuple(_why(old, before.spatial, made.geometry, behind, padded, bool(edits))),
        findings=after.findings,
        layers=after.layers,
    )


def _behind(node: Deconv, output: str) -> Iterator[str]:
    """Yields the operators between a node and the tensor that it made before the passes."""
    current = node.node.output[0]
    seen = {current}
    while current != output:
        # Shape nodes look at the result only; the tensor itself goes through the one that is neither.
        users = [n for n in node.scope.consumers.get(current, ()) if n.op_type != "Shape" and n.input[0] == current]
        if not users or users[0].output[0] in seen:
            return
        yield users[0].op_type
        current = users[0].output[0]
        seen.add(current)


def _why(
    old: Geometry, sizes: Shape, new: Geometry, behind: Sequence[str], padded: bool, edited: bool
) -> Iterator[str]:
    """Yields why a rewritten node computes the same."""
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
        yield from _why_same_window(old, sizes, padded)
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
    if padded:
        longer = deconv.lengthen(line, (window,))
        (before,), (after,), (crop,) = longer.before, longer.after, longer.crops
        grown, step = f"the input is lengthened by zeros, {_ends(before, after)}. A zero", axis.stride
    else:
        folding = deconv.fold(line, (window,))
        (before,), (after,), (crop,) = folding.low, folding.high, folding.crops
        taps = axis.kernel + before + after
        grown = f"the kernel is zero-extended from {axis.kernel} to {taps} taps, {_ends(before, after)}. A zero tap"
        step = axis.dilation
    length = elements((before + after) * step)
    return (
        f"{grown} adds nothing but length to the full result ({length} here), so that the crop"
        f" ({window.begin}, {window.end}) becomes ({crop.begin}, {crop.end}): the same window, from one deconvolution,"
        " with the bias in every element"
    )


@frozen
class _Quantizers:
    """The quantisers around a node, in words and numbers."""

    has_weight: bool
    layout: str
    scales: int | None
    axis: int | None
    weight: str
    input: str
    output: str

    @classmethod
    def of(cls, node: Deconv) -> _Quantizers:
        scope, shape = node.scope, _weight_shape(node)
        source = scope.producer(node.node.input[1]) if len(node.node.input) > 1 else None
        has_weight = source is not None and source.op_type == "DequantizeLinear"
        names = ("C_in", "C_out/group", *["k"] * max(0, len(shape or ()) - 2))
        layout = ", ".join(f"{name} {_known(size)}" for name, size in zip(names, shape or (), strict=False))
        scale = scope.values(source.input[1]) if source is not None and has_weight else None
        scales = None if scale is None else int(scale.size)
        axis = None
        if source is not None and scales is not None and scales > 1:
            axis = next((a.i for a in source.attribute if a.name == "axis"), 1) % max(1, len(shape or (0, 0)))
        users = scope.consumers.get(node.node.output[0], ())
        return cls(
            has_weight,
            f"({layout})",
            scales,
            axis,
            _weight_text(scope, source, scales, axis) if source is not None and has_weight else "not quantised",
            _input_text(scope, scope.producer(node.node.input[0])),
            "goes to a QuantizeLinear" if any(n.op_type == "QuantizeLinear" for n in users) else "not quantised",
        )


def _known(size: int | None) -> str:
    return "?" if size is None else str(size)


def _weight_text(scope: Scope, source: NodeProto, scales: int | None, axis: int | None) -> str:
    if scales is None:
        return "dequantised with scales that are computed at run time"
    point = _zero_point(scope, source)
    if axis is None:
        return f"one scale for all channels, {point}"
    whose = {
        0: "the input channels: TensorRT applies them to the output channels",
        1: "the output channels of each group, as TensorRT takes them",
    }
    return f"{scales} scales on axis {axis}, {whose.get(axis, 'a spatial axis, which TensorRT does not take')}; {point}"


def _zero_point(scope: Scope, node: NodeProto) -> str:
    if len(node.input) < 3 or not node.input[2]:
        return "no zero point"
    values = scope.values(node.input[2])
    if values is None:
        return "a computed zero point"
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    return f"{values.dtype} with zero point {low if low == high else f'{low} to {high}'}"


def _input_text(scope: Scope, source: NodeProto | None) -> str:
    if source is None or source.op_type != "DequantizeLinear":
        return _FLOAT_INPUT
    return f"dequantised, {_zero_point(scope, source)}"


def _in_float(findings: Sequence[Finding]) -> str:
    """Returns why a deconvolution runs in float, or an empty string."""
    return next((f.message.partition(": ")[2] for f in findings if f.code == "TC311"), "")


def _quantization(before: _Before, after: _After) -> Quantization | None:
    old = before.quantizers
    if not old.has_weight and old.input == _FLOAT_INPUT:
        return None
    findings = tuple(f for f in before.findings if f.code.startswith("TC3"))
    reasons = _in_float(before.findings)
    if after.node is not None and _Quantizers.of(after.node).has_weight:
        # The passes may have taken the traces of the reason away: what they compute in float is no longer a quantiser.
        why_not = _in_float(after.findings) and (reasons or _in_float(after.findings))
    elif old.has_weight:
        why_not = "; ".join(filter(None, [reasons, "the passes compute its weight in float"]))
    else:
        why_not = "its weight is not quantised"
    return Quantization(
        old.layout, old.scales, old.axis, old.weight, old.input, old.output, not why_not, why_not, findings
    )
