"""What to do about a node of another domain than ONNX's that TensorRT refuses."""

from __future__ import annotations

import dataclasses

from trtconv.core.frozen import frozen
from trtconv.graph.checker import attribute_names
from trtconv.graph.model import OnnxModel
from trtconv.graph.node_validity import fault_of_node
from trtconv.graph.types import MICROSOFT, ONNX_DOMAINS
from trtconv.runtimes.tensorrt import ParserIssue

PARTITION = "leave it to ONNX Runtime: build --partition (docs/partition.md)"
_UNKNOWN = "Plugin not found"
"""What the parser says of an operator that it does not know."""
_TEXT = "object"
"""What NumPy calls the type of strings."""


_OF_NO_DOMAIN = (
    "An exporter left an operator of its own framework: export again with a newer one, or write it otherwise in the "
    "network; where it is a plugin's, name its library with --plugin (docs/plugins.md)."
)


@frozen
class Advice:
    """What is said of a refused node.

    Args:
        message: Why it is refused.
        fix: What to do.
    """

    message: str
    fix: str


def advice(model: OnnxModel, issue: ParserIssue) -> Advice:
    """Returns why the parser refuses a node, by its domain where the parser does not know the operator, and what to do.

    Args:
        issue: What the parser said.
    """
    domain = _domain(model, issue)
    remedy = _remedy(domain)
    is_strange = domain not in ONNX_DOMAINS
    # Of an input or an initializer there is no operator.
    is_defined = not issue.op or attribute_names(issue.op, model.opset) is not None
    if not (is_strange or is_defined or _is_function(model, domain, issue.op)):
        # What TensorRT has as a plugin is named like this, too.
        why = f"ONNX has no {issue.op}, and TensorRT no plugin of that name" if _UNKNOWN in issue.message else ""
        return Advice(why or issue.message, _OF_NO_DOMAIN)
    if is_strange and _UNKNOWN in issue.message:
        issue = dataclasses.replace(issue, message=f"it has no {issue.op} of {domain}")
        if remedy:
            return Advice(issue.message, remedy)
    fix = "Replace the operator, or change what the message names"
    has_node = 0 <= issue.node_index < len(model.proto.graph.node)
    if not has_node and (texts := _texts(model)):
        return Advice(issue.message, f"TensorRT has no tensors of strings: compute {texts} outside of the network.")
    if has_node and not (is_strange or issue.inside) and (fault := fault_of_node(model, issue.node_index)):
        return Advice(
            issue.message,
            f"The node is not valid, so ONNX Runtime refuses it too ({fault}): correct it, or export the model again.",
        )
    runs = has_node and (not is_strange or bool(remedy) or _is_function(model, domain, issue.op))
    return Advice(issue.message, f"{fix}; or {PARTITION}." if runs else f"{fix}.")


def _texts(model: OnnxModel) -> str:
    """Returns the inputs and initializers of the main graph that hold strings, in words; "" where there are none."""
    names = [*(spec.name for spec in model.inputs), *model.main.initializers]
    return ", ".join(repr(name) for name in names if model.main.dtype(name) == _TEXT)


def _remedy(domain: str) -> str:
    """Returns what to do about an operator of a domain that ONNX Runtime has; "" for other domains."""
    if domain.endswith(("nchwc", "nhwc")):
        return (
            "ONNX Runtime laid the model out for one processor: give the model from before, or have it optimised up to "
            "ORT_ENABLE_EXTENDED."
        )
    if domain == "ai.onnx.ml":
        return (
            "It is of classical machine learning: compute it before or behind the engine, write trees with "
            f"hummingbird-ml, or {PARTITION}."
        )
    if domain.startswith(MICROSOFT):
        return (
            "It is of ONNX Runtime alone: give the model from before ONNX Runtime optimised or quantised it, or save "
            f"it with ORT_ENABLE_BASIC; or {PARTITION}."
        )
    return ""


def _domain(model: OnnxModel, issue: ParserIssue) -> str:
    """Returns the domain of a refused node, which may be inside another."""
    if not issue.inside and 0 <= issue.node_index < len(model.proto.graph.node):
        return str(model.proto.graph.node[issue.node_index].domain)
    places = (scope.columns.domains[index] for scope in model.scopes for index in scope.by_op.get(issue.op, ()))
    return next(iter(places), "")


def _is_function(model: OnnxModel, domain: str, op: str) -> bool:
    return any((function.domain, function.name) == (domain, op) for function in model.proto.functions)
