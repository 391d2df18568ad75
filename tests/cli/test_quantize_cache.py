"""`trtconv quantize --cache`: the scales of a calibration cache of TensorRT, and what of it does not fit."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.cli import Ended
from support.float_nets import ATTENTION, HEAD, saved_net, saved_samples

Call = Callable[..., Ended]
CHAIN = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_8_4_3_3)
    r = Relu (a)
    [c2] b = Conv <pads = [1,1,1,1]> (r, w_8_8_3_3)
    s = Relu (b)
    [c3] y = Conv (s, w_4_8_1_1) }}"""
JOINED = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_4_4_3_3)
    p = Relu (a)
    m = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (p)
    [c2] y = Conv (m, w_4_4_1_1) }}"""
SCALES = {"x": 0.031, "r": 0.0123, "s": 0.0077}


def cache(folder: Path, scales: Mapping[str, float], header: str = "TRT-8601-EntropyCalibration2") -> Path:
    lines = [header, *(f"{name}: {struct.pack('>f', scale).hex()}" for name, scale in scales.items())]
    path = folder / "calib.cache"
    path.write_text("\n".join(lines) + "\n")
    return path


def scales_in(path: Path) -> dict[str, float]:
    """Returns tensor to the scale of its quantiser."""
    model = onnx.load(path)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return {node.input[0]: float(constants[node.input[1]]) for node in nodes}


def test_scales_are_those_of_the_cache_to_the_bit(call: Call, tmp_path: Path) -> None:
    net = saved_net(CHAIN, tmp_path)
    path = cache(tmp_path, {**SCALES, "a": 0.02, "(Unnamed Layer* 3) [Convolution]_output": 0.5})
    common = ("quantize", str(net), "--cache", str(path), "-o", str(tmp_path / "q.onnx"), "--target", "rtx", "-q")
    ended = call(*common, "--format", "json")
    assert ended.code == 0, ended.err
    assert scales_in(tmp_path / "q.onnx") == {name: float(np.float32(scale)) for name, scale in SCALES.items()}
    document = json.loads(ended.out)
    assert document["cache"] == {
        "file": str(path),
        "scales": 5,
        "used": 3,
        "unknown": ["(Unnamed Layer* 3) [Convolution]_output"],
        "other": [],
    }
    assert (document["error"], document["per_layer"]) == ({}, [])
    ended = call(*common)
    assert "3 of its 5 scales are used" in ended.out and "not measured" in ended.out


def test_samples_measure_what_comes_of_it(call: Call, tmp_path: Path) -> None:
    net, samples = saved_net(CHAIN, tmp_path), saved_samples(tmp_path, [(1, 4, 8, 8)])
    output = tmp_path / "q.onnx"
    common = ("quantize", str(net), "--data", str(samples), "-o", str(output), "--target", "rtx", "-q")
    ended = call(*common, "--cache", str(cache(tmp_path, dict.fromkeys("xrs", 1e-4))), "--format", "json")
    assert (ended.code, output.exists()) == (1, False)
    assert json.loads(ended.out)["error"]["y"]["rms"] > 0.1
    assert "cache" not in json.loads(call(*common, "--no-cache", "--format", "json").out)
    found = scales_in(output)
    ended = call(*common, "--cache", str(cache(tmp_path, found)), "--format", "json")
    assert (ended.code, scales_in(output)) == (0, found)
    assert 0 < json.loads(ended.out)["error"]["y"]["rms"] < 0.1


def test_layers_without_scales_stay_in_float(call: Call, tmp_path: Path) -> None:
    net = saved_net(CHAIN, tmp_path)
    path = cache(tmp_path, {"x": 0.031, "s": 0.0077})
    ended = call("quantize", str(net), "--cache", str(path), "-o", str(tmp_path / "q.onnx"), "--format", "json", "-q")
    document = json.loads(ended.out)
    assert {each["node"] for each in document["quantized"]} == {"c1", "c3"}
    assert [(each["node"], each["reason"]) for each in document["left_in_float"]] == [
        ("c2", "the cache has no scale of tensor 'r'")
    ]


def test_products_of_computed_matrices_need_the_scales_of_both(call: Call, tmp_path: Path) -> None:
    path = cache(tmp_path, dict.fromkeys(("c", "q", "p", "v"), 0.02))
    common = ("quantize", str(saved_net(ATTENTION, tmp_path)), "--cache", str(path), "-o", str(tmp_path / "q.onnx"))
    ended = call(*common, "--attention", "--target", "rtx", "--format", "json", "-q")
    document = json.loads(ended.out)
    assert {each["node"] for each in document["quantized"]} == {"q", "k", "v", "mix"}
    reasons = {each["node"]: each["reason"] for each in document["left_in_float"]}
    assert reasons["scores"] == "the cache has no scale of tensor 'kt'"
    assert set(scales_in(tmp_path / "q.onnx")) == {"c", "p", "v"}


def test_tensors_that_share_a_scale_say_so(call: Call, tmp_path: Path) -> None:
    net = saved_net(JOINED, tmp_path)
    path = cache(tmp_path, {"x": 0.03, "p": 0.01, "m": 0.02})
    ended = call("quantize", str(net), "--cache", str(path), "-o", str(tmp_path / "q.onnx"), "--format", "json", "-q")
    other = json.loads(ended.out)["cache"]["other"]
    assert [(each["tensor"], each["written"]) for each in other] == [("p", float(np.float32(0.02)))]
    # What is only moved has the scale of what it is moved from.
    path = cache(tmp_path, {"x": 0.03, "p": 0.01})
    ended = call("quantize", str(net), "--cache", str(path), "-o", str(tmp_path / "q.onnx"), "--format", "json", "-q")
    assert json.loads(ended.out)["cache"]["other"] == []
    assert scales_in(tmp_path / "q.onnx")["m"] == float(np.float32(0.01))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with TRT-VERSION-CALIBRATOR"),
        ("x: 3c010a14\n", "does not begin with TRT-VERSION-CALIBRATOR"),
        ("TRT-8601-EntropyCalibration2\nx 3c010a14\n", "line 2 is not"),
        ("TRT-8601-EntropyCalibration2\n\nx: 3c010a1\n", "line 3 is not"),
        ("TRT-8601-EntropyCalibration2\nx: 7fc00000\n", "line 2: nan is not a scale"),
        ("TRT-8601-EntropyCalibration2\nx: bc010a14\n", "is not a scale"),
        ("TRT-8601-EntropyCalibration2\nx: 3c010a14\nx: 3c010a15\n", "'x' has another scale above"),
        ("TRT-8601-MinMaxCalibration\nother: 3c010a14\n", "has the scales of no layer"),
        ("TRT-8601-MinMaxCalibration\n", "It is empty"),
    ],
)
def test_what_is_no_cache_of_the_model(call: Call, tmp_path: Path, text: str, said: str) -> None:
    net = saved_net(CHAIN, tmp_path)
    (tmp_path / "bad.cache").write_text(text)
    ended = call("quantize", str(net), "--cache", str(tmp_path / "bad.cache"), "-o", str(tmp_path / "q.onnx"), "-q")
    assert (ended.code, said in ended.err, (tmp_path / "q.onnx").exists()) == (2, True, False), ended.err


def test_more_scales_than_a_model_may_have_tensors_are_not_read(call: Call, tmp_path: Path) -> None:
    net, path = saved_net(CHAIN, tmp_path), cache(tmp_path, {f"t{i}": 1.0 for i in range(100)})
    common = ("quantize", str(net), "--cache", str(path), "-o", str(tmp_path / "q.onnx"), "-q")
    ended = call(*common, "--resources", "tensors=99")
    assert (ended.code, "TC408" in ended.err, "--resources tensors=N" in ended.err) == (1, True, True), ended.err


def test_a_budget_needs_samples(call: Call, tmp_path: Path) -> None:
    net, path = saved_net(CHAIN, tmp_path), cache(tmp_path, SCALES)
    common = ("quantize", str(net), "--cache", str(path), "-q")
    ended = call(*common, "-o", str(tmp_path / "q.onnx"), "--budget", "0.1")
    assert (ended.code, "--error-budget" in ended.err) == (2, True)
    ended = call(*common, "-o", str(path))
    assert (ended.code, "is the cache" in ended.err) == (2, True)
