"""What CI relies on: one verdict told once, honest about what was not asked, and a document whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import onnx
import pytest

from support.paths import DATA, MODELS
from trtconv.cli.formats.text import runs_text
from trtconv.core.documents.check import FailedRun
from trtconv.core.findings import Finding, Severity
from trtconv.rules import RULES

UNET = str(MODELS / "unet.onnx")
SARIF = json.loads((DATA / "sarif-2.1.0.json").read_bytes())


@pytest.mark.parametrize("model", ["missing.onnx", "folder", "broken.onnx"])
def test_a_model_that_cannot_be_read_has_a_document_in_every_format(call, tmp_path: Path, model: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    path = str(tmp_path / model)
    sarif = call("check", path, "--target", "rtx", "--format", "sarif", "-q")
    assert sarif.code == 2
    assert sarif.err.startswith("error: ")
    log = json.loads(sarif.out)
    jsonschema.validate(log, SARIF)
    (invocation,) = log["runs"][0]["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    message = invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert path in message and "\nhint: " in message
    junit = call("check", path, "--target", "rtx", "--format", "junit", "-q")
    assert (junit.code, ElementTree.fromstring(junit.out).get("errors")) == (2, "1")
    assert "".join(error.text or "" for error in ElementTree.fromstring(junit.out).iter("error")).startswith("hint: ")
    github = call("check", path, "--target", "rtx", "--format", "github", "-q")
    assert (github.code, github.out.startswith("::error file=")) == (2, True)
    assert "hint: " in github.out
    assert call("check", path, "--target", "rtx", "-q").out == ""


def test_a_runtime_that_is_missing_has_a_document_too(call) -> None:
    ended = call("check", UNET, "--target", "tensorrt", "--format", "sarif", "-q")
    if ended.code == 0:
        pytest.skip("tensorrt works here")
    assert ended.code == 4
    jsonschema.validate(json.loads(ended.out), SARIF)


def test_a_version_that_is_not_installed_is_judged_by_rules_and_says_so(call) -> None:
    text = call("check", UNET, "--target", "tensorrt-9.1", "-q")
    assert (text.code, "parser: not asked, by rules alone: " in text.out) == (0, True)
    parser = json.loads(call("check", UNET, "--target", "tensorrt-9.1", "-q", "--format", "json").out)["parser"]
    assert (parser["accepted"], parser["runtime"]) == (None, None)
    assert "TensorRT" in parser["why"]


def test_bounds_are_all_given_or_none(call) -> None:
    none = call("check", UNET, "--target", "rtx", "-q", "--format", "json")
    assert (none.code, json.loads(none.out)["unbounded"]) == (0, ["batch", "height", "width"])
    some = call("check", UNET, "--target", "rtx", "-q", "--dim", "height=64")
    assert some.code == 2
    assert "width" in some.err
    every = ("--dim", "batch=1", "--dim", "height=64", "--dim", "width=64")
    assert json.loads(call("check", UNET, "--target", "rtx", "-q", "--format", "json", *every).out)["unbounded"] == []


def test_a_size_that_does_not_fit_is_told_once(call) -> None:
    sizes = ("--dim", "batch=1", "--dim", "height=64:100:512", "--dim", "width=64")
    ended = call("check", UNET, "--target", "rtx", "-q", "--format", "json", *sizes)
    errors = [f["code"] for f in json.loads(ended.out)["findings"] if f["severity"] == "error"]
    assert (ended.code, errors) == (1, ["TC201"])


def test_what_a_configuration_ignores_does_not_count_in_a_build(call, tmp_path, monkeypatch) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,p,q] y)
        <float[1,1,2,2] w = {1,1,1,1}> { y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    config = '[[models]]\npath = "m.onnx"\ntargets = ["rtx"]\nignore = [{ code = "TC101", reason = "known" }]\n'
    (tmp_path / "trtconv.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    # The second time the engine is up to date, and its report is read back.
    for made in (True, False):
        ended = call("build", "-q", "--format", "json")
        (run,) = json.loads(ended.out)["runs"]
        assert (ended.code, run["findings"], run["up_to_date"]) == (0, [], not made)
        assert [(each["code"], each["reason"]) for each in run["ignored"]] == [("TC101", "known")]
    (tmp_path / "trtconv.toml").write_text(config.partition("ignore")[0])
    (run,) = json.loads(call("build", "-q", "--format", "json").out)["runs"]
    assert ([f["code"] for f in run["findings"]], run["up_to_date"]) == (["TC101"], True)


@pytest.mark.parametrize("flag", ["--select", "--ignore"])
def test_a_code_that_no_rule_has_is_refused(call, flag: str) -> None:
    ended = call("check", UNET, "--target", "rtx", "-q", flag, "TC999")
    assert ended.code == 2
    assert "by 'TC999'" in ended.err


@pytest.mark.parametrize("command", ["check", "build"])
def test_a_code_that_no_rule_has_is_refused_in_a_configuration(call, tmp_path, monkeypatch, command: str) -> None:
    (tmp_path / "m.onnx").write_bytes(Path(UNET).read_bytes())
    entry = '[[models]]\npath = "m.onnx"\ntargets = ["rtx"]\ndims = { batch = 1, height = 16, width = 16 }\n'
    (tmp_path / "trtconv.toml").write_text(f'{entry}ignore = [{{ code = "TC999", reason = "accepted" }}]\n')
    monkeypatch.chdir(tmp_path)
    ended = call(command, "-q", "--format", "json")
    (run,) = json.loads(ended.out)["runs"]
    assert (ended.code, run["exit_code"]) == (2, 2)
    assert "TC999" in run["error"]["message"]


def test_rules_are_in_the_order_of_their_codes() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(codes)


def test_the_path_of_a_failed_model_is_written_once() -> None:
    line = runs_text([FailedRun("a/m.onnx", "rtx", "InputError", "a/m.onnx: no such file", "", 2)]).splitlines()[0]
    assert line == "FAILED  a/m.onnx for rtx: no such file"


def test_verbose_lists_every_finding(call, pipeline) -> None:
    from support.cli import check_report

    found = tuple(Finding("TC305", "a-fault", f"number {n}", Severity.ERROR) for n in range(30))
    pipeline.result = check_report(findings=found)
    assert call("check", "m.onnx").out.count("error TC305") == 4
    assert call("check", "m.onnx", "--verbose").out.count("error TC305") == 30
