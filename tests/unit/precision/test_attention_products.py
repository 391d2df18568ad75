"""Products of two computed matrices, as in attention, which `quantize --attention` quantises."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.float_nets import ATTENTION, HEAD, net, sample, saved_net, saved_samples
from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.documents.quantize import QuantizeReport
from trtconv.core.errors import InputError
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.graph.model import OnnxModel
from trtconv.passes import passes_for, run_passes
from trtconv.pipeline.quantizing import quantize
from trtconv.precision.quantize.layers import find_layers
from trtconv.precision.quantize.operators import bias_of
from trtconv.precision.quantize.placement import place

SHAPES = [(1, 6, 8), (3, 6, 8)]
BARE = f"""{HEAD} g (float[1,6,8] x) => (float[1,6,8] y) {{
    t = Transpose <perm = [0,2,1]> (x)
    [scores] s = MatMul (x, t)
    p = Softmax (s)
    [mix] y = MatMul (p, x) }}"""
CACHED = f"""{HEAD} g (float[1,6,8] x, float[1,6,8] past) => (float[1,12,8] present, float[1,6,8] y) {{
    [k] k = MatMul (x, w_8_8)
    present = Concat <axis = 1> (past, k)
    t = Transpose <perm = [0,2,1]> (present)
    [scores] s = MatMul (x, t)
    m = Add (s, b_12)
    p = Softmax (m)
    [mix] y = MatMul (p, present) }}"""
GEMM = f"{HEAD} g (float[6,8] x) => (float[6,6] y) {{ [square] y = Gemm <transB = 1> (x, x) }}"
TAKEN = f"""{HEAD} g (float[6,6] x) => (float[6,6] y, float[6,6] z) {{
    [plain] y = MatMul (x, w_6_6)
    [square] z = MatMul (x, x) }}"""


def request(text: str, folder: Path, shapes: list[tuple[int, ...]], **more: object) -> QuantizeRequest:
    data = str(saved_samples(folder, shapes))
    asked = QuantizeRequest(saved_net(text, folder), folder / "int8.onnx", data, target=RTX, tolerance=0.5)
    return dataclasses.replace(asked, **{"attention": True, **more})


def worst(report: QuantizeReport) -> float:
    return max(each.rms for each in report.error.values())


@pytest.mark.parametrize(("kind", "zero"), [("int8", onnx.TensorProto.INT8), ("fp8", onnx.TensorProto.FLOAT8E4M3FN)])
def test_both_matrices_are_quantised_right_in_front_of_their_product(kind: str, zero: int, tmp_path: Path) -> None:
    report = quantize(request(ATTENTION, tmp_path, SHAPES, kind=kind))
    assert {"scores", "mix"} < {each.node for each in report.quantized}
    assert {"scores", "mix"} < {each.node for each in report.per_layer}
    assert (report.left_in_float, report.int8_share, report.findings) == ((), 1.0, ())
    assert 0 < worst(report) < 0.1
    model = OnnxModel.load(tmp_path / "int8.onnx")
    onnx.checker.check_model(model.proto, full_check=True)
    assert not run_passes(model, passes_for("int8"), RTX).edits
    scope, constants = model.main, model.main.initializers
    for node in (node for node in model.proto.graph.node if node.name in ("scores", "mix")):
        for name in node.input:
            real = scope.producer(name)
            steps = scope.producer(real.input[0])
            assert (real.op_type, steps.op_type) == ("DequantizeLinear", "QuantizeLinear")
            assert list(steps.input[1:]) == list(real.input[1:])
            assert [list(constants[each].dims) for each in real.input[1:]] == [[], []]
            assert constants[real.input[2]].data_type == zero
            assert not onnx.numpy_helper.to_array(constants[real.input[2]]).astype(np.float32).any()
    for node in model.proto.graph.node:
        if node.op_type in ("Softmax", "LayerNormalization"):
            assert getattr(scope.producer(node.input[0]), "op_type", "") != "DequantizeLinear"


def test_their_scales_are_those_of_what_the_samples_have(tmp_path: Path) -> None:
    asked = request(BARE, tmp_path, [(1, 6, 8)], method="min-max")
    quantize(asked)
    arrays = [np.load(file)["x"] for file in (tmp_path / "samples").iterdir()]
    model = OnnxModel.load(tmp_path / "int8.onnx")
    quantisers = [node for node in model.proto.graph.node if node.op_type == "QuantizeLinear"]
    found = {node.input[0]: model.main.values(node.input[1]) for node in quantisers}
    assert set(found) == {"x", "t", "p"}
    assert found["x"] == found["t"] <= np.abs(arrays).max() / 127 * 1.0001
    assert 0.5 / 127 < found["p"] <= 1.0001 / 127


def test_without_the_flag_and_with_each_named_the_file_is_the_same(tmp_path: Path) -> None:
    asked = request(ATTENTION, tmp_path, SHAPES)
    plain = quantize(dataclasses.replace(asked, attention=False))
    before = asked.output.read_bytes()
    reason = "both matrices are computed, as in attention, which stays in float without --attention"
    assert {each.node: each.reason for each in plain.left_in_float} == {"scores": reason, "mix": reason}
    named = quantize(dataclasses.replace(asked, in_float=("scores", "mix")))
    assert {each.node: each.reason for each in named.left_in_float} == {"scores": "asked for", "mix": "asked for"}
    assert asked.output.read_bytes() == before
    quantize(dataclasses.replace(asked, in_float=("scores",)))
    model = OnnxModel.load(asked.output)
    makers = {
        node.name: [model.main.producer(name).op_type for name in node.input]
        for node in model.proto.graph.node
        if node.name in ("scores", "mix")
    }
    assert makers == {"scores": ["Add", "Transpose"], "mix": ["DequantizeLinear"] * 2}


def test_a_budget_tries_them_as_other_layers(tmp_path: Path) -> None:
    asked = request(ATTENTION, tmp_path, SHAPES, method="min-max")
    report = quantize(dataclasses.replace(asked, error_budget=worst(quantize(asked)) / 3))
    assert report.budget is not None and report.budget.met
    assert {"scores", "mix"} < set(report.budget.alone)


def test_what_a_cache_becomes_is_not_quantised(tmp_path: Path) -> None:
    """Keys and values of the next call would be rounded again and again; what is added to scores is no bias."""
    model = wrap(net(CACHED))
    layers = find_layers(model.main, attention=True)
    placement = place(model.main, layers)
    assert set(placement.tensors) == {"x", "t", "p", "present"}
    readers = {index for edges in placement.edges.values() for index, _ in edges}
    assert {model.proto.graph.node[index].op_type for index in readers} == {"MatMul"}
    assert not any(bias_of(model.main, layer.index) for layer in layers)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize(("text", "slots"), [(GEMM, {"square": (0, 1)}), (TAKEN, {"plain": (0,), "square": (0, 1)})])
def test_a_matrix_may_be_both_and_another_layers_too(
    text: str, slots: dict[str, tuple[int, ...]], kind: str, tmp_path: Path
) -> None:
    shape = (6, 6) if "plain" in slots else (6, 8)
    report = quantize(request(text, tmp_path, [shape], method="min-max", kind=kind))
    assert {each.node for each in report.quantized} == set(slots)
    model = wrap(net(text))
    assert {layer.name: layer.slots for layer in find_layers(model.main, attention=True)} == slots
    written = OnnxModel.load(tmp_path / "int8.onnx")
    assert all(
        written.main.producer(name).op_type == "DequantizeLinear"
        for node in written.proto.graph.node
        if node.name in slots
        for name in node.input[:2]
    )
    given = {"x": sample(shape, 99)}
    expected, got = run(net(text), given), run(written.proto, given)
    for values, others in zip(expected, got, strict=True):
        assert 0 < np.abs(values - others).max() < 0.1 * np.abs(values).max()


@pytest.mark.parametrize(
    ("inputs", "op", "reason"),
    [
        ("double[4,8] a, double[8,4] b", "MatMul", "its matrices are float64, not float32"),
        ("float[4,8] a, float[8] b", "MatMul", "one of its matrices is a vector"),
        ("float[1,32,1] a, float[1,1,9] b", "MatMul", "it sums 1 products"),
        ("float[1,32,3] a, float[1,3,9] b", "MatMul", "it sums 3 products"),
        ("float[3,32] a, float[3,9] b", "Gemm <transA = 1>", "it sums 3 products"),
        ("float[1,32,4] a, float[1,4,9] b", "MatMul", ""),
        ("float[1,32,n] a, float[1,n,9] b", "MatMul", ""),
    ],
)
def test_what_is_no_attention_stays_in_float(inputs: str, op: str, reason: str) -> None:
    """Positions times frequencies, or coordinates times a turn, need more digits than int8 has."""
    kind = inputs.partition("[")[0]
    model = wrap(onnx.parser.parse_model(f"{HEAD} g ({inputs}) => ({kind}[] y) {{ y = {op} (a, b) }}"))
    (layer,) = find_layers(model.main, attention=True)
    assert layer.reason.startswith(reason) and bool(layer.reason) == bool(reason)


def test_a_matrix_of_unknown_sizes_is_one_all_the_same() -> None:
    text = f"{HEAD} g (float[4,8] a, int64[k] s) => (float[] y) {{ b = Reshape (a, s) y = MatMul (b, a) }}"
    model = wrap(onnx.parser.parse_model(text))
    assert model.main.shape("b") is None
    assert [layer.slots for layer in find_layers(model.main, attention=True) if not layer.reason] == [(0, 1)]


def test_a_network_of_nothing_else_is_told_of_the_flag(tmp_path: Path) -> None:
    asked = request(BARE, tmp_path, [(1, 6, 8)])
    with pytest.raises(InputError) as refused:
        quantize(dataclasses.replace(asked, attention=False))
    assert refused.value.hint == "Add --attention: 2 layers could be quantised then."
    with pytest.raises(InputError) as refused:
        quantize(dataclasses.replace(asked, in_float=("scores", "mix")))
    assert refused.value.hint == "Leave out --float: 2 layers could be quantised then."


def test_what_calibration_kept_without_them_is_not_taken(tmp_path: Path) -> None:
    """The tensors are the same, and the errors by which methods are judged are not."""
    asked = request(TAKEN, tmp_path, [(6, 6)], cache=tmp_path / "cache")
    quantize(dataclasses.replace(asked, attention=False))
    assert not quantize(asked).calibration.cached
    assert quantize(asked).calibration.cached
