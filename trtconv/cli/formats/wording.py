"""Small pieces of text that all renderers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trtconv.core.dims import sizes_text
from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.text import clean


def count(number: int, noun: str) -> str:
    """Returns "1 error" or "2 errors"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def byte_size(size_bytes: int | None) -> str:
    """Returns a size that a person can compare: "512 bytes", "3.4 kB", "1.2 MB"; "? bytes" where it is not known."""
    if size_bytes is None:
        return "? bytes"
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def shape_text(shape: Iterable[int | str]) -> str:
    """Returns "1x3x64x64", or "scalar" for rank 0. What a report holds for a size may be any text."""
    return clean("x".join(str(size) for size in shape)) or "scalar"


def dims_text(dims: Sequence[int | str]) -> str:
    """Returns "batch x 8 x (height/2 + 1)", or "scalar" for rank 0; a size that is not known is "?"."""
    texts = ["?" if dim == -1 else str(dim) for dim in dims]
    return " x ".join(f"({dim})" if " " in dim else dim for dim in texts) or "scalar"


def memory_by_profile(sizes: Sequence[int] | None) -> str:
    """Returns " (by profile: 1.2 MB, 3.4 MB)" where there are several; "" where there is nothing to tell apart."""
    return f" (by profile: {', '.join(map(byte_size, sizes))})" if sizes and len(sizes) > 1 else ""


def memory_lines(memory: MemoryRecord | None) -> list[str]:
    """Says what a network takes at its largest sizes; nothing where that is not known."""
    if memory is None:
        return []
    lines = []
    for need in memory.profiles:
        sizes = sizes_text(need.sizes)
        node = " ".join(filter(None, (need.node.op, need.node.node)))
        more = "" if need.complete else ", and more behind nodes whose sizes are not known"
        total = f"{byte_size(memory.model_bytes)} of the model, {byte_size(need.bytes)} of activations"
        lines.append(clean(f"memory: about {total}{f' at {sizes}' if sizes else ''}, most at {node}{more}"))
    return lines


def shapes_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """Returns the shapes of all inputs: "1x3x64x64, scalar"."""
    return ", ".join(shape_text(shape) for shape in shapes.values())


def table(rows: Sequence[Sequence[str]], indent: str) -> list[str]:
    """Aligns columns. Cells may be foreign text: they are made `clean` here.

    Args:
        rows: Rows of equal length.
        indent: What every line begins with.
    """
    texts = [[clean(str(cell)) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
