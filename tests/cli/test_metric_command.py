"""`--metric`: a detector whose error passes and whose recall fails, and the other way round."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.cli import Ended

Call = Callable[..., Ended]
TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,16,16] x) => (float[1,2,16,16] y) {
    [c1] a = Conv <pads = [1,1,1,1]> (x, w1)
    r = Relu (a)
    [c2] b = Conv (r, w2)
    c = Constant <value = float[2] {OFFSET}> ()
    s = Constant <value_ints = [1, 2, 1, 1]> ()
    o = Reshape (c, s)
    y = Add (b, o) }"""
METRICS = """
import numpy as np

def recall(outputs, reference):
    # Of the eight strongest places of the first channel, how many are found at the threshold that they are above.
    wanted, got = reference["y"][0, 0], outputs["y"][0, 0]
    least = np.sort(wanted.ravel())[-8]
    return float((got[wanted >= least] >= least).mean())

def presence(outputs, reference):
    return float((outputs["y"][0, 0].argmax() == reference["y"][0, 0].argmax()))

def mean_error(outputs, reference):
    return float(np.abs(outputs["y"] - reference["y"]).mean())
"""


@pytest.fixture
def detector(tmp_path: Path) -> Callable[[float], Path]:
    """Makes a detector whose second channel is offset, which hides errors of the first in the root mean square."""

    def made(offset: float) -> Path:
        random = np.random.default_rng(0)
        model = onnx.parser.parse_model(TEXT.replace("OFFSET", f"0.0, {offset}"))
        weights = {"w1": 0.4 * random.standard_normal((4, 1, 3, 3)), "w2": 0.4 * random.standard_normal((2, 4, 1, 1))}
        model.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items())
        onnx.save(model, tmp_path / "detector.onnx")
        np.savez(tmp_path / "samples.npz", x=random.standard_normal((20, 1, 1, 16, 16)).astype(np.float32))
        (tmp_path / "metrics.py").write_text(METRICS)
        return tmp_path / "detector.onnx"

    return made


