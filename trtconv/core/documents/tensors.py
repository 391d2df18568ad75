"""Tensors as documents describe them."""

from __future__ import annotations

import dataclasses

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.core.tensor_io import LINEAR, TensorIos


@frozen
class TensorInfo(Document, keys="name kind dtype shape format- scale-"):
    """An input or output of an engine.

    Args:
        name: Its name.
        kind: "input" or "output".
        dtype: Its type, as NumPy calls it.
        shape: Its sizes, -1 where dynamic.
        format: How its elements lie in memory, as `--io` calls it ("chw32"); None: one row after the other.
        scale: What a code is times, to be the number that it stands for; None where elements are numbers.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    format: str | None = None
    scale: float | None = None

    @property
    def type_text(self) -> str:
        """What its elements are, in words: "float16", "int8 times 0.02, chw32"."""
        scale = "" if self.scale is None else f" times {self.scale:g}"
        return f"{self.dtype}{scale}{'' if self.format is None else f', {self.format}'}"

    def laid_out(self, requests: TensorIos) -> TensorInfo:
        """Returns it with the format that was asked for, and the scale of its codes."""
        io = requests.get(self.name)
        if io is None:
            return self
        return dataclasses.replace(self, format=None if io.format == LINEAR else io.format, scale=io.scale)
