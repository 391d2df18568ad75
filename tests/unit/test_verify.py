"""The comparison of a model with its rewrite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest

from models import parse, wrap
from trtconv.verify import compare_models, relative_error


def compare(before: str, after: str) -> dict[str, Any]:
    return compare_models(wrap(parse(before)), wrap(parse(after)))


def relu(op: str = "Relu", shape: str = "n,3,h,w", opset: int = 17) -> str:
    return f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[{shape}] x) => (float[{shape}] y) {{ y = {op} (x) }}"""


def test_equal_models() -> None:
    assert compare(relu(), relu()) == {"max_relative_error": 0.0, "why": None, "inputs": {"x": [2, 3, 64, 64]}}


def test_different_models() -> None:
    assert compare(relu(), relu("Neg"))["max_relative_error"] > 0.5


def test_sizes_that_a_model_accepts_are_looked_for() -> None:
    reshape = """<ir_version: 8, opset_import: ["": 17]> g (float[n,h] x) => (float[a,b] y)
        <int64[2] s = {-1, 48}> { y = Reshape <allowzero=1> (x, s) z = Concat <axis=1> (x, x) }"""
    assert compare(reshape, reshape)["inputs"]["x"][1] in (48, 96)


def test_a_model_that_fits_no_size() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,h] x) => (float[a,b] y)
        <float[7,7] w> { y = MatMul (x, w) }"""
    proto = parse(text.replace(" <float[7,7] w>", f"<float[7,7] w = {{{','.join('1' * 49)}}}>"))
    found = compare_models(wrap(proto), wrap(proto))
    assert found["max_relative_error"] is None
    assert "ONNX Runtime does not run the original" in found["why"]


def test_a_model_that_onnx_runtime_does_not_load() -> None:
    found = compare(relu("NoSuchOperator"), relu("NoSuchOperator"))
    assert found["max_relative_error"] is None
    assert "does not load" in found["why"]


def test_a_rewrite_that_does_not_run_is_an_error() -> None:
    broken = """<ir_version: 8, opset_import: ["": 17]> g (float[n,3,h,w] x) => (float[n,3,h,w] y)
        <int64[1] s = {7}> { y = Reshape (x, s) }"""
    found = compare(relu(), broken)
    assert found["max_relative_error"] == math.inf


@pytest.mark.parametrize("kind", ["seq(float[2])", "optional(float[2])", "string[2]"])
def test_inputs_that_are_no_tensors_of_numbers(kind: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({kind} x) => ({kind} y) {{ y = Identity (x) }}"""
    found = compare(text, text)
    assert found["max_relative_error"] in (None, 0.0)


@pytest.mark.parametrize("dtype", ["float16", "double", "int64", "int8", "bool", "uint8"])
def test_types(dtype: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({dtype}[n,2] x) => ({dtype}[n,2] y) {{ y = Identity (x) }}"""
    assert compare(text, text)["max_relative_error"] == 0.0


def test_newer_ir_versions_are_read() -> None:
    proto = parse(relu())
    proto.ir_version = onnx.IR_VERSION
    assert compare_models(wrap(proto), wrap(proto))["max_relative_error"] == 0.0
    assert proto.ir_version == onnx.IR_VERSION


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, -4.0], [1.0, -3.0], 0.25),
        ([0.0], [0.0], 0.0),
        ([0.0], [1e-9], INF),
        ([1.0], [1.0, 1.0], INF),
        ([NAN, 1.0], [NAN, 1.0], 0.0),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([INF], [INF], 0.0),
        ([INF], [-INF], INF),
        ([], [], 0.0),
    ],
)
def test_relative_error(a: list[float], b: list[float], error: float) -> None:
    assert relative_error(np.array(a), np.array(b)) == error


def test_types_must_agree() -> None:
    assert relative_error(np.zeros(1, np.float32), np.zeros(1, np.float64)) == INF
    assert relative_error(np.array(["a"]), np.array(["a"])) == 0.0
    assert relative_error([1], [2]) == INF
