"""What a sum of large terms that cancel may be off by, in a whole run: what rounding of its terms makes, no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from trtconv.core.documents.verify import Verdict
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.proof.conditioned import Conditioning
from trtconv.runtimes.proof.reference import Expected
from trtconv.runtimes.proof.watch import Watch
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TEXT = '<ir_version: 9, opset_import: ["" : 20]> g (float[64] x) => (float[1] y) { y = ReduceSum (x) }'
TENSORS = (ReadTensor(0, "x", "float32", (64,)), ReadTensor(1, "y", "float32", (1,)))
SUM = ReadLayer(0, "sum", "REDUCE", (0,), (1,), {"op": "SUM", "axes": 1, "keep_dims": True})
NETWORK = ReadNetwork(TENSORS, (SUM,), (0,), (1,))


@pytest.mark.parametrize(("off", "passes"), [(2e-6, True), (1e-2, False)])
def test_sums_that_cancel(off: float, passes: bool) -> None:
    half = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    values = np.concatenate([half, -half])
    got = Run(NETWORK, {"x": values}).outputs()["y"]
    expected = Expected(feeds={"x": values}, tensors={"y": np.array(got + off, np.float32)})
    model = OnnxModel(onnx.shape_inference.infer_shapes(parser.parse_model(TEXT)), Path("m.onnx"))
    conditioning = Conditioning(NETWORK, model, {**expected.feeds, **expected.tensors})
    watch = Watch(NETWORK, expected, TOLERANCES["float32"], conditioning)
    watch.see(TENSORS[1], got, True)
    assert (watch.diverged is None) is passes
    if watch.diverged is not None:
        assert watch.diverged[1].verdict is Verdict.BEYOND


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_another_operation_is_no_rounding(dtype: str) -> None:
    names = {"float16": "float16", "float32": "float"}
    text = f"g ({names[dtype]}[2, 8] x, {names[dtype]}[2, 8] b) => ({names[dtype]}[2, 8] y) {{ y = Add (x, b) }}"
    model = OnnxModel(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}'), Path("m.onnx"))
    tensors = tuple(ReadTensor(number, name, dtype, (2, 8)) for number, name in enumerate("xby"))
    network = ReadNetwork(tensors, (ReadLayer(0, "y", "ELEMENTWISE", (0, 1), (2,), {"op": "SUB"}),), (0, 1), (2,))
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal((2, 8)).astype(dtype) for name in "xb"}
    got = Run(network, feeds).outputs()["y"]
    assert not Conditioning(network, model, feeds).explains(tensors[2], feeds["x"] + feeds["b"], got)


@pytest.mark.parametrize(
    ("dtype", "apart", "explained"),
    [("float16", 2.0**-10, True), ("float16", 0.0, True), ("float16", 0.1, False), ("float32", 2.0**-23, False)],
)
def test_the_place_of_the_largest_of_nearly_equal_numbers(dtype: str, apart: float, explained: bool) -> None:
    kind = "float" if dtype == "float32" else dtype
    text = f"g ({kind}[64, 8] x) => (int64[64, 1] y) {{ y = ArgMax <axis = 1> (x) }}"
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')
    model = OnnxModel(onnx.shape_inference.infer_shapes(proto), Path("m.onnx"))
    tensors = (
        ReadTensor(0, "x", dtype, (64, 8)),
        ReadTensor(1, "v", dtype, (64, 1)),
        ReadTensor(2, "y", "int32", (64, 1)),
    )
    largest = ReadLayer(0, "y", "TOPK", (0,), (1, 2), {"op": "MAX", "k": 1, "axes": 2})
    network = ReadNetwork(tensors, (largest,), (0,), (2,))
    values = np.random.default_rng(0).standard_normal((64, 8)).astype(dtype)
    # Behind the largest of each row stands one that is hardly smaller.
    first = values.argmax(1)
    second = (first + 1 + np.arange(64) % 7) % 8
    rows = np.arange(64)
    values[rows, second] = values[rows, first] - np.abs(values[rows, first]) * np.asarray(apart, dtype)
    got = Run(network, {"x": values}).outputs()["y"]
    other = np.where(got[:, 0] == first, second, first)[:, None]
    assert Conditioning(network, model, {"x": values}).explains(tensors[2], other, got) is explained


def test_masks_leave_no_room() -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> g (float[2, 8] x) => (float[2, 8] y) { y = Softmax (x) }'
    model = OnnxModel(parser.parse_model(text), Path("m.onnx"))
    tensors = tuple(ReadTensor(number, name, "float32", (2, 8)) for number, name in enumerate("xy"))
    axes = {"right": 2, "wrong": 1}
    networks = {
        name: ReadNetwork(tensors, (ReadLayer(0, "y", "SOFTMAX", (0,), (1,), {"axes": axis}),), (0,), (1,))
        for name, axis in axes.items()
    }
    values = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    values[:, -2:] = -3.4e38
    right, wrong = (Run(networks[name], {"x": values}).outputs()["y"] for name in axes)
    assert not Conditioning(networks["wrong"], model, {"x": values}).explains(tensors[1], right, wrong)


def cancelling() -> tuple[Conditioning, np.ndarray, np.ndarray]:
    """Returns what judges a sum that cancels, what the network has of it, and the same a little off."""
    half = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    values = np.concatenate([half, -half])
    got = Run(NETWORK, {"x": values}).outputs()["y"]
    model = OnnxModel(onnx.shape_inference.infer_shapes(parser.parse_model(TEXT)), Path("m.onnx"))
    return Conditioning(NETWORK, model, {"x": values}), got, got + np.float32(2e-6)


def test_only_what_the_layers_made_in_the_run_is_explained() -> None:
    conditioning, got, expected = cancelling()
    assert conditioning.explains(TENSORS[1], expected, got)
    assert not conditioning.explains(TENSORS[1], expected, got + np.float32(1e-7))


@pytest.mark.parametrize("change", [lambda y: y.astype(np.int32), lambda y: y[None], lambda y: np.repeat(y, 2)])
def test_integers_and_other_shapes_are_no_rounding(change) -> None:
    conditioning, got, expected = cancelling()
    assert not conditioning.explains(TENSORS[1], change(expected), got)


@pytest.mark.parametrize("tensor", [TENSORS[0], ReadTensor(1, "unknown", "float32", (1,))])
def test_what_no_node_makes_is_not_explained(tensor: ReadTensor) -> None:
    conditioning, got, expected = cancelling()
    assert not conditioning.explains(tensor, expected, got)


def test_what_lacks_its_inputs_is_not_explained() -> None:
    _, got, expected = cancelling()
    model = OnnxModel(onnx.shape_inference.infer_shapes(parser.parse_model(TEXT)), Path("m.onnx"))
    assert not Conditioning(NETWORK, model, {}).explains(TENSORS[1], expected, got)


def test_a_network_that_is_off_at_many_tensors_is_misread() -> None:
    conditioning, got, expected = cancelling()
    assert [conditioning.explains(TENSORS[1], expected, got) for _ in range(18)] == [True] * 16 + [False] * 2


@pytest.mark.parametrize(
    ("dtype", "name", "explained"),
    [("float16", "s", True), ("float32", "s", False), ("float16", "y", False), ("float16", "z", False)],
)
def test_what_constants_alone_make_in_a_narrow_type_is_for_the_pieces_behind_it(
    dtype: str, name: str, explained: bool
) -> None:
    """Not what the network returns, which no piece holds, and not what an input goes into."""
    kind = "float" if dtype == "float32" else dtype
    text = f"""g ({kind}[2] x) => ({kind}[2] y, {kind}[2] z) <{kind}[2] c = {{3, 4}}>
        {{ s = Sin (c)  y = Cos (c)  z = Add (x, s) }}"""
    model = OnnxModel(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}'), Path("m.onnx"))
    tensors = tuple(ReadTensor(number, each, dtype, (2,)) for number, each in enumerate("xsyz"))
    layers = (ReadLayer(0, "z", "ELEMENTWISE", (0, 1), (3,), {"op": "SUM"}),)
    network = ReadNetwork(tensors, layers, (0,), (2, 3))
    expected, got = (np.full(2, value, dtype) for value in (0.5, 0.6))
    (tensor,) = (each for each in tensors if each.name == name)
    assert Conditioning(network, model, {}).explains(tensor, expected, got) is explained
