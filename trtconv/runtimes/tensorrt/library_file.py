"""What is wrong with a library of plugins, as its bytes tell: TensorRT does not say, and the loader may break down.

Source: the ELF-64 object file format; NvInferRuntime.h, releases 8.6 to 11.1, for what a library exports.
"""

from __future__ import annotations

import struct
from pathlib import Path

from trtconv.core.reading import open_plain

_MAGIC = b"\x7fELF"
_SIXTY_FOUR, _LITTLE = 2, 1
_HEADER = struct.Struct("<16x 2H I 3Q I 6H")
_SEGMENT = struct.Struct("<2I 6Q")
_EXPORTS = (b"getPluginCreators", b"getCreators")
"""By which TensorRT asks a library for its plugins."""


def broken(path: Path) -> str:
    """Says why a file cannot even be tried: the system's loader ends the process on a library that is cut short."""
    size = path.stat().st_size
    with open_plain(path) as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or head[:4] != _MAGIC:
            return "it is no shared library (ELF)"
        if (head[4], head[5]) != (_SIXTY_FOUR, _LITTLE):
            return "it is a library for another kind of processor"
        _, _, _, _, start, _, _, _, entry, count, *_ = _HEADER.unpack(head)
        needed = start + entry * count
        if needed <= size:
            file.seek(start)
            table = file.read(entry * count)
            segments = (_SEGMENT.unpack_from(table, at * entry) for at in range(count * (entry >= _SEGMENT.size)))
            needed = max([needed, *(offset + length for _, _, offset, _, _, length, *_ in segments)])
    return f"it is cut short: {needed} bytes are said to be in it, and it has {size}" if needed > size else ""


def why_refused(path: Path) -> str:
    """Says why TensorRT may have refused a library without a word."""
    with open_plain(path) as file:
        data = file.read()
    if not any(name in data for name in _EXPORTS):
        return "it exports neither getPluginCreators nor getCreators, by which TensorRT asks for plugins"
    return "it has a plugin that is there already, or wants a library that is not here (ldd)"
