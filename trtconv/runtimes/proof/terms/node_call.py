"""One ONNX node, asked for all that it has: what nobody asked for has no words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.arrays import Array
from trtconv.runtimes.proof.terms.operands import Operands
from trtconv.runtimes.proof.terms.term import Term, Wordless, is_small


def _value(attribute: onnx.AttributeProto) -> Any:
    # Most are lists of integers, which onnx asks for last.
    if attribute.type == onnx.AttributeProto.INTS and not attribute.ref_attr_name:
        return attribute.ints[:]
    return helper.get_attribute_value(attribute)


class NodeCall(Operands):
    """One node with what it reads.

    Args:
        attributes: Its attributes.
        inputs: Terms of its inputs; None where an optional one is absent.
        results: How many results it has.
        opset: Version of ONNX's operators.
    """

    def __init__(
        self, attributes: Iterable[onnx.AttributeProto], inputs: Sequence[Term | None], results: int, opset: int
    ) -> None:
        self.opset, self.results = opset, results
        super().__init__(inputs)
        self._attributes = {entry.name: _value(entry) for entry in attributes}

    @property
    def is_known(self) -> bool:
        """Whether all that the node reads is few constants."""
        return bool(self._inputs) and all(operand is None or is_small(operand.array) for operand in self._inputs)

    def take(self, name: str, default: Any) -> Any:
        """Returns an attribute, once; what nobody takes has no words."""
        return self._attributes.pop(name, default)

    def take_all(self) -> dict[str, Any]:
        """Returns all attributes, text as text."""
        attributes, self._attributes = self._attributes, {}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}

    def number(self, name: str, default: float) -> float:
        """Returns an attribute as the number that 32 bits hold."""
        return float(np.float32(self.take(name, default)))

    def flag(self, name: str, default: int) -> bool:
        """Returns an attribute that is 0 or 1; of other numbers some say that they are neither."""
        value = self.take(name, default)
        if value not in (0, 1):
            raise Wordless(f"{name} {value}")
        return bool(value)

    def array(self, index: int) -> Array:
        """Returns the values of an input.

        Raises:
            Wordless: They are not known.
        """
        operand = self.operand(index)
        if operand.array is None:
            raise Wordless("values that are computed")
        return operand.array

    def values_of(self, tensor: onnx.TensorProto) -> Array:
        """Returns the values of an attribute that is a tensor."""
        if tensor.data_type == onnx.TensorProto.STRING or tensor.external_data:
            raise Wordless("values that are elsewhere, or text")
        return np.asarray(onnx.numpy_helper.to_array(tensor))

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if self._attributes:
            raise Wordless("more than is written down here")
        super().finish()


def axes_of(call: NodeCall, as_input_from: int) -> list[int]:
    """Returns axes that became an input with an opset."""
    axes = call.ints(1) if call.opset >= as_input_from else call.take("axes", None)
    if not axes:
        raise Wordless("axes of its own")
    return list(axes)


Words = Callable[[NodeCall], "Term | Sequence[Term]"]
"""What a node computes, for each of its results where there are several."""
