"""What --precision makes of a model: what is measured, what is kept, how the cast is judged."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from support.onnx_models import parse
from support.runtime import RTX, TENSORRT_8
from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputRange, Range, ShapeProfile
from trtconv.core.documents.build import CastCheck
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.preparation import name_all
from trtconv.precision import Applied, Types, apply, casting
from trtconv.precision.apply import apply_precision
from trtconv.precision.measure import Referee
from trtconv.precision.mixing import EngineRun, Mixer, NodeTimes
from trtconv.runtimes.tensorrt import Capabilities

BUSY = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y)
    <float big = {1000}, float small = {0.001}>
    { a = Mul (x, big)  b = Mul (a, big)  c = Mul (b, small)  d = Mul (c, small)  y = Tanh (d) }"""


def model(text: str) -> OnnxModel:
    return OnnxModel(parse(text), Path("m.onnx"))


def profile_of(made: OnnxModel, **dims: int) -> ShapeProfile:
    return make_profile(made.inputs, {name: Range(size, size, size) for name, size in dims.items()})


def applied(text: str, kind: str = "fp16", **dims: int) -> tuple[OnnxModel, Any]:
    made = model(text)
    return made, cast(made, kind, RTX, profile_of(made, **dims))


def cast(
    made: OnnxModel,
    precision: str,
    capabilities: Capabilities,
    profile: ShapeProfile | None,
    nodes: Mapping[str, str] | None = None,
) -> Applied:
    """Names the nodes, as the stage before does, and applies a precision."""
    if nodes:
        name_all(made)
    return apply_precision(made, Types(precision, nodes or {}), capabilities, profile)


def ops_in(made: OnnxModel, code: int) -> list[str]:
    """Returns the operators that make tensors of a type."""
    inferred = onnx.shape_inference.infer_shapes(made.proto, strict_mode=True).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    return [node.op_type for node in made.proto.graph.node if types[node.output[0]] == code and node.op_type != "Cast"]


def test_ranges_are_measured_at_the_optimum() -> None:
    made = model(BUSY)
    with Referee(made) as referee:
        ranges = referee.measure(made, profile_of(made, n=64))
    assert ranges.why == ""
    assert set(ranges.largest) == {"x", "a", "b", "c", "d", "y"}
    assert ranges.largest["a"] == pytest.approx(1000 * ranges.largest["x"])
    assert 2 < ranges.largest["x"] < 6
    assert ranges.largest["y"] <= 1


def test_layers_whose_values_do_not_fit_stay_in_float32() -> None:
    made, done = applied(BUSY, n=64)
    # b is some millions: what makes it and what reads it stays.
    assert ops_in(made, TensorProto.FLOAT) == ["Mul", "Mul"]
    assert ops_in(made, TensorProto.FLOAT16) == ["Mul", "Mul", "Tanh"]
    assert done.report.nodes == 3
    assert len(done.report.kept_for_values) == 2
    assert done.report.verified.max_relative_error < 2e-3
    assert done.findings == ()
    (edit,) = done.edits
    assert "3 nodes cast to fp16" in edit.what
    assert "2 values that do not fit" in edit.what


def test_bfloat16_holds_them_all() -> None:
    made, done = applied(BUSY, "bf16", n=64)
    assert ops_in(made, TensorProto.BFLOAT16) == ["Mul"] * 4 + ["Tanh"]
    assert 1e-4 < done.report.verified.max_relative_error < 5e-2


def test_large_angles_stay_in_float32() -> None:
    text = BUSY.replace("b = Mul (a, big)  c = Mul (b, small)  d = Mul (c, small)  y = Tanh (d)", "y = Sin (a)")
    made, done = applied(text, n=64)
    assert ops_in(made, TensorProto.FLOAT16) == []
    assert done.report.verified.max_relative_error == 0


def test_values_that_are_infinite_stay_in_float32() -> None:
    _made, done = applied(BUSY.replace("y = Tanh (d)", "n = Relu (d)  l = Log (n)  y = Sigmoid (l)"), n=64)
    assert "l" in done.report.kept_for_values  # The logarithm of zeros.
    assert done.report.verified.max_relative_error < 2e-3


def test_empty_tensors_are_measured_too() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y)
        <int64[1] z = {0}> { e = Slice (x, z, z)  c = Concat <axis=0> (e, x)  y = Tanh (c) }"""
    made = model(text)
    with Referee(made) as referee:
        ranges = referee.measure(made, profile_of(made, n=2))
    assert ranges.why == ""
    assert ranges.largest.get("e", 0) == 0
    assert ranges.largest["c"] == ranges.largest["x"] > 0


def test_inputs_that_hold_sizes_have_their_values() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,6] x, int64[2] s) => (float[a,b] y)
        { r = Reshape (x, s)  y = Tanh (r) }"""
    made = model(text)
    sizes = InputRange((3, 4), (3, 4), (3, 4))
    profile = ShapeProfile({"x": InputRange((2, 6), (2, 6), (2, 6))}, {}, {"s": sizes})
    done = cast(made, "fp16", RTX, profile)
    assert done.report is not None
    assert done.report.verified.why is None


