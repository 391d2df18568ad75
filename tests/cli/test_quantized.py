"""`check` and `rewrite` on quantised models, bad ones and good ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from support.cli import Ended
from support.paths import MODELS
from support.quantized_models import Net, Quantiser, make_net

Call = Callable[..., Ended]
DECONV = (("strides", [2, 2]), ("output_padding", [1, 1]))

MENDED = {
    "axis 0": (Net(weight=Quantiser(axis=0)), "TC301", "2 scales on axis 0", 0.05),
    "axis 0, floats": (Net(weight=Quantiser(axis=-4), float_weight=True), "TC301", "2 scales on axis -4", 0.05),
    "no zero point": (Net(activation=Quantiser("uint8", spelling="bare")), "TC306", "uint8 (0 to 255)", 0),
    "uint8 around 128": (Net(activation=Quantiser("uint8", 128), moves=("pad",)), "TC307", "zero point 128", 0),
    "uint8 weights": (Net(weight=Quantiser("uint8", 128, axis=1), attrs=DECONV), "TC307", "zero point 128 (3", 0),
    "asymmetric": (Net(activation=Quantiser("int8", 3)), "TC308", "int8 with zero point 3", 0),
    "16 bits": (Net(activation=Quantiser("uint16", 7)), "TC308", "uint16 with zero point 7", 0),
    "integer bias": (Net(bias="int32"), "TC309", "int32 tensor 'b", 0),
}
"""Spelling to (model, code, words of the message, relative error that mending may add)."""


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save_model(proto, path)
    return path


def checked(call: Call, path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Calls `check` for a target without a runtime; returns the exit code and the errors."""
    ended = call("check", str(path), "--target", "tensorrt-8.6", "--format", "json", *options)
    document = json.loads(ended.out)
    assert document["exit_code"] == ended.code
    return ended.code, [f for f in document["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize("spelling", MENDED)
def test_a_bad_spelling_fails_the_check_and_is_mended_by_rewrite(call: Call, spelling: str, tmp_path: Path) -> None:
    net, code, words, limit = MENDED[spelling]
    path = saved(make_net(net)[0], tmp_path)
    status, errors = checked(call, path)
    assert status == 1
    assert code in {f["code"] for f in errors}
    for finding in errors:
        assert finding["location"]["node"].endswith("_node")
        assert finding["location"]["op"] in ("QuantizeLinear", "DequantizeLinear")
    assert any(words in f["message"] for f in errors if f["code"] == code)

    output = tmp_path / "mended.onnx"
    ended = call("rewrite", str(path), "-o", str(output), "--target", "tensorrt-8.6", "--format", "json")
    document = json.loads(ended.out)
    assert ended.code == 0 and document["edits"] and not document["skipped"]
    assert document["verified"] is not None and document["verified"] <= limit
    assert checked(call, output) == (0, [])


def test_the_case_of_issue_2723_names_both_counts(call: Call, tmp_path: Path) -> None:
    """ConvTranspose2d(64, 10, 1) whose 64 scales were taken along the input channels."""
    proto, _ = make_net(Net(kernel=(1, 1), channels=(64, 10), weight=Quantiser(axis=0)))
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "axis":
                attribute.i = 1
    path = saved(proto, tmp_path)
    status, errors = checked(call, path)
    assert status == 1
    assert [f["code"] for f in errors] == ["TC302"]
    assert "10 output channels, 64 scales: these fit the input channels" in errors[0]["message"]
    text = call("check", str(path), "--target", "tensorrt-8.6")
    assert text.code == 1 and "10 output channels, 64 scales" in text.out
    output = tmp_path / "out.onnx"
    rewritten = json.loads(call("rewrite", str(path), "-o", str(output), "--format", "json").out)
    assert not rewritten["edits"] and rewritten["skipped"]


@pytest.mark.parametrize(("value", "word"), [(-0.5, "-0.5"), (np.nan, "nan"), (np.inf, "inf")])
def test_a_senseless_scale_is_found_and_never_mended(call: Call, value: float, word: str, tmp_path: Path) -> None:
    proto, _ = make_net(Net(weight=Quantiser(axis=0)))
    scale = next(t for t in proto.graph.initializer if t.name.startswith("scale") and t.dims)
    values = np.array([value, 0.1], np.float32)
    scale.CopyFrom(numpy_helper.from_array(values, scale.name))
    path = saved(proto, tmp_path)
    status, errors = checked(call, path)
    assert status == 1
    assert any(f["code"] == "TC303" and f"scale {word} at channel 0" in f["message"] for f in errors)
    output = tmp_path / "out.onnx"
    document = json.loads(call("rewrite", str(path), "-o", str(output), "--format", "json").out)
    assert any("not a positive finite number" in s["reason"] for s in document["skipped"])
    assert not [e for e in document["edits"] if e["pass"] == "move-channel-scales"]
    if output.exists():
        left = {t.name: numpy_helper.to_array(t) for t in onnx.load(output).graph.initializer}
        assert np.array_equal(left[scale.name], values, equal_nan=True)


def test_a_scale_from_an_input_is_found_and_not_mended(call: Call, tmp_path: Path) -> None:
    proto, _ = make_net(Net())
    name = next(n for n in proto.graph.node if n.op_type == "QuantizeLinear").input[1]
    for tensor in [t for t in proto.graph.initializer if t.name == name]:
        proto.graph.initializer.remove(tensor)
    proto.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []))
    path = saved(proto, tmp_path)
    status, errors = checked(call, path)
    assert status == 1 and [f["code"] for f in errors] == ["TC304"]
    output = tmp_path / "out.onnx"
    document = json.loads(call("rewrite", str(path), "-o", str(output), "--format", "json").out)
    assert any("computed at run time" in s["reason"] for s in document["skipped"])


