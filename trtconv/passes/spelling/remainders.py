"""Remainders of differences of sizes, as padding to a multiple needs them."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.graph.settled import is_settled
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST_NODES = 64
_LARGEST = 1 << 29
"""Of divisors: three of them fit an int32."""
_OF_SIZES = frozenset(
    (
        *("Abs", "Add", "Cast", "Concat", "Div", "Gather", "Identity", "Max", "Min", "Mod", "Mul", "Neg", "Reshape"),
        *("Slice", "Split", "Squeeze", "Sub", "Unsqueeze"),
    )
)


class SubtractRemainders(Spelling):
    """Writes the remainder of a difference of sizes by those of its terms.

    A builder that takes the quotient of a negative number for positive refuses what is padded by it, (-h) % 8 rows, and
    resized: it takes the sizes for negative.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[h,w] x) => (int64[2] y) <int64[2] by = {8, 8}> { s = Shape (x)  d = Neg (s)  y = Mod (d, by) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[h,w] x) => (int64[2] y) <int64[2] by = {8, 8}>
        { s = Shape (x)  r = Mod (s, by)  d = Sub (by, r)  y = Mod (d, by) }
    """

    name = "subtract-remainders"
    ops = frozenset({"Mod"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return not target.before(9) and _difference(scope, index) is not None

    def write(self, writer: Writer, target: Target) -> str | None:
        by, dtype = writer.values(1, "its divisor"), writer.dtype(writer.input(0))
        terms = _difference(writer.scope, writer.scope.producers[writer.output()])
        if terms is None or dtype not in (np.int32, np.int64) or by.min(initial=1) < 1 or by.max(initial=1) > _LARGEST:
            raise Unwritable("")
        whole, less = terms
        base = writer("Add", writer("Mod", whole, by), by) if whole else by
        writer("Mod", writer("Sub", base, writer("Mod", less, by)), by, to=writer.output())
        return "the remainder of a difference written by those of its terms"


def _difference(scope: Scope, index: int) -> tuple[str, str] | None:
    """Returns what a node takes the remainder of: what is lessened, "" for 0, and by what; None where it is no
    difference of sizes."""
    columns = scope.columns
    dividend, divisor = columns.inputs[index][:2]
    if attribute(columns.nodes[index], "fmod") or scope.constant(divisor) is None:
        return None
    terms = _terms(scope, dividend)
    # What is a remainder itself is as small as it has to be.
    if terms is None or scope.constant(terms[1]) is not None or _node(scope, terms[1])[0] == "Mod":
        return None
    return terms if all(is_settled(scope, term, _OF_SIZES, _MOST_NODES) for term in terms if term) else None


def _terms(scope: Scope, name: str) -> tuple[str, str] | None:
    negated = _negated(scope, name)
    if negated:
        return "", negated
    op, inputs = _node(scope, name)
    if op == "Sub":
        return inputs[0], inputs[1]
    pairs = (inputs, inputs[::-1]) if op == "Add" else ()
    return next(((one, less) for one, other in pairs if (less := _negated(scope, other))), None)


def _negated(scope: Scope, name: str) -> str:
    """Returns the tensor whose negative a tensor is; empty where it is none."""
    op, inputs = _node(scope, name)
    if op == "Neg":
        return inputs[0]
    for one, other in (inputs, inputs[::-1]) if op == "Mul" else ():
        tensor = scope.constant(other)
        if tensor is not None and (scope.whole.array(tensor) == -1).all():
            return one
    return ""


def _node(scope: Scope, name: str) -> tuple[str, list[str]]:
    index = scope.producers.get(name)
    if index is None or scope.columns.domains[index] not in ONNX_DOMAINS:
        return "", []
    return scope.columns.ops[index], list(scope.columns.inputs[index])