def test_without_sizes_nothing_is_measured_and_that_is_told() -> None:
    made = model(BUSY)
    done = cast(made, "fp16", RTX, None)
    assert [(f.code, f.severity.value) for f in done.findings] == [("TC511", "info")]
    assert done.report is not None
    assert done.report.verified.max_relative_error is None


def test_what_ends_onnx_runtime_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(BUSY)
    monkeypatch.setattr("trtconv.core.budget.allowance", lambda size: (0.0, 4096))
    done = cast(made, "fp16", RTX, profile_of(made, n=64))
    assert [f.code for f in done.findings] == ["TC511"]


@pytest.mark.parametrize(
    ("verified", "code", "severity"),
    [
        (CastCheck(math.inf, outputs={"y": math.inf}), "TC512", "error"),
        (CastCheck(0.5, outputs={"x": 0.0, "y": 0.5}), "TC513", "warning"),
        (CastCheck(why="no"), "TC511", "info"),
    ],
)
def test_how_a_cast_is_judged(verified: CastCheck, code: str, severity: str) -> None:
    done = casting.Casting(1, {}, ())
    (finding,) = apply._findings(done, verified, "fp16", "random")
    assert (finding.code, finding.severity.value) == (code, severity)
    if verified.outputs:
        assert "'y'" in finding.message


def test_a_cast_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if nothing were known of the values: b overflows.
    monkeypatch.setattr(apply, "_hot", lambda *_: frozenset())
    _, done = applied(BUSY.replace("d = Mul (c, small)  y = Tanh (d)", "y = Mul (c, small)"), n=64)
    assert [(f.code, f.severity.value) for f in done.findings] == [("TC512", "error")]


def test_bfloat16_in_an_old_opset_is_cast_and_not_compared() -> None:
    _, done = applied(BUSY.replace("17]", "11]", 1), "bf16", n=64)
    assert done.report.nodes == 5
    assert "opset 13" in done.report.verified.why
    assert [f.code for f in done.findings] == ["TC511"]


def test_nothing_to_cast_is_told() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[4] x) => (float[4] y) { y = my.Twice (x) }"""
    made = model(text)
    done = cast(made, "fp16", RTX, profile_of(made))
    assert [(f.code, f.severity.value) for f in done.findings] == [("TC511", "warning"), ("TC511", "info")]
    assert done.edits == ()


def test_no_tensorrt_has_a_deconvolution_in_bfloat16() -> None:
    text = """<ir_version: 8, opset_import: ["": 22]> g (float[1,1,4,4] x) => (float[a,b,c,d] y)
        <float[1,1,1,1] w = {2}> { y = ConvTranspose (x, w) }"""
    made = model(text)
    cast(made, "bf16", RTX, profile_of(made))
    assert ops_in(made, TensorProto.BFLOAT16) == []


def test_functions_are_opened() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[4] x) => (float[4] y) { y = my.twice (x) }
        <domain: "my", opset_import: ["": 17]> twice (a) => (b) { b = Add (a, a) }"""
    made, done = applied(text)
    assert ops_in(made, TensorProto.FLOAT16) == ["Add"]
    assert done.report.verified.max_relative_error < 2e-3


def test_weights_too_large_for_one_file_stay_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,512] x) => (float[2,8] y) { y = MatMul (x, w) }"""
    proto = parse(text)
    weight = np.random.default_rng(0).standard_normal((512, 8)).astype("f")
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    for limit, external in ((1 << 30, False), (1000, True)):
        monkeypatch.setattr("trtconv.graph.model.PROTOBUF_LIMIT", limit)
        made = OnnxModel.load(path)
        done = cast(made, "fp16", RTX, profile_of(made))
        assert bool(made.external_files) == external
        assert ops_in(made, TensorProto.FLOAT16) == ["MatMul"]
        assert done.report is not None
        assert 0 < done.report.verified.max_relative_error < 1e-2


def test_flags_of_the_builder_leave_the_graph_alone() -> None:
    made = model(BUSY)
    before = made.serialize()
    assert cast(made, "fp16", TENSORRT_8, None) == Applied()
    assert made.serialize() == before
    assert cast(made, "as-is", RTX, None) == Applied()


@pytest.mark.parametrize("capabilities", [RTX, TENSORRT_8])
def test_int8_needs_quantisers(capabilities: Any) -> None:
    with pytest.raises(InputError, match="QuantizeLinear") as caught:
        cast(model(BUSY), "int8", capabilities, None)
    assert "trtconv quantize" in caught.value.hint


def test_int8_computes_the_rest_in_half() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  y = Tanh (d) }"""
    made, done = applied(text, "int8")
    assert ops_in(made, TensorProto.FLOAT16) == ["Tanh"]
    assert done.report.precision == "fp16"


def test_the_tools_are_those_that_are_installed() -> None:
    assert apply.tools()["onnx"] == onnx.__version__


