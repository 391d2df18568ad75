"""Types that are asked for single nodes, by name or by pattern: those that cannot be had are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import TensorProto

from trtconv.core.documents.pinned import Pinned
from trtconv.core.errors import InputError
from trtconv.core.node_patterns import is_pattern, nearest
from trtconv.core.suggest import did_you_mean
from trtconv.core.text import clean
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.types import dtype_name
from trtconv.precision.casting import CastRefusal, WhyKept
from trtconv.precision.regions import quantized_nodes
from trtconv.precision.schemas import BFLOAT, FLOAT, HALF

_CODES = {"fp32": FLOAT, HALF.name: HALF.code, BFLOAT.name: BFLOAT.code}
_FLOATS = frozenset((*_CODES.values(), TensorProto.DOUBLE))


def pin(model: OnnxModel, types: Mapping[str, str], *, by_flags: bool = False) -> tuple[Pinned, ...]:
    """Returns which nodes the types are for that names and patterns ask for; the nearest one has a node.

    What a pattern means and cannot have its type is left as it is; a name has to be right.

    Args:
        model: The model before a cast, its nodes named.
        types: Names and patterns (`trtconv.core.node_patterns`) to types.
        by_flags: Whether flags of the builder say the types, and not the graph.

    Raises:
        InputError: A name or a pattern means no node, or none that can have its type.
    """
    if not types:
        return ()
    pins: dict[str, list[str]] = {pattern: [] for pattern in types}
    idle: dict[str, list[str]] = {pattern: [] for pattern in types}
    quantized = set() if by_flags else quantized_nodes(model)
    ops: set[str] = set()
    for scope, index in _places(model):
        node = scope.graph.node[index]
        ops.add(node.op_type)
        pattern = nearest(types, node.name, node.op_type)
        if pattern is None:
            continue
        why = _idle(scope, index, types[pattern], quantized, by_flags=by_flags)
        if why and not is_pattern(pattern):
            _refuse(node.name, types[pattern], why)
        (idle if why else pins)[pattern].append(node.name)
    for pattern, nodes in pins.items():
        if not nodes and is_pattern(pattern):
            _refuse_empty(pattern, types[pattern], idle[pattern], ops)
    return tuple(Pinned(pattern, types[pattern], tuple(nodes), len(idle[pattern])) for pattern, nodes in pins.items())


def _places(model: OnnxModel) -> Iterator[tuple[Scope, int]]:
    return ((scope, index) for scope in model.scopes for index in range(len(scope.graph.node)))


def _refuse_empty(pattern: str, kind: str, idle: list[str], ops: set[str]) -> None:
    flag = f"--node-precision {clean(pattern)}={kind}"
    if idle:
        raise InputError(
            f"{flag} has no effect: none of its {len(idle)} nodes can have that type, the first is {clean(idle[0])}",
            "Leave it out: they compute no floats, or their quantisers or the model say their types.",
        )
    hint = "Names are those of the rewritten model: trtconv rewrite MODEL -o OUT.onnx; trtconv inspect OUT.onnx."
    near = did_you_mean(pattern.removeprefix("type:"), ops) if pattern.startswith("type:") else ""
    raise InputError(f"{flag} has no effect: it means no node, or a nearer one has each", near or hint)


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
    missing = sorted(nodes.keys() - names)
    if missing:
        raise InputError(
            f"--node-precision {missing[0]}={nodes[missing[0]]}: the model has no node of that name",
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
    for scope, index in _places(model) if nodes else ():
        node = scope.graph.node[index]
        kind = nodes.get(node.name)
        why = "" if kind is None else _idle(scope, index, kind, quantized, by_flags=by_flags)
        if kind is not None and why:
            _refuse(node.name, kind, why)


def _idle(scope: Scope, index: int, kind: str, quantized: set[tuple[int, int]], *, by_flags: bool) -> str:
    """Returns why a node cannot have a type; nothing where it can."""
    node = scope.graph.node[index]
    codes = {scope.types.get(name, 0) for name in node.output if name}
    if 0 not in codes and codes.isdisjoint(_FLOATS):
        return f"the {clean(node.op_type)} computes no floats"
    if (scope.position, index) in quantized:
        return "it is computed in int8, as its quantisers say"
    if not by_flags and codes.isdisjoint((0, FLOAT, _CODES[kind])):
        return f"the model computes it in {dtype_name(max(codes & _FLOATS))}"
    return ""


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
