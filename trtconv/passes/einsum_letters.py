"""Renames the letters of Einstein sums."""

from __future__ import annotations

import string

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal


class LowerEinsumLetters(NodePass):
    """Renames the capital letters of an Einsum to small ones, of which TensorRT's parser takes no others.

    torchvision's MaxViT writes its attention with capitals. What an equation without an arrow returns is written down
    first: its order is that of the letters.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x, float[2,4,5] z) => (float[2,3,5] y)
        { y = Einsum <equation = "B I j, B j K -> B I K"> (x, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x, float[2,4,5] z) => (float[2,3,5] y) { y = Einsum <equation = "abj,ajc->abc"> (x, z) }
    """

    name = "lower-einsum-letters"
    ops = frozenset({"Einsum"})
    looks_around = False

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        equations = (entry.s for entry in scope.columns.attributes[index] if entry.name == "equation")
        return any(equation != equation.lower() for equation in equations)

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        equation = "".join(node.attrs["equation"].split())
        letters = set(filter(str.isalpha, equation))
        names = _small(letters)
        if not letters <= set(string.ascii_letters) or names is None:
            return Refusal(f"{len(letters)} letters have no small ones")
        if "->" not in equation:
            result = _implied(equation)
            if result is None:
                return Refusal("which of small and capital letters come first, nobody says")
            equation = f"{equation}->{result}"
        node.attrs["equation"] = "".join(names.get(sign, sign) for sign in equation)
        field.replace(node, [node])
        return f"equation written as {node.attrs['equation']}"


def _small(letters: set[str]) -> dict[str, str] | None:
    """Returns a small letter for each capital, which nothing else has; None where there are too few."""
    capitals = sorted(letters & set(string.ascii_uppercase))
    free = sorted(set(string.ascii_lowercase) - letters)
    return None if len(capitals) > len(free) else dict(zip(capitals, free, strict=False))


def _implied(equation: str) -> str | None:
    """Returns what is returned without an arrow: the letters that occur once, in their order; None: it has none."""
    once = sorted(letter for letter in set(filter(str.isalpha, equation)) if equation.count(letter) == 1)
    if len({letter.isupper() for letter in once}) > 1:
        return None
    return f"{'...' if '...' in equation else ''}{''.join(once)}"
