"""Exit codes, JSON on failure, and what is kept of a bug."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support.cli import FINDING, build_report, check_report
from trtconv.cli.process.boundary import wants_json
from trtconv.core.errors import BuildFailed, EngineFailed, EnvironmentMissing, InputError

FAILURES = [
    (InputError("no such file: m.onnx", "Check the path."), 2, "InputError"),
    (EnvironmentMissing("no TensorRT here", "pip install tensorrt-rtx"), 4, "EnvironmentMissing"),
    (BuildFailed("the builder refused", "", (FINDING,)), 1, "BuildFailed"),
    (EngineFailed("the engine does not run"), 1, "EngineFailed"),
    (MemoryError(), 4, "EnvironmentMissing"),
]


@pytest.mark.parametrize(("error", "code", "kind"), FAILURES)
def test_failure_in_text(call, pipeline, error: Exception, code: int, kind: str) -> None:
    pipeline.result = error
    ended = call("build", "m.onnx")
    assert (ended.code, ended.out) == (code, "")
    assert "error: " in ended.err
    assert "Traceback" not in ended.err
    assert ("hint: " in ended.err) == bool(getattr(error, "hint", "narrower"))


@pytest.mark.parametrize(("error", "code", "kind"), FAILURES)
@pytest.mark.parametrize("command", [("build", "m.onnx"), ("check", "m.onnx"), ("rewrite", "m.onnx", "-o", "o.onnx")])
def test_failure_in_json(call, pipeline, error: Exception, code: int, kind: str, command) -> None:
    pipeline.result = error
    ended = call(*command, "--format", "json")
    document = json.loads(ended.out)
    assert ended.code == code == document["exit_code"]
    assert document["schema"] == 1
    assert document["error"]["type"] == kind
    assert set(document["error"]) == {"type", "message", "hint"}
    assert document["findings"] == [finding.to_json() for finding in getattr(error, "findings", ())]
    assert "error: " in ended.err


def test_refused_build_shows_its_findings(call, pipeline) -> None:
    pipeline.result = BuildFailed("the builder refused", "", (FINDING,))
    ended = call("build", "m.onnx", "-q")
    assert 'graph/node[5] ConvTranspose "up1"' in ended.err
    assert "TC101" in ended.err


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_bug_is_saved(call, pipeline, monkeypatch, tmp_path: Path, output_format: str) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipeline.result = ZeroDivisionError("oh\nno")
    ended = call("build", "m.onnx", "--format", output_format)
    (log,) = tmp_path.glob("trtconv-*.log")
    assert ended.code == 3
    assert "Traceback" not in ended.err + ended.out
    assert str(log) in ended.err
    assert "internal error: ZeroDivisionError: oh" in ended.err
    kept = log.read_text(encoding="utf-8")
    assert "Traceback" in kept
    assert "ZeroDivisionError: oh" in kept
    assert f"Python {sys.version}" in kept
    assert "onnx " in kept
    if output_format == "json":
        document = json.loads(ended.out)
        assert (document["exit_code"], document["error"]["type"]) == (3, "ZeroDivisionError")


def test_bug_without_a_temporary_folder_is_printed(call, pipeline, monkeypatch) -> None:
    def refuse(**options: object) -> None:
        raise PermissionError

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    pipeline.result = ZeroDivisionError("oh no")
    ended = call("build", "m.onnx")
    assert ended.code == 3
    assert "Traceback" in ended.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("build",), "Missing argument 'MODEL'"),
        (("build", "m.onnx", "--bogus"), "No such option"),
        (("build", "m.onnx", "--precision", "fp12"), "fp12"),
        (("build", "m.onnx", "--fail-on", "info"), "info"),
        (("build", "m.onnx", "more.onnx"), "more.onnx"),
        (("rewrite", "m.onnx"), "--output"),
        (("bogus",), "No such command 'bogus'"),
        (("build", "m.onnx", "--dim", "height"), "--dim 'height' is not NAME=MIN:OPT:MAX"),
        (("build", "m.onnx", "--dim", "height=4:2:8"), "--dim height: 4:2:8"),
        (("build", "m.onnx", "--profile", ""), "--profile is empty"),
        (("build", "m.onnx", "--target", "trt"), "--target 'trt' is unknown"),
        (("build", "m.onnx", "--target", "tensorrt-106"), "--target 'tensorrt-106': that version's rules"),
        (("check", "m.onnx", "--target", "rtx-8.6"), "--target 'rtx-8.6': that version's rules"),
        (("build", "m.onnx", "--minShapes", "x:1"), "--optShapes and --maxShapes missing"),
        (("build", "m.onnx", "--profile", "h=1", "--optShapes", "x:1"), "--profile does not go together"),
    ],
)
def test_bad_call(call, pipeline, args: tuple[str, ...], message: str) -> None:
    plain = call(*args)
    assert (plain.code, plain.out) == (2, "")
    assert message in plain.err
    assert "Traceback" not in plain.err
    document = call(*args, "--format=json")
    assert document.code == 2
    parsed = json.loads(document.out)
    assert parsed["exit_code"] == 2
    assert message in parsed["error"]["message"]
    assert parsed["findings"] == []
    assert pipeline.requests == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["check", "--format", "json"], True),
        (["check", "--format=json"], True),
        (["check", "--format", "json", "--format", "text"], False),
        (["check", "--", "--format", "json"], False),
        (["check", "--format"], False),
        ([], False),
    ],
)
def test_wants_json(arguments: list[str], expected: bool) -> None:
    assert wants_json(arguments) is expected


@pytest.mark.parametrize("command", [("build", "m.onnx"), ("check", "m.onnx"), ("rewrite", "m.onnx", "-o", "o.onnx")])
def test_stdout_has_the_document_and_nothing_else(call, pipeline, command) -> None:
    def noise() -> None:
        print("a library prints")  # noqa: T201
        os.write(1, b"native code prints\n")

    pipeline.meanwhile = noise
    ended = call(*command, "--format", "json")
    json.loads(ended.out)
    assert "a library prints" in ended.err
    assert "native code prints" in ended.err


def test_report_decides_the_exit_code(call, pipeline) -> None:
    pipeline.result = build_report(exit_code=1, findings=(FINDING,), engine=None)
    assert call("build", "m.onnx").code == 1
    pipeline.result = check_report(exit_code=0)
    assert call("check", "m.onnx").code == 0


def test_no_color_without_a_terminal(call, pipeline) -> None:
    pipeline.result = InputError("no")
    assert "\x1b" not in call("build", "m.onnx").err