def quantised(call: Call, model: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    data, output = model.with_name("samples.npz"), model.with_name("int8.onnx")
    fixed = ("--data", str(data), "-o", str(output), "--target", "rtx", "--no-cache", "-q", "--format", "json")
    ended = call("quantize", str(model), *fixed, *flags)
    assert ended.code in (0, 1), ended.err
    document = json.loads(ended.out)
    assert output.exists() == (ended.code == 0)
    return ended.code, document


def test_a_small_error_with_a_bad_recall_is_refused(call: Call, detector: Callable[[float], Path]) -> None:
    model = detector(50.0)
    metric = f"{model.with_name('metrics.py')}:recall"
    code, document = quantised(call, model, "--tolerance", "0.01")
    assert (code, document["error"]["y"]["rms"] < 0.01) == (0, True)
    model.with_name("int8.onnx").unlink()
    code, document = quantised(call, model, "--metric", metric, "--tolerance", "0.99")
    assert (code, document["metric"]["met"], document["metric"]["larger_is_better"]) == (1, False, True)
    assert document["metric"]["value"] < 0.99 <= document["metric"]["of_float"]
    assert document["error"]["y"]["rms"] < 0.01


def test_a_large_error_with_a_good_metric_is_accepted(call: Call, detector: Callable[[float], Path]) -> None:
    model = detector(0.0)
    code, document = quantised(call, model, "--tolerance", "0.005")
    assert (code, document["error"]["y"]["rms"] > 0.005) == (1, True)
    metric = f"{model.with_name('metrics.py')}:mean_error"
    code, document = quantised(call, model, "--metric", metric, "--tolerance", "0.5")
    assert (code, document["metric"]["larger_is_better"]) == (0, False)
    assert 0 < document["metric"]["value"] < 0.5
    assert document["error"]["y"]["rms"] > 0.005


def test_a_budget_in_a_metric_leaves_as_many_layers_in_float_as_it_takes(
    call: Call, detector: Callable[[float], Path]
) -> None:
    model = detector(50.0)
    metric = ("--metric", f"{model.with_name('metrics.py')}:recall", "--method", "min-max")
    _, all_quantised = quantised(call, model, *metric, "--tolerance", "0.01")
    limit = all_quantised["metric"]["value"] + 0.001
    code, document = quantised(call, model, *metric, "--budget", str(limit))
    assert (code, document["budget"]["met"], document["tolerance"]) == (0, True, limit)
    assert document["metric"]["value"] >= limit
    assert document["budget"]["error_of_all"] > 0 and document["budget"]["left_in_float"] and document["quantized"]


def test_precision_auto_stays_within_a_metric(call: Call, detector: Callable[[float], Path]) -> None:
    model = detector(0.0)
    fixed = (
        "--target",
        "rtx",
        "-q",
        "--format",
        "json",
        "--precision",
        "auto",
        "--data",
        str(model.with_name("samples.npz")),
    )

    def mix(limit: float) -> dict[str, Any]:
        ended = call("build", str(model), *fixed, "--metric", "psnr", "--tolerance", str(limit))
        assert ended.code == 0, ended.err
        found = dict(json.loads(ended.out)["mix"])
        assert found["metric"]["value"] >= limit
        assert found["error"] <= 100 - limit
        return found

    loose, strict = mix(40), mix(99.9)
    assert (loose["precision"], strict["precision"]) == ("fp16", "as-is")
    # A little more than all in 16 bits has.
    middle = mix(101 - loose["error_of_all"])
    assert loose["time"] < middle["time"] <= strict["time"]


def test_another_metric_builds_again_and_so_does_its_code(call: Call, detector: Callable[[float], Path]) -> None:
    model = detector(0.0)
    code = model.with_name("metrics.py")
    fixed = ("--target", "rtx", "-q", "--format", "json", "--precision", "auto", "--prove", "none")

    def built(*flags: str) -> bool:
        ended = call("build", str(model), *fixed, *flags)
        assert ended.code == 0, ended.err
        return not json.loads(ended.out)["up_to_date"]

    mine = ("--metric", f"{code}:mean_error", "--tolerance", "0.5")
    assert [built("--metric", "psnr", "--tolerance", "40"), built(*mine), built(*mine)] == [True, True, False]
    code.write_text(METRICS + "\n")
    assert built(*mine)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--metric", "psnr"), "--tolerance"),
        (("--metric", "recal", "--tolerance", "1"), "FILE.py:FUNC"),
        (("--metric", "metrics.py:recall", "--tolerance", "1"), "no such file"),
    ],
)
def test_what_does_not_make_sense_is_told(
    call: Call, detector: Callable[[float], Path], flags: tuple[str, ...], words: str
) -> None:
    model = detector(0.0)
    data = ("--data", str(model.with_name("samples.npz")))
    for command in (("quantize", "-o", str(model.with_name("o.onnx"))), ("build", "--precision", "auto")):
        ended = call(command[0], str(model), *command[1:], *data, "--target", "rtx", "-q", *flags)
        assert (ended.code, words in ended.err) == (2, True), ended.err


def test_no_configuration_names_code_as_a_metric(call: Call, detector: Callable[[float], Path]) -> None:
    model = detector(0.0)
    ran = model.with_name("ran")
    model.with_name("metrics.py").write_text(f"open({str(ran)!r}, 'w')\ndef f(outputs, reference): return 1.0\n")
    config = model.with_name("trtconv.toml")
    table = '[[models]]\npath = "detector.onnx"\ntargets = ["rtx"]\nprecision = "auto"\n'
    table += 'tolerance = 0.5\nmetric = "METRIC"\n'
    config.write_text(table.replace("METRIC", f"{model.with_name('metrics.py')}:f"))
    ended = call("build", "--config", str(config), "-q")
    assert (ended.code, ran.exists()) == (2, False), ended.err
    config.write_text(table.replace("METRIC", "iou"))
    ended = call("build", "--config", str(config), "-q")
    assert ended.code == 0, ended.err
