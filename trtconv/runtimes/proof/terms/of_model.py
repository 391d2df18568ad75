"""The terms of ONNX nodes, by ONNX's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.runtimes.proof.terms import adding, elements, known, moving
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.call import Call
from trtconv.runtimes.proof.terms.term import Term, Wordless

_WORDS = {**elements.WORDS, **moving.WORDS, **adding.WORDS}


def terms_of(model: OnnxModel, nodes: Iterable[int], sources: Mapping[str, Term]) -> dict[str, Term]:
    """Returns the terms of what nodes of the main graph compute.

    Args:
        model: The model.
        nodes: Their positions, in an order in which each comes after what it reads.
        sources: What they start from.

    Raises:
        Wordless: One of them has none.
    """
    scope, opset = model.main, model.opset
    made = dict(sources)

    def read(name: str) -> Term | None:
        if not name or name in made:
            return made.get(name)
        values = scope.constant(name)
        if values is None or values.data_type == onnx.TensorProto.STRING:
            raise Wordless(f"{name} is not known")
        return terms.constant(model.array(values))

    for index in nodes:
        node = scope.columns.nodes[index]
        if node.domain not in ONNX_DOMAINS:
            raise Wordless(node.domain)
        call = Call(node, [read(name) for name in node.input], opset)
        folding = known.WORDS.get(node.op_type)
        words = folding if folding is not None and call.is_known else _WORDS.get(node.op_type)
        if words is None:
            raise Wordless(node.op_type)
        written = words(call)
        call.finish()
        results = [written] if isinstance(written, Term) else written
        made.update(zip((name for name in node.output if name), results, strict=True))
    return made
