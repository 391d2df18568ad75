"""TC005."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core import foreign
from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.operators import is_foreign
from trtconv.graph.scope import Scope
from trtconv.plugins.known import KNOWN, OF_PARSER, KnownPlugin
from trtconv.plugins.registry import STANDARD
from trtconv.rules.base import ModelView, Rule
from trtconv.rules.plugin_limits import fault


class ForeignOperator(Rule):
    """A node is of no operator that the target has, or not as the plugin of that name takes it.

    What it checks:
        Nodes whose operator is neither ONNX's nor a function of the model. Where a library of plugins is given
        (`--plugin`), those that it may have are left to TensorRT. Of NVIDIA's standard plugins: whether the target has
        them, whether attributes and the number of inputs are those of the plugin, and what it is known to compute
        wrongly: DisentangledAttention_TRT over sequences that are no multiple of 64, EfficientNMS_Implicit_TF_TRT over
        several images; of 8.6.0 class_agnostic of EfficientNMS_TRT, and a topK of BatchedNMS above the boxes.
    Why TensorRT cares:
        Its parser looks for a plugin of the operator's name, and refuses the model without one; TensorRT-RTX has none
        for users at all. An attribute that the plugin does not have is passed over without a word.
    Versions:
        All; each standard plugin is in some versions of TensorRT, and in no TensorRT-RTX.
    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17, "my": 1]>
        g (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = my.Swirl (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu (x) }
    Fix:
        Give the library that has the plugin (`--plugin LIB.so`), or write the node in operators of ONNX; correct the
        attributes.
    Source:
        The creators in NVIDIA/TensorRT, releases 8.6, 10.13 and 11.1; networks parsed by TensorRT-RTX 1.7.1.
    """

    code = "TC005"
    name = "foreign-operator"
    fix = "Give the library that has the plugin (--plugin LIB.so), or write the node in operators of ONNX."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        # What is installed says itself which node it refuses; a plugin's name is then known to it.
        has_plugins = bool(foreign.current().plugins)
        for scope in view.model.scopes:
            columns = scope.columns
            pairs = dict.fromkeys(zip(columns.domains, columns.ops, strict=True))
            strange = {pair for pair in pairs if is_foreign(view.model.proto, *pair)}
            for index, pair in enumerate(zip(columns.domains, columns.ops, strict=True)):
                if pair not in strange:
                    continue
                message = _fault(scope, index, target, has_plugins)
                if message:
                    yield self.finding(message, scope.location(index))
                elif wrong := fault(scope, index, target):
                    yield self.finding(wrong[0], scope.location(index), wrong[1])


def _fault(scope: Scope, index: int, target: Target, is_own: bool) -> str:
    op = scope.columns.ops[index]
    plugin = KNOWN.get(op)
    if plugin is None:
        # TensorRT-RTX is installed wherever it is meant, and its parser tells. Of operators that are called like
        # ONNX's, parsers make what they make of those, whatever the domain is; the reference judges it.
        unknown = target.family == "tensorrt" and not is_own and not op.startswith("TRT_") and op not in STANDARD
        return f"{op} is neither an operator of ONNX nor a plugin of TensorRT's own" if unknown else ""
    if target.family == "rtx":
        return f"{op} is a plugin of the full TensorRT, and TensorRT-RTX takes no plugins"
    if not plugin.is_in(target):
        return "" if is_own else f"{target} has no plugin {op}"
    return "" if plugin.fields is None else _misuse(scope, index, op, plugin)


def _misuse(scope: Scope, index: int, op: str, plugin: KnownPlugin) -> str:
    """Returns what of a node the plugin does not take."""
    columns = scope.columns
    names = {attribute.name for attribute in columns.attributes[index]} - {*OF_PARSER}
    assert plugin.fields is not None
    extra, lacking = sorted(names - plugin.fields), sorted(plugin.required - names)
    if extra:
        return f"plugin {op} has no field {extra[0]}; it has {', '.join(sorted(plugin.fields)) or 'none'}"
    if lacking:
        return f"plugin {op} needs the attribute {lacking[0]}"
    count = len(columns.inputs[index])
    if plugin.inputs is not None and not plugin.inputs[0] <= count <= plugin.inputs[1]:
        return f"plugin {op} takes {' to '.join(map(str, dict.fromkeys(plugin.inputs)))} inputs, and is given {count}"
    return ""
