"""The comparison of a model with its rewrite."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import onnx
import pytest

from support.onnx_models import parse, wrap
from trtconv.core.documents.rewrite import Comparison
from trtconv.runtimes.compare import TOLERANCES, relative_error
from trtconv.runtimes.onnxruntime import compare_models, session, session_options, tolerance


def compare(before: str, after: str) -> Comparison:
    return compare_models(wrap(parse(before)), wrap(parse(after)))


def relu(op: str = "Relu", shape: str = "n,3,h,w", opset: int = 17) -> str:
    return f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[{shape}] x) => (float[{shape}] y) {{ y = {op} (x) }}"""


def test_equal_models() -> None:
    assert compare(relu(), relu()) == Comparison(0.0, None, {"x": (2, 3, 64, 64)})


def test_different_models() -> None:
    assert compare(relu(), relu("Neg")).max_relative_error > 0.5


def test_sizes_that_a_model_accepts_are_looked_for() -> None:
    reshape = """<ir_version: 8, opset_import: ["": 17]> g (float[n,h] x) => (float[a,b] y)
        <int64[2] s = {-1, 48}> { y = Reshape <allowzero=1> (x, s) z = Concat <axis=1> (x, x) }"""
    assert compare(reshape, reshape).inputs["x"][1] in (48, 96)


def test_a_model_that_fits_no_size() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,h] x) => (float[a,b] y)
        <float[7,7] w> { y = MatMul (x, w) }"""
    proto = parse(text.replace(" <float[7,7] w>", f"<float[7,7] w = {{{','.join('1' * 49)}}}>"))
    found = compare_models(wrap(proto), wrap(proto))
    assert found.max_relative_error is None
    assert "ONNX Runtime does not run the original" in found.why


def test_a_model_that_onnx_runtime_does_not_load() -> None:
    found = compare(relu("NoSuchOperator"), relu("NoSuchOperator"))
    assert found.max_relative_error is None
    assert "does not load" in found.why


def test_a_rewrite_that_onnx_runtime_does_not_load_is_an_error() -> None:
    found = compare(relu(), relu("NoSuchOperator"))
    assert found.max_relative_error == math.inf
    assert "does not load the rewritten model" in found.why


def test_a_rewrite_that_does_not_run_is_an_error() -> None:
    broken = """<ir_version: 8, opset_import: ["": 17]> g (float[n,3,h,w] x) => (float[n,3,h,w] y)
        <int64[1] s = {7}> { y = Reshape (x, s) }"""
    found = compare(relu(), broken)
    assert found.max_relative_error == math.inf


@pytest.mark.parametrize("kind", ["seq(float[2])", "optional(float[2])", "string[2]"])
def test_inputs_that_are_no_tensors_of_numbers(kind: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({kind} x) => ({kind} y) {{ y = Identity (x) }}"""
    found = compare(text, text)
    assert found.max_relative_error in (None, 0.0)


