"""Element types and operator sets by name."""

from __future__ import annotations

import onnx

ONNX_DOMAINS = ("", "ai.onnx")


KNOWN_DOMAINS = (*ONNX_DOMAINS, "com.microsoft")
"""Domains whose operators passes may ask for; ONNX Runtime's quantiser writes the last one."""


CONCERNED = (
    *("ConvTranspose", "QuantizeLinear", "DequantizeLinear", "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger"),
    *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
)
"""Operators that rules and passes are about, so that functions which hold them are inlined."""


PROTOBUF_LIMIT = 2**31 - 2**20
"""Bytes that fit one protobuf message, with some room for the rest of the model."""


def dtype_name(code: int) -> str:
    """Returns ONNX's name of an element type, in small letters: "float", "int8"."""
    return str(onnx.TensorProto.DataType.Name(code)).lower()


def known_dtype_name(code: int) -> str | None:
    """Returns numpy's name of an ONNX element type; None for an unknown one."""
    if code == onnx.TensorProto.UNDEFINED:
        return None
    return str(onnx.helper.tensor_dtype_to_np_dtype(code))


MOVES = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Expand", "Identity")
"""Operators that only move what is in their first input."""