def test_the_package_that_brings_onnxruntime_has_several_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "onnxruntime-gpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.2"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert apply.tools() == {"onnx": "unknown", "onnxruntime": "1.2"}


MIXED = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4] x) => (float[1,4] y)
    { a = Tanh (x)  b = Relu (a)  c = Sigmoid (b)  y = Relu (c) }"""


@pytest.mark.parametrize(
    ("precision", "nodes", "half", "bfloat"),
    [
        ("fp16", {"Sigmoid": "fp32", "Relu": "bf16"}, ["Tanh", "Relu"], ["Relu"]),
        ("as-is", {"Tanh": "fp16"}, ["Tanh"], []),
        ("bf16", {"Tanh": "fp16", "Sigmoid": "fp32"}, ["Tanh"], ["Relu", "Relu"]),
    ],
)
def test_nodes_have_types_of_their_own(
    precision: str, nodes: dict[str, str], half: list[str], bfloat: list[str]
) -> None:
    made = model(MIXED)
    done = cast(made, precision, RTX, profile_of(made), nodes=nodes)
    assert (ops_in(made, TensorProto.FLOAT16), ops_in(made, TensorProto.BFLOAT16)) == (half, bfloat)
    assert done.report is not None
    assert done.report.nodes == len(half + bfloat)
    assert 1e-6 < done.report.verified.max_relative_error < 1e-2


def test_a_node_that_is_not_there_has_no_type() -> None:
    for capabilities in (RTX, TENSORRT_8):
        with pytest.raises(InputError, match="Conv_7=fp32: the model has no node"):
            cast(model(MIXED), "fp16", capabilities, None, nodes={"Conv_7": "fp32"})


PINNED = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,2,4,4] x) => (float[1,2,8,8] y, int64[1,2,8,1] i, float16[1,2,4,4] h)
    <float[2,2,2,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float big = {1e30}, int64 axis = {1}>
    { [up] a = ConvTranspose <strides=[2,2]> (x, w)  [sum] b = CumSum (a, axis)  [large] c = Mul (b, big)
      [small] y = Div (c, big)  [index] i = ArgMax <axis=3> (a)  [narrow] h = Cast <to=10> (x) }"""


@pytest.mark.parametrize(
    ("pinned", "said"),
    [
        ("up=bf16", "it stays in float32: no ConvTranspose is cast to bf16"),
        ("sum=fp16", "it stays in float32: no CumSum is cast to fp16"),
        ("large=fp16", "it stays in float32: values that do not fit (weights, or on {inputs})"),
        ("index=fp16", "the ArgMax computes no floats"),
        ("narrow=bf16", "the model computes it in float16"),
        ("narrow=fp32", "the model computes it in float16"),
        ("narrow=fp16", ""),
        ("up=fp16", ""),
        ("large=bf16", ""),
        ("sum=fp32", ""),
    ],
)
@pytest.mark.parametrize("precision", ["as-is", "fp16", "auto"])
def test_a_type_that_a_node_cannot_have_is_refused(pinned: str, said: str, precision: str) -> None:
    nodes = dict([pinned.split("=")])
    told = said.format(inputs="DIR" if precision == "auto" else "random inputs of the optimal sizes")
    made = model(PINNED)
    with pytest.raises(InputError) if said else contextlib.nullcontext() as raised:
        if precision == "auto":
            feeds = {"x": np.ones((1, 2, 4, 4), np.float32)}
            mixer = Mixer(made, [feeds], Types(nodes=nodes), by_flags=False, tell=lambda *_: None)
            mixer.search(0.0, "DIR", lambda _: NodeTimes(), lambda *_: EngineRun())
        else:
            cast(made, precision, RTX, profile_of(made), nodes=nodes)
    assert not said or raised is not None
    assert raised is None or raised.value.message == f"--node-precision {pinned} has no effect: {told}"
    if raised is not None and "large" in pinned:
        assert ("or name bf16" in raised.value.hint, "auto --data" in raised.value.hint) == (True, precision != "auto")


def test_a_type_is_refused_before_the_cast_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Referee, "compare", lambda *_: pytest.fail("compared"))
    made = model(PINNED)
    with pytest.raises(InputError, match="large=fp16"):
        cast(made, "fp16", RTX, profile_of(made), nodes={"large": "fp16"})


def test_a_type_that_a_quantised_layer_cannot_have_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4,64] x) => (float[4,64] y)
        <float s = {0.1}, int8 z = {0}> { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  r = Relu (d)
          p = QuantizeLinear (r, s, z)  y = DequantizeLinear (p, s, z) }"""
    with pytest.raises(InputError, match="Relu=fp32 has no effect: it is computed in int8"):
        cast(model(text), "int8", RTX, None, nodes={"Relu": "fp32"})
    assert cast(model(text), "int8", TENSORRT_8, None, nodes={"Relu": "fp32"}).report is None
    with pytest.raises(InputError, match="ArgMax computes no floats"):
        cast(model(PINNED), "as-is", TENSORRT_8, None, nodes={"index": "fp32"})