@pytest.mark.parametrize("dtype", ["float16", "double", "int64", "int8", "bool", "uint8"])
def test_types(dtype: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({dtype}[n,2] x) => ({dtype}[n,2] y) {{ y = Identity (x) }}"""
    assert compare(text, text).max_relative_error == 0.0


def test_newer_ir_versions_are_read() -> None:
    proto = parse(relu())
    proto.ir_version = onnx.IR_VERSION
    assert compare_models(wrap(proto), wrap(proto)).max_relative_error == 0.0
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
        ([2.0, 1.0], [2.0, INF], INF),
        ([2.0, NAN], [2.0, INF], INF),
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


def test_names_that_occur_twice_are_no_obstacle() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        { [same] h = Relu (x) [same] y = Relu (h) }"""
    proto = parse(text)
    assert compare_models(wrap(proto), wrap(proto)).max_relative_error == 0.0
    assert [node.name for node in proto.graph.node] == ["same", "same"]


def test_outputs_without_a_number_prove_nothing() -> None:
    nothing = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        <float[2] w = {0, 0}> { z = Sub (x, x) y = Div (z, w) }"""
    found = compare(nothing, nothing)
    assert found == Comparison(None, "the model returns nothing but NaN and infinities", {"x": (2,)})
    assert compare(nothing, relu(shape="2")).max_relative_error == math.inf


BAKED = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4,h,16] x) => (float[a,b,c,d] y)
    <int64[4] s = {%s}> { y = Reshape (x, s) }"""


def test_a_batch_of_one_may_be_written_into_a_model() -> None:
    baked = BAKED % "1, 4, 16, -1"
    assert compare(baked, baked).inputs["x"] == (2, 4, 64, 16)
    baked = relu("Relu", "n,3").replace("y = Relu (x)", "z = Slice (x, o, t) y = Add (z, x)")
    baked = baked.replace("{ z", "<float[1, 3] w = {1, 2, 3}> { z").replace(
        "Slice (x, o, t)", "Concat <axis=0> (w, w, w)"
    )
    assert compare(baked, baked).inputs["x"] == (1, 3)


def test_sizes_at_which_a_baked_model_is_right_are_looked_for() -> None:
    """[2,4,8,16] fits the constant too, but is not what was traced."""
    before, after = (wrap(parse(BAKED % text)) for text in ("1, 4, 16, 16", "0, 4, 0, 16"))
    assert compare_models(before, after).max_relative_error == math.inf
    found = compare_models(before, after, resized=True)
    assert found == Comparison(0.0, None, {"x": (1, 4, 16, 16)})
    wrong = wrap(parse((BAKED % "0, 4, 0, 16").replace("y = Reshape (x, s)", "r = Reshape (x, s) y = Neg (r)")))
    assert compare_models(before, wrong, resized=True).max_relative_error > 1
    never = wrap(parse(BAKED % "0, 2, 0, 32"))
    assert compare_models(before, never, resized=True).max_relative_error == math.inf
    stops = wrap(parse(BAKED % "0, 4, 0, 16"))
    stops.proto.graph.node[0].attribute.append(onnx.helper.make_attribute("allowzero", 1))
    assert compare_models(before, stops, resized=True).max_relative_error == math.inf


def test_traced_sizes_are_taken_and_further_ones_run() -> None:
    """Only what is traced is compared; elsewhere the rewritten model just has to run."""
    before, after = (wrap(parse(BAKED % text)) for text in ("1, 4, 16, 16", "0, 4, 0, 16"))
    traced, further = [{"x": (1, 4, 16, 16)}], [{"x": (2, 4, 16, 16)}]
    found = compare_models(before, after, resized=True, traced=traced, further=further)
    assert found.inputs == {"x": (1, 4, 16, 16)}
    assert (found.max_relative_error, found.alone) == (0.0, ({"x": (2, 4, 16, 16)},))
    found = compare_models(before, before, resized=True, traced=traced, further=further)
    assert found.max_relative_error == math.inf
    assert "does not run the rewritten model at {'x': [2, 4, 16, 16]}" in found.why


@pytest.mark.parametrize(
    ("dtype", "node", "limit"),
    [
        ("float", "y = Relu (x)", TOLERANCES["float32"].relative),
        ("double", "y = Relu (x)", 1e-9),
        ("float16", "y = Relu (x)", TOLERANCES["fp16"].relative),
        ("float", "q = QuantizeLinear (x, s) y = DequantizeLinear (q, s)", TOLERANCES["int8"].relative),
        ("float", "q, s, z = DynamicQuantizeLinear (x) y = DequantizeLinear (q, s, z)", TOLERANCES["int8"].relative),
        ("float", "y = local.Rounded (x)", TOLERANCES["int8"].relative),
    ],
)
def test_tolerance(dtype: str, node: str, limit: float) -> None:
    """Another order of sums moves a value on the border between two steps, which is no fault of a rewrite."""
    text = f"""<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g ({dtype}[2] x, {dtype} s) => ({dtype}[2] y) {{ {node} }}
        <domain: "local", opset_import: ["": 17]> Rounded (a) => (b) {{ b, c, d = DynamicQuantizeLinear (a) }}"""
    if "local." not in node:
        text = text.partition("<domain")[0]
    assert tolerance(wrap(parse(text))) == limit


LOOPS: dict[str, tuple[str, list[Any]]] = {
    "its counter": (
        """(int64[n] s) <int64 t = {3}> { y, s = Loop (t, , x) <body = b (int64 i, bool c, float[2] a)
        => (bool c, float[2] a, int64 i) {}> }""",
        [0, 1, 2],
    ),
    "what is around it": (
        """(float[n,2] s) <int64 t = {2}> { y, s = Loop (t, , x) <body = b (int64 i, bool c, float[2] a)
        => (bool c, float[2] d, float[2] x) { d = Neg (a) }> }""",
        [[1, 2], [1, 2]],
    ),
    "its slice": (
        """(float[n] s) <float z = {0}> { y, s = Scan <num_scan_inputs = 1,
        body = b (float a, float i) => (float d, float i) { d = Add (a, i) }> (z, x) }""",
        [1, 2],
    ),
}


@pytest.mark.parametrize("returned", LOOPS)
def test_a_body_that_returns_what_it_did_not_compute(returned: str) -> None:
    text, wanted = LOOPS[returned]
    model = wrap(parse(f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => {text}'))
    (found,) = session(model).run(["s"], {"x": np.array([1, 2], np.float32)})
    assert found.tolist() == wanted


def test_a_session_starts_no_thread_a_core_of_a_large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 200)
    assert session_options().intra_op_num_threads == 16
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert session_options().intra_op_num_threads == 0, "as ONNX Runtime thinks best"
