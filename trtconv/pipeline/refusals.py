"""Which nodes no engine takes: by TensorRT's parser, by the rules, and by what its user asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from trtconv.core import codes
from trtconv.core.codes import CodeFamily
from trtconv.core.documents.pipeline import LeftNode
from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Severity
from trtconv.core.node_patterns import matches
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.suggest import did_you_mean
from trtconv.core.target import Target
from trtconv.graph.cut_shapes import SELECTIONS
from trtconv.graph.lacking_types import readers_of_lacking_types
from trtconv.graph.model import OnnxModel
from trtconv.graph.operators import lacks_operator
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes, reads
from trtconv.pipeline.parse import parse_model
from trtconv.rules import run_rules
from trtconv.rules.data_dependent_shape import DataDependentShape
from trtconv.runtimes.tensorrt import Runtime

_OF_NODES = (CodeFamily.DECONVOLUTION, CodeFamily.QUANTIZATION, CodeFamily.OPERATORS)
"""Families of codes whose faults go where the node goes; sizes that a model does not take do not."""
CURABLE = frozenset(
    code.code for code in (codes.PARSER_REFUSED, codes.NETWORK_DIFFERS, codes.BUILDER_REFUSED, codes.SHAPE_TENSOR_INPUT)
) | {DataDependentShape.code}
"""What TensorRT says, or is known to say, that is about nodes."""
_TOLD_SIZES = {
    **{"Pad": 1, "Tile": 1, "Range": 0, "ConstantOfShape": 0, "Expand": 1},
    **{"Resize": 1, "Upsample": 1, "Slice": 1, "Reshape": 1},
}
"""Operators and the first of their inputs that says sizes, the seldom ones first."""
_BY_USER = "it was asked to be left to ONNX Runtime"

Reasons = dict[int, str]
"""Position of a node of the main graph to why no engine takes it."""


def refused_nodes(
    model: OnnxModel, target: Target, engine: Runtime | None, leave: Sequence[str], clock: Stopwatch
) -> Reasons:
    """Returns the nodes of the main graph that no engine takes; one with a graph inside counts as a whole.

    Args:
        model: The model after the passes; its functions may be inlined, and its nodes get names.
        target: What the engines are for.
        engine: The TensorRT whose parser is asked; None: rules alone judge.
        leave: Patterns of nodes that are to be left besides; see `matching`.
    """
    reasons: Reasons = {}
    if engine is not None:
        _, faults = parse_model(model, engine, clock)
        reasons.update(at_nodes(model, faults))
    else:
        reasons.update(_without_importer(model, target))
    # The parser names no node of these.
    for index, name, dtype in readers_of_lacking_types(model):
        reasons.setdefault(index, f"TensorRT has no {dtype}, which {name!r} is of")
    judged = [
        finding
        for finding in run_rules(model, target)
        if finding.code in CURABLE or CodeFamily.of(finding.code) in _OF_NODES
    ]
    for index, reason in at_nodes(model, judged).items():
        reasons.setdefault(index, reason)
    if target.family == "rtx":
        # Its parser takes a NonMaxSuppression, and its builder has no kernel for it.
        for index in selections(model, range(len(model.main.columns))):
            reasons.setdefault(index, "TensorRT-RTX has no kernel for what returns as much as it finds")
    reasons.update(dict.fromkeys(matching(model, leave), _BY_USER))
    return reasons


def at_nodes(model: OnnxModel, findings: Iterable[Finding]) -> Reasons:
    """Returns the nodes of the main graph that errors are about, or that hold the graph that they are about."""
    outer = dict(_holders(model))
    reasons: Reasons = {}
    for finding in findings:
        place = finding.location
        if finding.severity is not Severity.ERROR:
            continue
        index = place.index if not place.graph else outer.get(place.graph)
        if index is None and place.node:
            index = next((i for i, name in enumerate(model.main.columns.names) if name == place.node), None)
        if index is not None:
            reasons.setdefault(index, finding.message)
    return reasons


def is_curable(findings: Iterable[Finding], also: Collection[str] = ()) -> bool:
    """Whether all errors of a build go where some nodes go.

    Args:
        findings: Of the build.
        also: Codes of errors that do, besides those that always do.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    cures = CURABLE.union(also)
    return bool(errors) and all(error.code in cures or CodeFamily.of(error.code) in _OF_NODES for error in errors)


