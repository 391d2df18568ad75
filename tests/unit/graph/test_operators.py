"""Which operators each target has an importer for, and which nobody can compute."""

from __future__ import annotations

import pytest

from support.onnx_models import parse
from trtconv.core.target import Target
from trtconv.graph.operators import is_foreign, lacks_operator

NEW_IN = {
    (10, 0): "CastLike Gelu GroupNormalization Hardmax Mish",
    (10, 1): "DeformConv",
    (10, 14): "Attention",
    (11, 0): "BlackmanWindow HammingWindow HannWindow STFT Swish RMSNormalization RotaryEmbedding TensorScatter",
}
NOWHERE = "AffineGrid Col2Im ConvInteger DFT Det MatMulInteger MaxUnpool Optional QLinearConv SequenceAt Unique"


@pytest.mark.parametrize(("version", "op"), [(v, op) for v, ops in NEW_IN.items() for op in ops.split()])
def test_operators_are_there_from_a_version_on(version: tuple[int, int], op: str) -> None:
    before = (version[0], version[1] - 1) if version[1] else (version[0] - 1, 99)
    assert lacks_operator(op, Target("tensorrt", before))
    assert not lacks_operator(op, Target("tensorrt", version))
    assert not lacks_operator(op, Target("tensorrt", None)), "the newest counts"
    assert lacks_operator(op, Target("rtx", (1, 7))) == (op == "DeformConv")


@pytest.mark.parametrize("target", [Target("rtx", (1, 7)), Target("tensorrt", None), Target("tensorrt", (8, 6))])
def test_operators_of_no_version_and_of_every_one(target: Target) -> None:
    assert all(lacks_operator(op, target) for op in NOWHERE.split())
    assert not any(lacks_operator(op, target) for op in ("Conv", "Relu", "NonZero", "If", "QuantizeLinear"))


@pytest.mark.parametrize(
    ("domain", "op", "foreign"),
    [
        ("", "Conv", False),
        ("ai.onnx", "Conv", False),
        ("", "NoSuchOperator", True),
        ("ai.onnx", "NoSuchOperator", True),
        ("", "ImageScaler", False),
        ("my", "f", False),
        ("my", "g", True),
        ("other", "f", True),
        ("other", "Conv", True),
        ("com.microsoft", "Gelu", False),
        ("ai.onnx.ml", "Scaler", False),
    ],
)
def test_what_neither_onnx_nor_a_function_says_is_foreign(domain: str, op: str, foreign: bool) -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["": 17, "my": 1]> m (float[2] x) => (float[2] y) { y = my.f (x) }
        <domain: "my", opset_import: ["": 17]> f (a) => (b) { b = Neg (a) }"""
    )
    assert is_foreign(model, domain, op) == foreign
