"""The terms of ONNX nodes, by ONNX's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.runtimes.proof.terms import adding, elements, known, moving
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.lengths import settled
from trtconv.runtimes.proof.terms.node_call import NodeCall
from trtconv.runtimes.proof.terms.term import Term, Wordless

_WORDS = {**elements.WORDS, **moving.WORDS, **adding.WORDS}
_FIRST_OPSET = 7
"""Before it, operators broadcast along other axes, and normalise by what is in a batch unless they are told not to."""


def terms_of(model: OnnxModel, nodes: Iterable[int], sources: Mapping[str, Term]) -> dict[str, Term | None]:
    """Returns the terms of what nodes of the main graph compute.

    Args:
        model: The model.
        nodes: Their positions, in an order in which each comes after what it reads.
        sources: What they start from.

    Raises:
        Wordless: One of them has none.
    """
    scope, opset = model.main, model.opset
    if opset < _FIRST_OPSET:
        raise Wordless(f"opset {opset}")
    columns = scope.columns
    results: dict[str, Term | None] = {**sources, "": None}
    room = terms.Room()

    def read(name: str) -> Term | None:
        if name in results:
            return results[name]
        values = scope.constant(name)
        if values is None or values.data_type == onnx.TensorProto.STRING:
            raise Wordless(f"{name} is not known")
        # Once, however often it is read: each time may be a copy.
        results[name] = terms.constant(model.array(values))
        return results[name]

    for index in nodes:
        op, names = columns.ops[index], [name for name in columns.outputs[index] if name]
        if columns.domains[index] not in ONNX_DOMAINS or names != list(columns.outputs[index]):
            # How many results there are tells how long each is: one without a name counts too.
            raise Wordless(op)
        call = NodeCall(columns.attributes[index], [read(name) for name in columns.inputs[index]], len(names), opset)
        folding = known.WORDS.get(op)
        words = folding if folding is not None and call.is_known else _WORDS.get(op)
        if words is None:
            raise Wordless(op)
        outcome = words(call)
        call.finish()
        parts = [settled(part) for part in ([outcome] if isinstance(outcome, Term) else outcome)]
        room.take(parts)
        results.update(zip(names, parts, strict=True))
    return results
