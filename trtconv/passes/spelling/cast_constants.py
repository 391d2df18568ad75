"""Constants that a parser misreads in the type that they have, and reads right as another one behind a Cast."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.wider import ComputeWider
from trtconv.passes.spelling.writer import Writer


class CastConstants(Spelling):
    """Stores constants in another type, and casts them back before what adds, compares or moves them.

    Attributes:
        type: The type of theirs that is misread, of ONNX.
        through: The type that they are stored in.
    """

    ops = ComputeWider.ops
    type: ClassVar[int]
    through: ClassVar[np.dtype[Any]]

    @abc.abstractmethod
    def misreads(self, values: Any, target: Target) -> bool:
        """Whether a target misreads a constant of that type with these values."""

    def stored(self, values: Any) -> Any:
        """Returns values in the type that they are stored in."""
        return values.astype(self.through)

    def _sites(self, scope: Scope, target: Target) -> list[int]:
        around: Scope | None = scope
        while around is not None and self.type not in around.constant_types:
            around = around.parent
        # Most models have no constant of that type.
        return [] if around is None else super()._sites(scope, target)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return any(self._is_misread(scope, name, target) for name in scope.columns.inputs[index] if name)

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs = [self._cast(writer, name, target) for name in writer.node.input]
        writer.again(inputs)
        number = sum(map(str.__ne__, inputs, writer.node.input))
        return f"{number} constants of {writer.node.op_type} cast from {self.through}"

    def _is_misread(self, scope: Scope, name: str, target: Target) -> bool:
        tensor = scope.constant(name)
        # The type first: values of weights may lie in another file.
        return tensor is not None and tensor.data_type == self.type and self.misreads(scope.values(name), target)

    def _cast(self, writer: Writer, name: str, target: Target) -> str:
        values = writer.scope.values(name) if name and self._is_misread(writer.scope, name, target) else None
        return name if values is None else writer.cast(writer.constant(self.stored(values)), values.dtype)