def blamed(model: OnnxModel, findings: Sequence[Finding]) -> Reasons:
    """Returns the nodes of a part that its errors are about: by place, by tensor, or what no builder likes.

    Args:
        model: The part, as its file has it.
        findings: Of the build of its engine.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    reasons = at_nodes(model, errors)
    for finding in errors:
        name = finding.location.tensor
        if finding.location.index is None and name:
            makers = [model.main.producers[name]] if name in model.main.producers else []
            readers = (i for i, node in enumerate(model.main.columns.nodes) if name in reads(node))
            for index in makers or readers:
                reasons.setdefault(index, finding.message)
    if not reasons:
        reasons = dict.fromkeys(selections(model, range(len(model.main.columns))), errors[0].message)
    return reasons


def _holders(model: OnnxModel) -> Iterator[tuple[str, int]]:
    """Yields the path of each inner graph, and the node of the main graph that it is in."""
    main = model.main
    # The graphs inside the nodes of one graph come in the order of these nodes.
    first = [scope for scope in model.scopes if scope.parent is main]
    holders = {scope.path: index for scope, (index, _, _) in zip(first, main.columns.bodies(), strict=True)}
    for scope in model.scopes[1:]:
        outer = scope
        while outer.parent is not None and outer.parent is not main:
            outer = outer.parent
        yield scope.path, holders[outer.path]


def _without_importer(model: OnnxModel, target: Target) -> Iterator[tuple[int, str]]:
    functions = {(function.domain, function.name) for function in model.proto.functions}
    for index, outer in enumerate(model.main.columns.nodes):
        for node in all_nodes([outer]):
            foreign = node.domain not in ONNX_DOMAINS and (node.domain, node.op_type) not in functions
            if foreign or (node.domain in ONNX_DOMAINS and lacks_operator(node.op_type, target)):
                yield index, f"{target} has no {node.op_type}"


def selections(model: OnnxModel, nodes: Iterable[int]) -> list[int]:
    """Returns those of some nodes of the main graph that return as much as they find."""
    return [
        index
        for index in nodes
        if any(node.op_type in SELECTIONS for node in all_nodes([model.main.columns.nodes[index]]))
    ]


def nodes_of_computed_sizes(model: OnnxModel) -> list[int]:
    """Returns the nodes of the main graph that are told sizes by others: those of one operator, the first that has any.

    A builder that names no node for its refusal stumbles over these more often than over any other.
    """
    main = model.main
    for op in _TOLD_SIZES:
        nodes = [
            index
            for index in main.positions(op)
            if any(name and main.constant(name) is None for name in main.columns.inputs[index][_TOLD_SIZES[op] :])
        ]
        if nodes:
            return nodes
    return []


def matching(model: OnnxModel, patterns: Sequence[str]) -> list[int]:
    """Returns the nodes of the main graph that patterns mean.

    Args:
        patterns: Each is a node's name, or "type:" and an operator, with * and ? for any letters.

    Raises:
        InputError: A pattern means none.
    """
    columns = model.main.columns
    indices: list[int] = []
    for pattern in patterns:
        pairs = zip(columns.names, columns.ops, strict=True)
        own = [index for index, node in enumerate(pairs) if matches(pattern, *node)]
        if not own:
            names, glob = (columns.ops, pattern[5:]) if pattern.startswith("type:") else (columns.names, pattern)
            raise InputError(
                f"--leave {pattern}: no node of {model.path} is meant",
                did_you_mean(glob, set(names)) or "Give a node's name, or type:OPERATOR.",
            )
        indices += own
    return indices


def left_nodes(model: OnnxModel, reasons: Mapping[int, str]) -> tuple[LeftNode, ...]:
    """Returns nodes and why no engine takes them, as documents have them."""
    scope: Scope = model.main
    return tuple(
        LeftNode(scope.columns.names[index], scope.columns.ops[index], reason.splitlines()[0])
        for index, reason in sorted(reasons.items())
    )