def test_operators_on_integers_are_found_and_written_with_quantisers(call: Call, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,1,4,4] y)
          <float s = {0.1}, int8 z = {0}, int8[1,2,1,1] w = {5,-7}, float ws = {0.02}>
        { q = QuantizeLinear (x, s, z)
          [conv] r = QLinearConv (q, s, z, w, ws, z, s, z)
          y = DequantizeLinear (r, s, z) }"""
    path = saved(onnx.parser.parse_model(text), tmp_path)
    status, errors = checked(call, path)
    assert status == 1
    assert [(f["code"], f["location"]["node"]) for f in errors] == [("TC310", "conv")]
    output = tmp_path / "out.onnx"
    document = json.loads(call("rewrite", str(path), "-o", str(output), "--format", "json").out)
    assert document["verified"] <= 0.05
    assert [n.op_type for n in onnx.load(output).graph.node] == [
        "QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear", "DequantizeLinear",
    ]  # fmt: skip


def test_requantising_is_asked_for_and_says_by_how_much(call: Call, tmp_path: Path) -> None:
    path = saved(make_net(Net(activation=Quantiser("uint8", 0)))[0], tmp_path)
    output = tmp_path / "out.onnx"
    plain = json.loads(call("rewrite", str(path), "-o", str(output), "--format", "json").out)
    assert "requantize-symmetric" not in {e["pass"] for e in plain["edits"]}
    asked = json.loads(call("rewrite", str(path), "-o", str(output), "--requantize", "--format", "json").out)
    (edit,) = (e for e in asked["edits"] if e["pass"] == "requantize-symmetric")
    assert "values move by at most" in edit["what"]
    assert 0 < asked["verified"] < 0.1
    assert checked(call, path, "--requantize")[0] == 1


def test_the_clean_model_is_clean(call: Call) -> None:
    status, errors = checked(call, MODELS / "quantized_autoencoder.onnx")
    assert (status, errors) == (0, [])


@pytest.mark.parametrize("options", [(), ("--no-rewrite",)])
@pytest.mark.parametrize(("point", "code"), [(128, "TC307"), (77, "TC308")])
@pytest.mark.parametrize("last", ["e = DequantizeLinear (d, b, c)", "f = DequantizeLinear (d, b, c) e = Neg (f)"])
def test_quantisers_in_functions_are_found(
    call: Call, point: int, code: str, last: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[4] x) => (float[4] y) <float s = {{0.05}}, uint8 z = {{{point}}}> {{ y = local.Fake (x, s, z) }}
        <domain: "local", opset_import: ["": 17]>
        Fake (a, b, c) => (e) {{ d = QuantizeLinear (a, b, c) {last} }}"""
    )
    status, findings = checked(call, saved(proto, tmp_path), *options)
    assert status == 1
    assert [f["code"] for f in findings] == [code, code]


IN_FLOAT = {
    "asymmetric": (Quantiser("int8", 3), 1, (), "its input is quantised asymmetrically"),
    "float": (None, 1, (), "its input is not dequantised"),
    "folded": (Quantiser(), 2, (), "it has 2 groups"),
    "requantised": (Quantiser("int8", 3), 1, ("--requantize",), None),
    "requantised, groups": (Quantiser("int8", 3), 2, ("--requantize",), "it has 2 groups"),
}


@pytest.mark.parametrize("case", IN_FLOAT)
def test_why_a_layer_runs_in_float_is_told_of_the_model_as_it_was(call: Call, case: str, tmp_path: Path) -> None:
    activation, group, options, reason = IN_FLOAT[case]
    net = Net(activation=activation, channels=(4, 4), group=group, weight=Quantiser(axis=1))
    # TensorRT 8 has no int8 kernel for groups: a pass makes float weights of the quantised ones.
    target = "tensorrt-8.6" if case == "folded" else "tensorrt-10.16"
    path = saved(make_net(net)[0], tmp_path)
    ended = call("check", str(path), "--target", target, "--format", "json", *options)
    found = [f["message"] for f in json.loads(ended.out)["findings"] if f["code"] == "TC311"]
    assert found == ([] if reason is None else [f"will not run in int8: {reason}"])


DECLINED = {
    "run-time bias": (
        """g (int32[4] x) => (float[4] y) <float s = {0.05}, int32 z = {0}>
        { [back] y = DequantizeLinear (x, s, z) }""",
        "Quantise with float biases.",
        "its int32 input is computed at run time",
    ),
    "scales of rows": (
        """g (int8[2,4] x) => (int8[2,1] y)
          <float[2] s = {0.1, 0.2}, int8[2] z = {0, 0}, int8[4,1] w = {1,2,3,4}, float ws = {0.02}, int8 wz = {0}>
        { [matmul] y = QLinearMatMul (x, s, z, w, ws, wz, ws, wz) }""",
        "Quantise with quant_format=QDQ.",
        "its 2 scales of input 0 are not those of output channels",
    ),
}


@pytest.mark.parametrize("case", DECLINED)
def test_what_the_passes_declined_is_not_promised(call: Call, case: str, tmp_path: Path) -> None:
    text, words, reason = DECLINED[case]
    path = saved(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path)
    status, findings = checked(call, path)
    assert status == 1
    assert {f["fix"] for f in findings if f["code"] != "TC401"} == {f"{words} trtconv leaves it as it is: {reason}."}
    _, as_it_is = checked(call, path, "--no-rewrite")
    mended = [f["fix"] for f in as_it_is if f["code"] != "TC401"]
    assert mended and all("trtconv" in fix and "leaves" not in fix for fix in mended)
