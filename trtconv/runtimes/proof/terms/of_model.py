"""The terms of ONNX nodes, by ONNX's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.types import ONNX_DOMAINS, undefined_opset
from trtconv.runtimes.proof.terms import adding, elements, known, moving
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.lengths import settled
from trtconv.runtimes.proof.terms.node_call import NodeCall
from trtconv.runtimes.proof.terms.term import Term, Wordless

_WORDS = {**elements.WORDS, **moving.WORDS, **adding.WORDS}
_FIRST_OPSET = 7
"""Before it, operators broadcast along other axes, and normalise by what is in a batch unless they are told not to."""


class NodeTerms:
    """The terms of what nodes of a model's main graph compute.

    Args:
        model: The model, which must not change.
    """

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._scope, self._opset = model.main, model.opset
        self._why = undefined_opset(model.proto.opset_import)

    def of(self, nodes: Iterable[int], sources: Mapping[str, Term]) -> dict[str, Term | None]:
        """Returns the terms of what some nodes compute.

        Args:
            nodes: Their positions, in an order in which each comes after what it reads.
            sources: What they start from.

        Raises:
            Wordless: One of them has none.
        """
        if self._opset < _FIRST_OPSET or self._why:
            raise Wordless(self._why or f"opset {self._opset}")
        columns = self._scope.columns
        results: dict[str, Term | None] = {**sources, "": None}
        room = terms.Room()
        for index in nodes:
            names = columns.outputs[index]
            if columns.domains[index] not in ONNX_DOMAINS or not all(names):
                # How many results there are tells how long each is: one without a name counts too.
                raise Wordless(columns.ops[index])
            outcome = self._outcome(index, [self._read(name, results) for name in columns.inputs[index]])
            parts = [settled(part) for part in ([outcome] if isinstance(outcome, Term) else outcome)]
            room.take(parts)
            results.update(zip(names, parts, strict=True))
        return results

    def _read(self, name: str, results: dict[str, Term | None]) -> Term | None:
        if name in results:
            return results[name]
        values = self._scope.constant(name)
        if values is None or values.data_type == onnx.TensorProto.STRING:
            raise Wordless(f"{name} is not known")
        # Once, however often it is read: each time may be a copy.
        results[name] = terms.constant(self._model.array(values))
        return results[name]

    def _outcome(self, index: int, inputs: Sequence[Term | None]) -> Term | Sequence[Term]:
        """Returns what one node makes of its inputs."""
        columns = self._scope.columns
        op = columns.ops[index]
        call = NodeCall(columns.attributes[index], inputs, len(columns.outputs[index]), self._opset)
        folding = known.WORDS.get(op)
        words = folding if folding is not None and call.is_known else _WORDS.get(op)
        if words is None:
            raise Wordless(op)
        outcome = words(call)
        call.finish()
        return outcome
