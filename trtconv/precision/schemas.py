"""Which inputs and outputs of an operator can be of another float type, by ONNX's own schemas."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto

from trtconv.core.frozen import frozen

FLOAT = TensorProto.FLOAT


@frozen
class Kind:
    """What is cast to.

    Args:
        name: As `--precision` has it.
        code: The ONNX element type.
        type_string: The same as schemas name it.
        largest: Largest finite value.
        smallest: Smallest positive value.
    """

    name: str
    code: int
    type_string: str
    largest: float
    smallest: float


HALF = Kind("fp16", TensorProto.FLOAT16, "tensor(float16)", 65504.0, 2.0**-24)


BFLOAT = Kind("bf16", TensorProto.BFLOAT16, "tensor(bfloat16)", 3.3895e38, 2.0**-133)


class Slots:
    """Which inputs and outputs of an operator may have the lower precision."""

    def __init__(self, schemas: Sequence[Any], type_string: str) -> None:
        pairs = [_allowing(schema, type_string) for schema in schemas]
        self._inputs = [inputs for inputs, _ in pairs]
        self._outputs = [outputs for _, outputs in pairs]

    def input(self, index: int) -> bool:
        """Whether the input may; the last one of a schema stands for all further ones."""
        return any(slots and slots[min(index, len(slots) - 1)] for slots in self._inputs)

    def output(self, index: int) -> bool:
        """Whether the output may."""
        return any(slots and slots[min(index, len(slots) - 1)] for slots in self._outputs)


def _allowing(schema: Any, type_string: str) -> tuple[list[bool], list[bool]]:
    """Returns for every input and output of a schema whether it may have float32 and a type alike."""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    both = {name for name, types in allowed.items() if {type_string, "tensor(float)"} <= types}
    return [f.type_str in both for f in schema.inputs], [f.type_str in both for f in schema.outputs]


@functools.cache
def slots_of(op: str, opset: int, kind: Kind) -> Slots | None:
    """Returns what may be cast of a standard operator; None where there is no such operator."""
    try:
        schemas = [onnx.defs.get_schema(op, opset)]
    except onnx.defs.SchemaError:
        return None
    if kind is BFLOAT:
        # Convolutions have it since opset 22 only; TensorRT has it whatever the opset is, and so has the meaning.
        with contextlib.suppress(onnx.defs.SchemaError):
            schemas.append(onnx.defs.get_schema(op))
    return Slots(schemas, kind.type_string)
