"""Which operators a target has an importer for, as its parser itself says or its documentation does."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.types import KNOWN_DOMAINS, ONNX_DOMAINS

_NOWHERE = frozenset(
    (
        *("AffineGrid", "Bernoulli", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
        *("CenterCropPad", "Col2Im", "Compress", "ConcatFromSequence", "ConvInteger", "CumProd", "DFT"),
        *("Det", "DynamicQuantizeLinear", "ImageDecoder", "MatMulInteger", "MaxRoiPool", "MaxUnpool"),
        *("MelWeightMatrix", "Multinomial", "NegativeLogLikelihoodLoss", "Optional", "OptionalGetElement"),
        *("OptionalHasElement", "QLinearConv", "QLinearMatMul", "RegexFullMatch", "SequenceAt", "SequenceConstruct"),
        *("SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence"),
        *("SoftmaxCrossEntropyLoss", "StringConcat", "StringNormalizer", "StringSplit", "SwiGLU", "TfIdfVectorizer"),
        *("Unique", "CausalConvWithState", "LinearAttention", "FlexAttention"),
    )
)
"""What no version has. Of the last three the parsers know the names, and ask for plugins that are not shipped."""
_NEW_IN = {
    **dict.fromkeys(("CastLike", "Gelu", "GroupNormalization", "Hardmax", "Mish"), (10,)),
    "DeformConv": (10, 1),
    "Attention": (10, 14),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "STFT", "Swish"), (11,)),
    **dict.fromkeys(("RMSNormalization", "RotaryEmbedding", "TensorScatter"), (11,)),
}
"""The version of the full TensorRT from which its parser has an operator, or surely has it."""


def lacks_operator(op: str, target: Target) -> bool:
    """Whether a target has no importer for an operator of ONNX's own domain.

    Args:
        op: The operator.
        target: Its family and version; where the version is not known, the newest counts.

    Source: `OnnxParser.supports_operator` of TensorRT-RTX 1.7.1; operator tables and release notes of the parsers of
    8.6, 10 and 11; ONNX's node tests on TensorRT 8.6.0 (bench/results/gpu-node-suite-8.6.json).
    """
    return op in _NOWHERE or (op == "DeformConv" and target.family == "rtx") or target.before(*_NEW_IN.get(op, (0,)))


_HALF = frozenset(("float16", "bfloat16"))
_NOT_IN: dict[str, frozenset[str]] = {
    **dict.fromkeys(("Mean", "MeanVarianceNormalization"), _HALF),
    **dict.fromkeys(
        ("GlobalLpPool", "HardSwish", "LpNormalization", "LpPool", "Mish", "Shrink"), frozenset(("bfloat16",))
    ),
}
"""Operators of parsers to the types of ONNX that they refuse or misread; a Mean is one of 1/n in float32."""
OF_FEWER_TYPES = frozenset(_NOT_IN)
"""Operators that lack types."""


def lacks_type(op: str, dtype: str | None) -> bool:
    """Whether parsers refuse or misread an operator of ONNX's own domain of a type, "float16", that ONNX allows.

    Source: networks of TensorRT-RTX 1.7.1, read back.
    """
    return dtype in _NOT_IN.get(op, ())


_OF_PARSERS = frozenset(("Affine", "Crop", "GivenTensorFill", "ImageScaler", "ParametricSoftplus", "ScaledTanh"))
"""Operators that ONNX has given up, and TensorRT's parsers still take."""


def is_foreign(model: onnx.ModelProto, domain: str, op: str) -> bool:
    """Whether neither ONNX, ONNX Runtime nor a function of the model says what an operator computes."""
    if any((function.domain, function.name) == (domain, op) for function in model.functions):
        return False
    if domain in ONNX_DOMAINS:
        return not onnx.defs.has(op) and op not in _OF_PARSERS
    return domain not in KNOWN_DOMAINS and not domain.startswith("ai.onnx")
