"""Types that are asked for single nodes: those that cannot be had are refused."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from trtconv.core.errors import InputError
from trtconv.core.text import clean
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import dtype_name
from trtconv.precision.casting import CastRefusal, WhyKept
from trtconv.precision.regions import quantized_nodes
from trtconv.precision.schemas import BFLOAT, FLOAT, HALF

_CODES = {"fp32": FLOAT, HALF.name: HALF.code, BFLOAT.name: BFLOAT.code}
_FLOATS = frozenset((*_CODES.values(), TensorProto.DOUBLE))


def refuse_unknown(model: OnnxModel, nodes: Mapping[str, str]) -> None:
    """Refuses types of nodes that are not there.

    Args:
        model: The model, its nodes named.
        nodes: Names of nodes to the types that are asked for.

    Raises:
        InputError: There is no node of such a name.
    """
    if not nodes:
        return
    names = {node.name for scope in model.scopes for node in scope.graph.node}
    lost = sorted(nodes.keys() - names)
    if lost:
        raise InputError(
            f"--node-precision {lost[0]}={nodes[lost[0]]}: the model has no node of that name",
            "Names are those of the rewritten model: trtconv rewrite MODEL -o OUT.onnx; trtconv inspect OUT.onnx.",
        )


def refuse_idle(model: OnnxModel, nodes: Mapping[str, str], *, by_flags: bool = False) -> None:
    """Refuses types of single nodes that the model says to be of another type.

    Args:
        model: The model before a cast, its nodes named.
        nodes: Names of nodes to the types that are asked for.
        by_flags: Whether flags of the builder say the types, and not the graph.

    Raises:
        InputError: A node cannot be computed in the type that was asked for it.
    """
    quantized = quantized_nodes(model) if nodes and not by_flags else set()
    for scope in model.scopes if nodes else ():
        for index, node in enumerate(scope.graph.node):
            kind = nodes.get(node.name)
            if kind is None:
                continue
            made = {scope.types.get(name, 0) for name in node.output if name}
            if 0 not in made and made.isdisjoint(_FLOATS):
                _refuse(node.name, kind, f"the {clean(node.op_type)} computes no floats")
            if (scope.position, index) in quantized:
                _refuse(node.name, kind, "it is computed in int8, as its quantisers say")
            if not by_flags and made.isdisjoint((0, FLOAT, _CODES[kind])):
                _refuse(node.name, kind, f"the model computes it in {dtype_name(max(made & _FLOATS))}")


def refuse_kept(nodes: Mapping[str, str], refused: Mapping[str, CastRefusal], inputs: str, *, sampled: bool) -> None:
    """Refuses types of single nodes that a cast left in float32.

    Args:
        nodes: Names of nodes to the types that are asked for.
        refused: Nodes that were to be cast and were not, and why.
        inputs: What showed which values fit, in words.
        sampled: Whether the user's samples did.

    Raises:
        InputError: There is one.
    """
    for name, kind in nodes.items():
        if kind == "fp32" or name not in refused:
            continue
        why = f"it stays in float32: {refused[name].text}"
        if refused[name].why is not WhyKept.TOO_LARGE:
            _refuse(name, kind, why)
        wider = ", or name bf16" if kind == HALF.name else ""
        samples = "" if sampled else "; --precision auto --data DIR judges by samples"
        _refuse(name, kind, f"{why} (weights, or on {inputs})", f"Leave it out{wider}{samples}.")


def _refuse(name: str, kind: str, why: str, fix: str = "Leave it out, or name another type.") -> None:
    raise InputError(f"--node-precision {clean(name)}={kind} has no effect: {why}", fix)
