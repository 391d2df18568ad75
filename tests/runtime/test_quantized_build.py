"""Quantised models through TensorRT-RTX's real parser and builder, the audit between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from support.float_nets import ATTENTION, PRODUCTS, saved_net, saved_samples
from support.onnx_models import DECONV_PASSES, RTX, parse, rewritten, wrap
from support.paths import MODELS
from support.quantized_models import EXACT, MOVES, POINTS, Net, Quantiser, make_net
from support.session import run
from trtconv import pipeline
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.findings import Severity
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES
from trtconv.pipeline.quantizing import quantize
from trtconv.rules import run_rules
from trtconv.runtimes import tensorrt
from trtconv.runtimes.onnxruntime import compare_models
from trtconv.runtimes.tensorrt.audit import audit

pytest.importorskip("tensorrt_rtx")

USUAL = tuple(each for each in PASSES if not each.on_request)


def built(model: OnnxModel) -> None:
    """Parses, audits and builds a model."""
    model.name_nodes("ConvTranspose")
    network = tensorrt.load(RTX).parse(model.serialize(), model.path)
    assert not isinstance(network, tuple), network
    assert not audit(model, network)
    plan = BuildPlan(RTX, (make_profile(model.inputs, {}),))
    assert len(network.build(plan, lambda *_: True).data) > 1000


@st.composite
def nets(draw: st.DrawFn) -> Net:
    rank = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(list(POINTS)))
    weight = draw(st.sampled_from(list(POINTS)))
    op = draw(st.sampled_from(["ConvTranspose", "ConvTranspose", "Conv"]))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    strides = [draw(st.integers(1, 2)) for _ in range(rank)]
    attrs: list[tuple[str, Any]] = [("strides", strides), ("pads", [k // 2 for k in (*kernel, *kernel)])]
    if op == "ConvTranspose":
        attrs.append(("output_padding", [draw(st.integers(0, s - 1)) for s in strides]))
    return Net(
        op=op,
        kernel=kernel,
        attrs=tuple(attrs),
        group=draw(st.sampled_from([1, 2])),
        channels=draw(st.sampled_from([(4, 4), (2, 3), (1, 1)])),
        size=6,
        activation=Quantiser(dtype, draw(st.sampled_from(POINTS[dtype]))),
        weight=Quantiser(weight, draw(st.sampled_from(POINTS[weight])), draw(st.sampled_from([None, 0, 1]))),
        float_weight=draw(st.booleans()),
        bias=draw(st.sampled_from(["none", "float", "int32", "int32_channels"])),
        moves=tuple(draw(st.lists(st.sampled_from(MOVES), max_size=1))),
        requantized=draw(st.booleans()),
        opset=draw(st.sampled_from([13, 17, 19, 21])),
    )


@settings(max_examples=30)
@given(nets())
def test_every_spelling_builds(net: Net) -> None:
    proto, _ = make_net(net)
    model, result = rewritten(proto, RTX, USUAL)
    assert not result.skipped
    built(model)


@pytest.mark.parametrize("kind", ["pad", "pad_fill", "concat_constant"])
@pytest.mark.parametrize("activation", [Quantiser(), Quantiser("uint8", 128), Quantiser("uint8", 3)])
def test_quantised_constants_build(kind: str, activation: Quantiser) -> None:
    """The builder refuses them in front of anything but a DequantizeLinear."""
    model, _ = rewritten(make_net(Net(activation=activation, moves=(kind,)))[0], RTX, USUAL)
    built(model)


@pytest.mark.parametrize("op", ["Gemm", "MatMul"])
@pytest.mark.parametrize("bias", ["none", "int32"])
def test_products_build(op: str, bias: str) -> None:
    net = Net(op=op, kernel=(), activation=Quantiser("uint8", 128), weight=Quantiser("uint8", 128), bias=bias)
    model, _ = rewritten(make_net(net)[0], RTX, EXACT + DECONV_PASSES)
    built(model)


@pytest.mark.parametrize(
    "net",
    [
        Net(activation=Quantiser("uint8", 128)),
        Net(weight=Quantiser("uint8", 128)),
        Net(activation=Quantiser("int8", 3)),
        Net(bias="int32"),
        Net(bias="int32_channels"),
        Net(activation=Quantiser("uint16", 3)),
    ],
)
def test_what_the_parser_refuses_is_mended(net: Net, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(make_net(net)[0], path)
    raw = pipeline.build(BuildRequest(model=path, rewrite=False, fail_on=None))
    assert raw.exit_code == 1 and any(f.code == "TC401" for f in raw.findings)
    mended = pipeline.build(BuildRequest(model=path))
    assert mended.exit_code == 0 and path.with_suffix(".engine").stat().st_size > 1000
    by = {f.mended_by for f in mended.findings if f.code.startswith("TC30")}
    assert None not in by


# What onnxruntime.quantization.quantize_static makes of the models of this project.

FORMATS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "default": lambda q: {},
    "per-channel": lambda q: {"per_channel": True},
    "uint8": lambda q: {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QUInt8},
    "operators": lambda q: {"quant_format": q.QuantFormat.QOperator},
    "operators-per-channel": lambda q: {"quant_format": q.QuantFormat.QOperator, "per_channel": True},
    "operators-uint8": lambda q: {
        "quant_format": q.QuantFormat.QOperator,
        "activation_type": q.QuantType.QUInt8,
        "weight_type": q.QuantType.QUInt8,
    },
    "16-bit": lambda q: {"activation_type": q.QuantType.QUInt16},
    "symmetric": lambda q: {"extra_options": {"ActivationSymmetric": True}},
}


def quantised(name: str, form: str, folder: Path) -> Path:
    """Calibrates a model on random inputs with ONNX Runtime's quantiser."""
    from onnxruntime import quantization

    source = MODELS / f"{name}.onnx"
    random = np.random.default_rng(1)
    feeds = [
        {i.name: random.standard_normal(_sizes(i.dims)).astype(np.float32) for i in OnnxModel.load(source).inputs}
        for _ in range(2)
    ]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            return feeds.pop() if feeds else None

    path = folder / f"{name}.onnx"
    quantization.quantize_static(str(source), str(path), Reader(), **FORMATS[form](quantization))
    return path


