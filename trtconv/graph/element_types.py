"""Element types of tensors, found without inference: it knows them too, but of all tensors, with their sizes."""

from __future__ import annotations

import functools
import re

import onnx
from onnx import TensorProto

from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS


class ElementTypes:
    """Element types of the tensors of a main graph, followed back through nodes that keep the type of an operand.

    What no operator's definition tells is asked of inference.

    Args:
        scope: The main graph.
        opset: Version of the default operator set.
    """

    def __init__(self, scope: Scope, opset: int) -> None:
        self.opset = opset
        self._scope = scope
        inputs = scope.graph.input
        self._kinds: dict[str, int] = {value.name: value.type.tensor_type.elem_type for value in inputs}
        self._kinds |= {name: tensor.data_type for name, tensor in self._scope.initializers.items()}

    def __getitem__(self, name: str) -> int:
        """Returns the element type of a tensor, 0 where it is not known."""
        kinds = self._kinds
        if name in kinds:
            return kinds[name]
        passed: dict[str, None] = {}
        end: str | int = name
        while isinstance(end, str) and end not in kinds and end not in passed:
            passed[end] = None
            end = self._origin(end)
        kind = end if isinstance(end, int) else kinds.get(end, 0)
        # What the graph says of a tensor counts where nobody knows what it is made of.
        kinds.update((tensor, kind or self._type_by_inference(tensor)) for tensor in passed)
        return kinds[name]

    def _origin(self, name: str) -> str | int:
        """Returns the operand of a tensor's node that has the same type; or that type, where there is none such."""
        scope = self._scope
        index, columns = scope.producers.get(name), scope.columns
        if index is None or columns.domains[index] not in ONNX_DOMAINS:
            return self._type_by_inference(name)
        op, outputs, inputs = columns.ops[index], columns.outputs[index], columns.inputs[index]
        if op == "Cast":
            return next((attribute.i for attribute in columns.attributes[index] if attribute.name == "to"), 0)
        place, kind = _type_rule(op, self.opset, 0 if len(outputs) == 1 else list(outputs).index(name))
        if 0 <= place < len(inputs) and inputs[place]:
            return str(inputs[place])
        return kind or self._type_by_inference(name)

    def _type_by_inference(self, name: str) -> int:
        constant = self._scope.constant(name)
        return self._scope.types.get(name, 0) if constant is None else int(constant.data_type)


@functools.cache
def _type_rule(op: str, opset: int, output: int) -> tuple[int, int]:
    """Returns where an operator's result has its element type from.

    Returns:
        The place of the operand whose type it has, -1 where there is none; the type that it always has, 0 for others.
    """
    try:
        schema = onnx.defs.get_schema(op, opset)
    # No set has such a number, where it does not fit 32 bits.
    except (onnx.defs.SchemaError, TypeError):
        return -1, 0
    is_variadic = schema.outputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    place = min(output, len(schema.outputs) - 1) if is_variadic else output
    if place >= len(schema.outputs) or not all(result.is_homogeneous for result in schema.outputs):
        return -1, 0
    type_str = schema.outputs[place].type_str
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    if len(allowed.get(type_str, ())) == 1:
        (type_str,) = allowed[type_str]
    elif type_str in allowed:
        places = (
            i for i, operand in enumerate(schema.inputs) if operand.type_str == type_str and operand.is_homogeneous
        )
        return next(places, -1), 0
    # One for all: "tensor(int64)"; others, as sequences, have none.
    match = re.fullmatch(r"tensor\((\w+)\)", type_str)
    return -1, TensorProto.DataType.Value(match[1].upper()) if match else 0
