"""Element types and operator sets by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import onnx

ONNX_DOMAINS = ("", "ai.onnx")


MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators, which its quantiser writes."""


KNOWN_DOMAINS = (*ONNX_DOMAINS, MICROSOFT)
"""Domains whose operators passes may ask for."""


CONCERNED = (
    *("ConvTranspose", "QuantizeLinear", "DequantizeLinear", "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger"),
    *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
)
"""Operators that rules and passes are about, so that functions which hold them are inlined."""


INTEGERS = frozenset({"int32", "int64"})
"""Types of integers that TensorRT computes in, as NumPy calls them."""

PROTOBUF_LIMIT = 2**31 - 2**20
"""Bytes that fit one protobuf message, with some room for the rest of the model."""


def dtype_name(code: int) -> str:
    """Returns ONNX's name of an element type, in small letters: "float", "int8"."""
    return str(onnx.TensorProto.DataType.Name(code)).lower()


@functools.cache
def known_dtype_name(code: int) -> str | None:
    """Returns numpy's name of an ONNX element type; None for an unknown one."""
    if code == onnx.TensorProto.UNDEFINED:
        return None
    return str(onnx.helper.tensor_dtype_to_np_dtype(code))


def undefined_opset(opsets: Iterable[onnx.OperatorSetIdProto]) -> str:
    """Returns why the onnx that is installed cannot say what ONNX's own operators of a model mean; "" where it can.

    An operator of a newer set may mean something else than the one of that name which the package knows.
    """
    newest = onnx.defs.onnx_opset_version()
    version = max((opset.version for opset in opsets if opset.domain in ONNX_DOMAINS), default=0)
    if version <= newest:
        return ""
    package = f"onnx {onnx.__version__}, which is installed, knows operators up to opset {newest}"
    return f"{package}, and the model has opset {version}: pip install --upgrade onnx"


MOVES = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Expand", "Identity")
"""Operators that only move what is in their first input."""
