"""What layers are quantised to: codes that mean the weights within half a step, and files that ONNX takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.float_nets import ATTENTION, HEAD, UNET, saved_net, saved_samples
from support.onnx_models import RTX, TENSORRT_8
from trtconv.core.documents.quantize import QuantizeReport
from trtconv.core.errors import InputError
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.pipeline.quantizing import quantize
from trtconv.precision.quantize.kinds import INT4_WEIGHTS, KINDS, as_float8, block_size, in_blocks, summed_axis

DECONVOLUTION = f"{HEAD} g (float[n,4,8,8] x) => (float[n,4,9,9] y) {{ y = ConvTranspose (x, w_4_4_2_2) }}"
VOLUME = f"{HEAD} g (float[n,4,4,4,4] x) => (float[n,4,5,5,5] y) {{ y = ConvTranspose (x, w_4_4_2_2_2) }}"
RECURRENT = f"{HEAD} g (float[3,n,4] x) => (float[3,1,n,4] y) {{ y = GRU <hidden_size = 4> (x, w_1_12_4, w_1_12_4a) }}"
SOFTMAX = f"{HEAD} g (float[n,4] x) => (float[n,4] y) {{ y = Softmax (x) }}"
TYPES = {"fp8": TensorProto.FLOAT8E4M3FN, "int4-weights": TensorProto.INT4, "int8-weights": TensorProto.INT8}
SHAPES = {"attention": (ATTENTION, [(1, 6, 8), (3, 6, 8)]), "unet": (UNET, [(1, 3, 8, 8)])}
PERCEPTRON = """<ir_version: 8, opset_import: ["": 17]> g (float[b,64] x) => (float[b,5] y) {
    [first] a = Gemm <transB = 1> (x, w1, c1)
    r = Relu (a)
    [second] b = MatMul (r, w2)
    [odd] y = MatMul (b, w3) }"""


def perceptron(folder: Path) -> Path:
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(PERCEPTRON)
    shapes = {"w1": (128, 64), "c1": (128,), "w2": (128, 33), "w3": (33, 5)}
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32) / np.sqrt(shape[-1])
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def made(kind: str, model: Path, folder: Path, shapes: list[tuple[int, ...]], **more: object) -> QuantizeReport:
    data = saved_samples(folder, shapes)
    asked = QuantizeRequest(model, folder / "out.onnx", str(data), target=RTX, tolerance=0.9, kind=kind)
    return quantize(dataclasses.replace(asked, **more))


def layer(op: str, **attributes: int) -> onnx.NodeProto:
    return helper.make_node(op, ["x", "w"], ["y"], **attributes)


@given(st.integers(0, 99), st.sampled_from([32, 64, 96, 256]), st.integers(1, 5), st.booleans())
def test_int4_is_within_half_a_step_of_its_block(seed: int, rows: int, columns: int, transposed: bool) -> None:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    values[:, 0] = 0
    node = layer("Gemm", transB=1) if transposed else layer("MatMul")
    codes = in_blocks(values.T if transposed else values, node)
    assert codes.attributes == {"axis": 1 if transposed else 0, "block_size": block_size(rows)}
    ints, scale = codes.values.astype(np.float32), codes.scale
    if transposed:
        ints, scale = ints.T, scale.T
    steps = np.repeat(scale, codes.attributes["block_size"], 0)
    assert np.abs(ints * steps - values).max() <= 0.5001 * steps.max()
    assert np.abs(ints).max() <= 7 and np.isfinite(steps).all()


@given(st.integers(0, 99), st.floats(1e-6, 1e6))
def test_float8_keeps_three_bits_of_what_is_not_tiny(seed: int, size: float) -> None:
    values = (size * np.random.default_rng(seed).standard_normal((16, 3))).astype(np.float32)
    codes = as_float8(values, layer("MatMul"))
    real = codes.values.astype(np.float32) * codes.scale
    large = np.abs(values) > np.abs(values).max() / 1000
    assert np.abs(real / np.where(large, values, 1) - 1)[large].max() <= 2**-4 * 1.001
    assert codes.values.dtype == ml_dtypes.float8_e4m3fn and np.isfinite(real).all()


@pytest.mark.parametrize("coder", [in_blocks, as_float8])
def test_weights_that_are_0_throughout_stay_so(coder: object) -> None:
    codes = coder(np.zeros((32, 2), np.float32), layer("MatMul"))  # type: ignore[operator]
    assert not codes.values.astype(np.float32).any() and (codes.scale > 0).all()


@pytest.mark.parametrize(("kind", "net"), [("fp8", "attention"), ("fp8", "unet"), ("int8-weights", "attention")])
def test_what_is_quantised_has_the_type_that_is_asked_for(kind: str, net: str, tmp_path: Path) -> None:
    text, shapes = SHAPES[net]
    report = made(kind, saved_net(text, tmp_path), tmp_path, shapes, method="auto")
    assert report.kind == kind
    result = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(result, full_check=True)
    constants = {each.name: each for each in result.graph.initializer}
    makers = {name: node for node in result.graph.node for name in node.output}
    done = {each.node for each in report.quantized}
    assert done
    for node in result.graph.node:
        if node.op_type not in ("Conv", "ConvTranspose", "MatMul", "Gemm"):
            continue
        weight = makers.get(node.input[1])
        is_code = weight is not None and weight.op_type == "DequantizeLinear"
        assert is_code == (node.name in done)
        if is_code:
            assert node.op_type in KINDS[kind].ops
            assert constants[weight.input[0]].data_type == TYPES[kind]
        given_codes = getattr(makers.get(node.input[0]), "op_type", "") == "DequantizeLinear"
        assert given_codes == (is_code and kind == "fp8")
    assert all(each.reason for each in report.left_in_float)
    assert 0 <= max(each.rms for each in report.error.values()) < 0.3
    assert bool(report.calibration.samples) == (kind == "fp8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_an_older_opset_gets_the_one_that_has_what_is_written(kind: str, tmp_path: Path) -> None:
    path = perceptron(tmp_path)
    old = onnx.load(path)
    old.opset_import[0].version = 11
    onnx.save(old, path)
    made(kind, path, tmp_path, [(4, 64)])
    result = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(result, full_check=True)
    assert result.opset_import[0].version == KINDS[kind].opset


@pytest.mark.parametrize(
    ("kind", "text", "shape", "reason", "remedy"),
    [
        (
            "int4-weights",
            UNET,
            (1, 3, 8, 8),
            "4 Conv (--kind int4-weights has no Conv); 1 ConvTranspose",
            "--kind int8 (5",
        ),
        (
            "int8-weights",
            UNET,
            (1, 3, 8, 8),
            "ConvTranspose (--kind int8-weights has no ConvT",
            "--kind fp8 (4 layers)",
        ),
        ("fp8", DECONVOLUTION, (1, 4, 8, 8), "1 ConvTranspose (--kind fp8 has no Conv", "Use --kind int8 (1 layer)."),
        ("int8", RECURRENT, (3, 1, 4), "1 GRU (GRU is not quantised)", "--precision fp16"),
        ("int8", VOLUME, (1, 4, 4, 4, 4), "only if its result is quantised", "--precision fp16"),
        ("int8", SOFTMAX, (1, 4), "no layer of its main graph has weights (1 Softmax)", "--precision fp16"),
    ],
)
def test_a_network_without_a_layer_of_the_kind_is_refused(
    kind: str, text: str, shape: tuple[int, ...], reason: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        made(kind, saved_net(text, tmp_path), tmp_path, [shape])
    assert f"nothing that --kind {kind} quantises" in refused.value.message
    assert reason in refused.value.message
    assert remedy in str(refused.value.hint)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("kind", ["fp8", "int8-weights", "int4-weights", "int8"])
def test_a_network_whose_layers_are_all_asked_to_stay_in_float_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        made(kind, perceptron(tmp_path), tmp_path, [(4, 64)], in_float=("first", "second", "odd"))
    able = 2 if kind == "int4-weights" else 3
    assert refused.value.hint == f"Leave out --float: {able} layers could be quantised then."


def test_blocks_are_of_the_rows_and_what_they_do_not_divide_stays(tmp_path: Path) -> None:
    report = made("int4-weights", perceptron(tmp_path), tmp_path, [(4, 64)])
    assert [each.node for each in report.quantized] == ["first", "second"]
    assert "33 rows" in report.left_in_float[0].reason
    nodes = [n for n in onnx.load(tmp_path / "out.onnx").graph.node if n.op_type == "DequantizeLinear"]
    found = [{a.name: a.i for a in node.attribute} for node in nodes]
    assert found == [{"axis": 1, "block_size": 64}, {"axis": 0, "block_size": 128}]


def test_weights_alone_are_no_farther_than_their_steps_and_less_far_with_more_bits(tmp_path: Path) -> None:
    errors = {}
    for kind in ("int8-weights", "int4-weights"):
        folder = tmp_path / kind
        folder.mkdir()
        report = made(kind, perceptron(folder), folder, [(4, 64)])
        errors[kind] = report.error["y"].rms
        assert report.calibration.samples == 0 and not report.calibration.methods
    assert 0 < errors["int8-weights"] < 0.02 < errors["int4-weights"] < 0.2


@pytest.mark.parametrize(
    "more",
    [
        {"target": TENSORRT_8},
        {"method": "mse"},
        {"calibration": Path("calib.cache"), "data": None},
    ],
)
def test_what_does_not_fit_a_kind_is_refused(more: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        made("fp8", perceptron(tmp_path), tmp_path, [(4, 64)], **more)
    assert not (tmp_path / "out.onnx").exists()


def test_a_budget_leaves_layers_in_float_of_every_kind(tmp_path: Path) -> None:
    report = made("int4-weights", perceptron(tmp_path), tmp_path, [(4, 64)], error_budget=0.05)
    assert report.budget is not None and report.budget.left_in_float
    assert max(each.rms for each in report.error.values()) < report.budget.error_of_all


def test_the_summed_axis_is_the_other_one() -> None:
    assert [summed_axis(layer("MatMul")), summed_axis(layer("Gemm")), summed_axis(layer("Gemm", transB=1))] == [0, 0, 1]
    assert INT4_WEIGHTS.reason(layer("MatMul"), (2, 64, 8)).startswith("blocks")


def test_the_opset_of_a_kind_is_the_first_that_has_its_quantisers() -> None:
    """By ONNX's schemas: its type, and a scale for each channel."""

    def has(opset: int, type_name: str) -> bool:
        schema = onnx.defs.get_schema("DequantizeLinear", opset)
        types = schema.type_constraints[0].allowed_type_strs
        return "axis" in schema.attributes and f"tensor({type_name.replace('_', '')})" in types

    for kind in KINDS.values():
        assert has(kind.opset, kind.element.name) and not has(kind.opset - 1, kind.element.name)
