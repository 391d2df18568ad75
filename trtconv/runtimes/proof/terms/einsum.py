"""The term of an Einstein sum."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.runtimes.proof.terms.term import Term, Wordless, require_floats


def contracted(equation: str, operands: Sequence[Term]) -> Term:
    """Returns the sums of products that an equation writes down.

    Args:
        equation: As NumPy's einsum takes it, with its result ("ij,jk->ik"); what its letters are says nothing.
        operands: The operands.
    """
    require_floats(*operands)
    before, arrow, after = equation.replace(" ", "").partition("->")
    rows = before.split(",")
    letters = list(dict.fromkeys("".join(rows)))
    if not arrow or not "".join((*rows, after)).isalpha() or len(rows) != len(operands):
        raise Wordless(equation)
    if any(len(set(row)) != len(row) for row in (*rows, after)) or not set(after) <= set(letters):
        raise Wordless("a diagonal, or an axis of its own")
    sizes: dict[str, int] = {}
    for row, operand in zip(rows, operands, strict=True):
        if len(row) != operand.rank or any(
            sizes.setdefault(letter, size) != size for letter, size in zip(row, operand.sizes, strict=True)
        ):
            raise Wordless("sizes that do not fit")
    places = tuple(tuple(map(letters.index, row)) for row in (*rows, after))
    return Term("einsum", tuple(operands), places, operands[0].dtype, tuple(sizes[letter] for letter in after))
