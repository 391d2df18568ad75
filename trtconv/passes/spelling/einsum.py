"""Einstein sums whose operands are broadcast."""

from __future__ import annotations

import string
from collections.abc import Sequence

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_DOTS = "..."
_Shape = tuple[int | None, ...]


class SumWithoutOnes(Spelling):
    """Writes an Einsum that sums over an axis of one element in one operand, and more in another, without that axis.

    ONNX repeats the one element; TensorRT's builder fails. Without the letter the operand is repeated as well.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,1] a, float[2,4] b) => (float[3,4] y) { y = Einsum <equation = "ik,kj->ij"> (a, b) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,1] a, float[2,4] b) => (float[3,4] y) <int64[1] one = {1}>
        { c = Squeeze (a, one)  y = Einsum <equation = "i,kj->ij"> (c, b) }
    """

    name = "sum-without-ones"
    ops = frozenset({"Einsum"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        equation = attribute(columns.nodes[index], "equation", b"").decode(errors="replace")
        shapes = [shape for name in columns.inputs[index] if (shape := scope.shape(name)) is not None]
        terms = _terms(equation, shapes)
        return terms is not None and any(_repeated(terms, shapes))

    def write(self, writer: Writer, target: Target) -> str | None:
        shapes = [writer.shape(name) for name in writer.node.input]
        terms = _terms(writer.attrs["equation"], shapes)
        if terms is None:
            raise Unwritable
        *operands, result = terms
        inputs = list(writer.node.input)
        for number, axes in enumerate(_repeated(terms, shapes)):
            if axes:
                inputs[number] = writer.squeeze(inputs[number], axes)
                operands[number] = "".join(s for axis, s in enumerate(operands[number]) if axis not in axes)
        equation = f"{','.join(operands)}->{result}"
        writer.again(inputs, equation=equation)
        return f"its axes that are repeated left out: {equation}"


def _terms(equation: str, shapes: Sequence[_Shape]) -> list[str] | None:
    """Returns the letters of the operands and of the result, with some for each ellipsis; None where nobody can say."""
    sources, arrow, result = "".join(equation.split()).partition("->")
    operands = sources.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    if not arrow or len(operands) != len(shapes):
        return None
    pairs = zip(operands, shapes, strict=True)
    counts = {len(shape) - len(term.replace(_DOTS, "")) for term, shape in pairs if _DOTS in term}
    axes = max(counts, default=0)
    if len(counts) > 1 or not 0 <= axes <= len(free) or (axes and _DOTS not in result):
        return None
    terms = [term.replace(_DOTS, "".join(free[:axes])) for term in (*operands, result)]
    sizes = [(len(term), len(shape)) for term, shape in zip(terms[:-1], shapes, strict=True)]
    fits = all(letters == axes for letters, axes in sizes)
    plain = all(term.isalpha() and len(set(term)) == len(term) for term in terms if term)
    return terms if fits and plain else None


def _repeated(terms: Sequence[str], shapes: Sequence[_Shape]) -> list[list[int]]:
    """Returns for each operand its axes of one element that are summed over, with more in another operand."""
    *operands, result = terms
    pairs = list(zip(operands, shapes, strict=True))
    longer = {s for term, shape in pairs for s, n in zip(term, shape, strict=True) if n is not None and n > 1}
    summed = longer - set(result)
    axes = [[axis for axis, (s, n) in enumerate(zip(*pair, strict=True)) if n == 1 and s in summed] for pair in pairs]
    # A term without letters is nothing that parsers take.
    return [own if len(own) < len(term) else [] for own, term in zip(axes, operands, strict=True)]
