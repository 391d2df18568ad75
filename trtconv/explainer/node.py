"""Explains one ConvTranspose: what it computes, what TensorRT's parser makes of it, and what the passes do about it."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.core.codes import CodeFamily
from trtconv.core.documents.explain import Axis, ExplainReport, Explanation, Layers, Listed, Parser
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.findings import Finding, Severity
from trtconv.core.progress import Progress
from trtconv.core.requests.explain import ExplainRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.explainer.around import attributes_of, findings_at, group_of, place_of
from trtconv.explainer.axis import describe_axes, describe_node, joint_advice
from trtconv.explainer.find import find
from trtconv.explainer.isolate import parse_alone
from trtconv.explainer.quantizers import quantization_of
from trtconv.explainer.rewritten import rewrite_of
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import CONCERNED
from trtconv.graph.views import Deconv
from trtconv.passes import PassResult, passes_for
from trtconv.pipeline.preparation import Preparation
from trtconv.rules.base import ModelView
from trtconv.rules.malformed_deconv import MalformedDeconv, channels_fault
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import Runtime


def explain(request: ExplainRequest, progress: Progress | None = None) -> ExplainReport:
    """Explains one ConvTranspose of a model, or lists them all where several could be meant.

    Args:
        request: The model, the node and what it is meant for.
        progress: Told of the stages.

    Returns:
        The report. Without a TensorRT that works here it has no parser's verdict, but all the rest.

    Raises:
        InputError: An unreadable model, an unknown node, or a node that is no ConvTranspose.
    """
    model = OnnxModel.load(request.model)
    # A node in a model-local function gets a place of its own, and its weight, only where the function is called.
    model.inline_functions_with(*CONCERNED)
    nodes = ModelView(model).deconvs
    deconv = find(model, nodes, request.node) if request.node else nodes[0] if len(nodes) == 1 else None
    clock = Stopwatch(progress)
    with clock.stage(Stage.RUNTIME):
        target, engine, why_not = _parser_for(request.target)
    with clock.stage(Stage.EXPLAIN):
        records = tuple(_listed(node) for node in nodes)
        explanation = None if deconv is None else _explain(model, deconv, target, engine, why_not)
    return ExplainReport(str(request.model), target, records, explanation)


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
        _sizes_text(describe_axes(geometry, (node.input_shape or ())[2:])),
    )


def _sizes_text(axes: Sequence[Axis]) -> str:
    if all(axis.size is not None and axis.out is not None for axis in axes):
        return f"{'x'.join(str(axis.size) for axis in axes)} -> {'x'.join(str(axis.out) for axis in axes)}"
    formulas = [f"{axis.size} -> {axis.out}" if axis.size is not None else f"in -> {axis.out_formula}" for axis in axes]
    return ", ".join(dict.fromkeys(formulas))


def _parser_for(target: Target | None) -> tuple[Target, Runtime | None, str]:
    """Returns what a node is explained for, whose parser can be asked, and why none can.

    Args:
        target: None is for the TensorRT that is installed.
    """
    try:
        engine = tensorrt.load(target)
    except EnvironmentMissing as error:
        return target or Target("tensorrt"), None, error.message
    return target if target is not None and target.version else engine.info.target, engine, ""


def _explain(model: OnnxModel, node: Deconv, target: Target, engine: Runtime | None, why_not: str) -> Explanation:
    geometry, weight = node.geometry, node.weight_shape
    findings = findings_at(model, target, node, group_of(node))
    fault = next((finding.message for finding in findings if finding.code == MalformedDeconv.code), None)
    fault = fault or channels_fault(node) or ""
    sound = None if fault or isinstance(geometry, str) else geometry
    axes = () if sound is None else describe_axes(sound, (node.input_shape or ())[2:])
    layers = None if engine is None or fault else parse_alone(model, node, engine)
    rewritten = model.copy()
    changes, result = _rewritten(rewritten, node, target)
    rest = () if result is None else findings_at(rewritten, target, result, {result.index})
    new_layers = None if result is None or engine is None else parse_alone(rewritten, result, engine)
    advice = [f"{', '.join(names)}: {text}" for text, names in _by_text(axes).items()]
    return Explanation(
        place=place_of(node),
        name=node.node.name,
        output=node.node.output[0],
        fault=fault,
        attributes={} if isinstance(geometry, str) else attributes_of(geometry),
        input_shape=node.input_shape,
        weight=weight,
        axes=axes,
        parts=() if sound is None else describe_node(sound, weight, bool(node.bias)),
        parser=_parser(fault, findings, layers, why_not),
        rewrite=rewrite_of(node, changes, result, rest, new_layers),
        quantization=quantization_of(node, findings, result),
        advice=(*advice, *joint_advice(axes)),
    )


def _rewritten(model: OnnxModel, node: Deconv, target: Target) -> tuple[PassResult, Deconv | None]:
    """Runs the passes on a copy of a node's model; returns what they did, and the node there, if it is still there."""
    preparation = Preparation(model, target)
    preparation.name()
    name = model.scopes[node.scope.position].columns.names[node.index]
    changes = preparation.rewrite(passes_for("as-is"))
    return changes, next((deconv for deconv in ModelView(model).deconvs if deconv.node.name == name), None)


def _by_text(axes: Sequence[Axis]) -> dict[str, list[str]]:
    """Returns each piece of advice, and the axes that it is for."""
    groups: dict[str, list[str]] = {}
    for axis in axes:
        for text in axis.advice:
            groups.setdefault(text, []).append(axis.name)
    return groups


def _parser(fault: str, all_findings: Sequence[Finding], layers: Layers | None, why_not: str) -> Parser:
    findings = tuple(f for f in all_findings if CodeFamily.of(f.code) is CodeFamily.DECONVOLUTION)
    if fault:
        expected = "reads the node as something, or fails"
    elif findings:
        expected = "; ".join(f.message for f in findings)
    else:
        expected = "reads the node as it is meant: one deconvolution, with the crops above as its pre and post padding"
        expected += _but_quantizers(all_findings)
    unknown = fault or "the weight's shape is not known, so the node cannot be parsed by itself"
    return Parser(expected, findings, layers, "" if layers else why_not or unknown)


def _but_quantizers(findings: Sequence[Finding]) -> str:
    """Returns what qualifies a right reading of the node itself: that its quantisers are misread or refused."""
    serious = (f.code for f in findings if f.severity is not Severity.INFO)
    codes = sorted({code for code in serious if CodeFamily.of(code) is CodeFamily.QUANTIZATION})
    return f"; not so what quantises it, see {', '.join(codes)} below" if codes else ""
