"""Explains one ConvTranspose: what it computes, what TensorRT's parser makes of it, and what the passes do about it."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.core.findings import Finding, Severity
from trtconv.core.requests.explain import (
    Axis,
    ExplainReport,
    ExplainRequest,
    Explanation,
    Listed,
    Parser,
)
from trtconv.explainer.axis import describe_axes, describe_node, joint_advice
from trtconv.explainer.context import After, Before, Desk, attributes_of
from trtconv.explainer.find import find
from trtconv.explainer.place import place_of, spatial_shape
from trtconv.explainer.quantizers import quantization_of
from trtconv.explainer.rewritten import rewrite_of
from trtconv.graph.deconv import Geometry
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import CONCERNED
from trtconv.graph.views import Deconv
from trtconv.rules.base import ModelView


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
    desk = Desk.at(request.target)
    listed = tuple(_listed(node) for node in nodes)
    explanation = None if asked is None else _explain(model, asked, desk)
    return ExplainReport(str(request.model), desk.target, listed, explanation)


def _listed(node: Deconv) -> Listed:
    geometry = node.geometry
    place, name, output = place_of(node), node.node.name, node.node.output[0]
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
        _sizes_text(describe_axes(geometry, spatial_shape(node))),
    )


def _sizes_text(axes: Sequence[Axis]) -> str:
    if all(axis.size is not None and axis.out is not None for axis in axes):
        return f"{'x'.join(str(axis.size) for axis in axes)} -> {'x'.join(str(axis.out) for axis in axes)}"
    formulas = [f"{axis.size} -> {axis.out}" if axis.size is not None else f"in -> {axis.out_formula}" for axis in axes]
    return ", ".join(dict.fromkeys(formulas))


def _explain(model: OnnxModel, node: Deconv, desk: Desk) -> Explanation:
    geometry = node.geometry
    before = Before.of(model, node, desk)
    after = After.of(model, node, desk)
    fault = geometry if isinstance(geometry, str) else ""
    axes = describe_axes(geometry, before.spatial) if isinstance(geometry, Geometry) else ()
    advice = [f"{', '.join(names)}: {text}" for text, names in _by_text(axes).items()]
    return Explanation(
        place=before.place,
        name=before.name,
        output=before.output,
        fault=fault,
        attributes=attributes_of(geometry) if isinstance(geometry, Geometry) else {},
        input_shape=before.input_shape,
        weight=before.weight,
        axes=axes,
        parts=describe_node(geometry, before.weight, before.has_bias) if isinstance(geometry, Geometry) else (),
        parser=_parser(fault, before, desk),
        rewrite=rewrite_of(before, after, geometry),
        quantization=quantization_of(before, after),
        advice=(*advice, *joint_advice(axes)),
    )


def _by_text(axes: Sequence[Axis]) -> dict[str, list[str]]:
    """Returns each piece of advice, and the axes that it is for."""
    found: dict[str, list[str]] = {}
    for axis in axes:
        for text in axis.advice:
            found.setdefault(text, []).append(axis.name)
    return found


def _parser(fault: str, before: Before, desk: Desk) -> Parser:
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