def _sizes(dims: tuple[int | str, ...]) -> list[int]:
    return [d if isinstance(d, int) else (1 if axis == 0 else 16) for axis, d in enumerate(dims)]


def bounds(path: Path) -> dict[str, Range]:
    """Returns a small range for every dynamic dimension."""
    inputs = OnnxModel.load(path).inputs
    dims = {d: axis for i in inputs for axis, d in enumerate(i.dims) if isinstance(d, str)}
    return {name: Range(1, 1, 2) if axis == 0 else Range(16, 32, 32) for name, axis in dims.items()}


def build(path: Path, **options: Any) -> BuildReport:
    return pipeline.build(BuildRequest(model=path, dims=bounds(path), **options))


CASES = [
    ("unet", "default"),
    ("vocoder", "per-channel"),
    ("gan_generator", "uint8"),
    ("unet", "operators"),
    ("vocoder", "operators-per-channel"),
    ("super_resolution", "operators-uint8"),
    ("vocoder", "16-bit"),
    ("unet", "symmetric"),
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_what_quantize_static_writes_builds(name: str, form: str, tmp_path: Path) -> None:
    path = quantised(name, form, tmp_path)
    assert build(path, rewrite=False, fail_on=None).exit_code == 1
    report = build(path)
    assert report.exit_code == 0, report.findings
    assert not [f for f in report.findings if f.severity is Severity.ERROR]
    assert path.with_suffix(".engine").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["unet", "vocoder"])
def test_what_quantize_static_writes_keeps_its_numbers(name: str, tmp_path: Path) -> None:
    path = quantised(name, "default", tmp_path)
    original = OnnxModel.load(path)
    model, _ = rewritten(original.proto, RTX, EXACT, tmp_path)
    assert compare_models(original, model).max_relative_error == 0


def test_requantising_builds_in_int8(tmp_path: Path) -> None:
    path = quantised("vocoder", "default", tmp_path)
    report = build(path, requantize=True)
    assert report.exit_code == 0
    edits = [e for e in report.edits if e.pass_name == "requantize-symmetric"]
    assert edits and all("values move by at most" in e.what for e in edits)
    assert not [e for e in report.edits if e.pass_name == "compute-asymmetric-in-float"]


def test_the_clean_quantised_model_is_clean() -> None:
    path = MODELS / "quantized_autoencoder.onnx"
    report = pipeline.check(CheckRequest(model=path))
    assert report.exit_code == 0
    assert not [f for f in report.findings if f.severity is Severity.ERROR]


def test_float8_is_read_as_onnx_means_it() -> None:
    """E4M3 with scales by channel; output_padding is beyond the pads, so that a pass extends the quantised kernel."""
    proto = parse(
        """<ir_version: 10, opset_import: ["": 21]> g (float[1,4,5,5] x) => (float[1,4,p,q] y)
        <float s = {0.02}, float8e4m3fn z = {0}>
        { xq = QuantizeLinear (x, s, z) xd = DequantizeLinear (xq, s, z)
          wq = QuantizeLinear <axis = 1> (f, ws, wz) w = DequantizeLinear <axis = 1> (wq, ws, wz)
          y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (xd, w) }"""
    )
    random = np.random.default_rng(0)
    for name, values in (
        ("f", random.standard_normal((4, 4, 3, 3)).astype(np.float32)),
        ("ws", np.linspace(0.005, 0.02, 4, dtype=np.float32)),
        ("wz", np.zeros(4, ml_dtypes.float8_e4m3fn)),
    ):
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    model = wrap(proto)
    after, result = rewritten(proto, passes=USUAL)
    assert [edit.pass_name for edit in result.edits] == ["make-deconv-explicit"]
    feeds = {"x": random.standard_normal((1, 4, 5, 5)).astype(np.float32)}
    expected, got = (run(each.proto, feeds)[0] for each in (model, after))
    assert np.abs(expected - got).max() < 1e-6 * np.abs(expected).max()
    (found,) = (finding for finding in run_rules(model, RTX) if finding.code == "TC311")
    assert "its weight is float8e4m3fn" in found.message
    built(after)


@pytest.mark.parametrize(
    ("text", "shape", "attention"),
    [(ATTENTION, (2, 6, 8), False), (ATTENTION, (2, 6, 8), True), (PRODUCTS, (1, 8, 12), False)],
    ids=["block", "block with attention", "products"],
)
def test_products_that_quantize_wrote_build_and_are_proven(
    text: str, shape: tuple[int, ...], attention: bool, tmp_path: Path
) -> None:
    output = tmp_path / "int8.onnx"
    data = str(saved_samples(tmp_path, [shape]))
    asked = QuantizeRequest(model=saved_net(text, tmp_path), output=output, data=data, target=RTX, tolerance=0.5)
    quantize(dataclasses.replace(asked, attention=attention))
    proof = build(output, precision="int8").proof
    assert proof is not None
    assert proof.agrees
    assert proof.pieces.proven == proof.pieces.of > 10
