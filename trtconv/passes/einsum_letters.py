"""Renames the letters of Einstein sums."""

from __future__ import annotations

import string
from collections.abc import Sequence

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal

_ELLIPSIS = "..."


class LowerEinsumLetters(NodePass):
    """Renames the capital letters of an Einsum to small ones, of which TensorRT's parser takes no others.

    torchvision's MaxViT writes its attention with capitals. What an equation without an arrow returns is written down
    first: its order is that of the letters. For TensorRT 8 an ellipsis (OWL-ViT of transformers) becomes letters too,
    where it stands for as many axes of the same sizes everywhere; its parser takes none.

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
        return any(
            equation != equation.lower() or (target.before(9) and _ELLIPSIS.encode() in equation)
            for equation in equations
        )

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
        equation = "".join(names.get(sign, sign) for sign in equation)
        if target.before(9) and _ELLIPSIS in equation:
            spelled = _spelled(equation, [field.shape(tensor) for tensor in node.inputs])
            if isinstance(spelled, Refusal):
                return spelled
            equation = spelled
        node.attrs["equation"] = equation
        field.replace(node, [node])
        return f"equation written as {node.attrs['equation']}"


def _spelled(equation: str, shapes: Sequence[tuple[int | None, ...] | None]) -> str | Refusal:
    """Returns an equation with letters in the place of its ellipses."""
    sources, _, result = equation.partition("->")
    operands = sources.split(",")
    if len(operands) != len(shapes):
        return Refusal(f"the equation is of {len(operands)} inputs, not of {len(shapes)}")
    if any(len(set(letters)) < len(letters) for letters in (operand.replace(_ELLIPSIS, "") for operand in operands)):
        return Refusal("TensorRT 8 takes no diagonals either")
    sizes = set()
    for operand, shape in zip(operands, shapes, strict=True):
        before, dots, after = operand.partition(_ELLIPSIS)
        if not dots:
            continue
        if shape is None:
            return Refusal("for how many axes ... stands is not known")
        sizes.add(shape[len(before) : len(shape) - len(after)])
    # Axes of one element would be repeated, and those of unknown sizes may have one.
    if len(sizes) > 1 or (sum(_ELLIPSIS in operand for operand in operands) > 1 and None in next(iter(sizes))):
        return Refusal("the axes for which ... stands may have other sizes elsewhere")
    free = sorted(set(string.ascii_lowercase) - set(equation))
    axes = len(next(iter(sizes), ()))
    if axes > len(free) or _ELLIPSIS not in result:
        return Refusal(f"there are no {axes} letters for ..." if _ELLIPSIS in result else "what ... stands for is lost")
    return equation.replace(_ELLIPSIS, "".join(free[:axes]))


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
    return f"{_ELLIPSIS if _ELLIPSIS in equation else ''}{''.join(once)}"
