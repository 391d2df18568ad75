"""Writes determinants of small matrices by their minors."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST = 4


class DeterminantByMinors(Spelling):
    """Writes Det of matrices of up to 4 by 4 as sums of products of their elements.

    Before:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[2,1,1] x) => (float[2] y) { y = Det (x) }
    After:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[2,1,1] x) => (float[2] y) { y = Squeeze <axes = [1, 2]> (x) }
    """

    name = "determinant-by-minors"
    ops = frozenset({"Det"})

    def write(self, writer: Writer, target: Target) -> str | None:
        size = writer.shape(writer.input(0))[-1]
        if size is None or not 0 < size <= _MOST:
            raise Unwritable(f"its matrices are not known to be of 1 by 1 to {_MOST} by {_MOST}")
        rank = len(writer.shape(writer.input(0)))
        rows = [writer("Gather", writer.input(0), np.array(row, np.int64), axis=rank - 2) for row in range(size)]
        cells = [
            [writer("Gather", row, np.array(column, np.int64), axis=rank - 2) for column in range(size)] for row in rows
        ]
        writer("Identity", _minor(writer, cells), to=writer.output())
        return None


def _minor(writer: Writer, cells: list[list[str]]) -> str:
    """Writes the determinant of cells along their first row."""
    if len(cells) == 1:
        return cells[0][0]
    total = ""
    for column, cell in enumerate(cells[0]):
        rest = [[*row[:column], *row[column + 1 :]] for row in cells[1:]]
        product = writer("Mul", cell, _minor(writer, rest))
        total = product if not total else writer("Sub" if column % 2 else "Add", total, product)
    return total
