"""`trtconv check` and `trtconv build` without a MODEL."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from support.paths import MODELS
from trtconv import pipeline
from trtconv.core.documents.check import FailedRun
from trtconv.core.findings import Severity
from trtconv.core.requests.check import CheckRequest
from trtconv.core.target import Target
from trtconv.pipeline import batch
from trtconv.pipeline.batch import suitable_jobs, worst_exit_code

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths and signals"),
]

CONFIG = """
targets = ["rtx"]
[[models]]
path = "unet.onnx"
dims = { batch = 1, height = 64, width = 64 }
[[models]]
path = "quantized_autoencoder.onnx"
ignore = [{ code = "TC311", reason = "ten classes" }]
"""
BROKEN = CONFIG + '[[models]]\npath = "broken.onnx"\n'


def rtx() -> str:
    """Returns the TensorRT-RTX that is here, as a target."""
    return "rtx-" + ".".join(importlib.metadata.version("tensorrt-rtx").split(".")[:2])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("unet.onnx", "quantized_autoencoder.onnx"):
        shutil.copy(MODELS / name, tmp_path)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    (tmp_path / "trtconv.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check(call, project: Path) -> None:
    ended = call("check", "-q")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == "2 of 2 runs ok"
    document = json.loads(call("check", "-q", "--format", "json").out)
    assert document["summary"] == {"runs": 2, "ok": 2, "up_to_date": 0, "failed": 0, "exit_code": 0}
    assert [run["exit_code"] for run in document["runs"]] == [0, 0]
    assert [each["reason"] for each in document["runs"][1]["ignored"]] == ["ten classes"]


def test_one_that_cannot_be_read_does_not_stop_the_others(call, project: Path) -> None:
    (project / "trtconv.toml").write_text(BROKEN)
    document = json.loads(call("check", "-q", "--format", "json").out)
    assert [run["exit_code"] for run in document["runs"]] == [0, 0, 2]
    assert document["exit_code"] == 2
    assert document["runs"][2]["error"]["type"] == "InputError"
    junit = ElementTree.fromstring(call("check", "-q", "--format", "junit").out)
    assert (junit.get("errors"), len(junit.findall("testsuite"))) == ("1", 3)
    sarif = json.loads(call("check", "-q", "--format", "sarif").out)["runs"][0]
    assert sarif["invocations"][0]["executionSuccessful"] is False
    assert any(
        line.startswith("::error file=broken.onnx,") for line in call("check", "--format", "github").out.splitlines()
    )


def test_runs_that_failed_are_named_on_stderr(call, project: Path) -> None:
    (project / "trtconv.toml").write_text(BROKEN)
    for output_format in ("json", "junit", "github"):
        ended = call("check", "-q", "--format", output_format)
        told = ended.err.splitlines()
        assert len(told) == 1
        assert told[0].startswith("error: 1 of 3 failed: broken.onnx ")
    assert call("check", "-q").err == ""


def test_several_models_on_the_command_line(call, project: Path) -> None:
    ended = call("check", "unet.onnx", "quantized_autoencoder.onnx", "-q", "--target", "rtx", "--format", "json")
    document = json.loads(ended.out)
    assert (ended.code, document["config"]) == (0, "trtconv.toml")
    assert [run["model"]["path"] for run in document["runs"]] == ["unet.onnx", "quantized_autoencoder.onnx"]
    assert call("check", "unet.onnx", "broken.onnx", "-q").code == 2


def test_build_keeps_what_is_up_to_date(call, project: Path) -> None:
    (project / "trtconv.toml").write_text(CONFIG.split('[[models]]\npath = "quant')[0])
    first = call("build", "-q")
    assert first.code == 0, first.err + first.out
    assert (project / "unet.engine").exists()
    assert (project / "unet.engine.json").exists()
    document = json.loads(call("build", "-q", "--format", "json").out)
    assert document["summary"]["up_to_date"] == 1
    assert "built unet.engine" in call("build", "-q", "--force").out


def test_flags_of_one_model_are_refused(call, project: Path) -> None:
    for command in ("check", "build"):
        for flags in (("--dim", "batch=1"), ("--minShapes", "x:1")):
            ended = call(command, *flags)
            assert ended.code == 2
            assert f"error: {flags[0]} goes with a MODEL" in ended.err
    for flag, *value in (("--round",), ("--compute-capability", "8.9"), ("--no-rewrite",), ("--output", "x.engine")):
        assert f"error: {flag} goes with a MODEL" in call("build", flag, *value).err


def test_what_is_proven_and_what_fails_may_be_said_of_all_models(
    call, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def refuse(requests: Any, *_: Any) -> Any:
        asked.extend(requests)
        return [FailedRun(str(each.model), "rtx", "InputError", "not done", "", 2) for each in requests]

    monkeypatch.setattr(batch, "run_all", refuse)
    for command in ("check", "build"):
        call(command, "-q", "--prove", "required", "--prove-time", "7", "--fail-on", "warning")
        call(command, "-q")
    said = [(each.prove, each.prove_time, each.fail_on) for each in asked]
    assert len(said) == 8
    assert set(said[:2] + said[4:6]) == {("required", 7, Severity.WARNING)}
    assert set(said[2:4] + said[6:]) == {("quick", 60, Severity.ERROR)}


def test_a_named_model_is_taken_as_the_configuration_has_it(call, project: Path) -> None:
    checked = json.loads(call("check", "./unet.onnx", "-q", "--format", "json").out)
    assert (checked["target"], checked["unbounded"]) == (rtx(), [])
    built = json.loads(call("build", "unet.onnx", "-q", "--format", "json").out)
    assert built["plan"]["dims"] == [{"batch": "1:1:1", "height": "64:64:64", "width": "64:64:64"}]
    assert built["engine"]["path"] == "unet.engine"
    ignored = json.loads(call("check", "quantized_autoencoder.onnx", "-q", "--format", "json").out)["ignored"]
    assert [each["reason"] for each in ignored] == ["ten classes"]


def test_the_command_line_has_the_last_word(call, project: Path) -> None:
    sizes = ("--dim", "batch=2", "--dim", "height=128", "--dim", "width=128", "-o", "other.engine")
    built = json.loads(call("build", "unet.onnx", *sizes, "-q", "--format", "json").out)
    assert built["plan"]["dims"] == [{"batch": "2:2:2", "height": "128:128:128", "width": "128:128:128"}]
    assert (built["plan"]["target"], built["engine"]["path"]) == (rtx(), "other.engine")
    assert call("build", "unet.onnx", "--dim", "batch=2", "-q").code == 2


def test_of_several_targets_one_is_picked(call, project: Path) -> None:
    (project / "trtconv.toml").write_text(CONFIG.replace('["rtx"]', '["rtx"]\ncheck-targets = ["tensorrt-8.6"]'))
    both = json.loads(call("check", "unet.onnx", "-q", "--format", "json").out)
    assert [run["target"] for run in both["runs"]] == [rtx(), "tensorrt-8.6"]
    one = json.loads(call("check", "unet.onnx", "--target", "tensorrt-8.6", "-q", "--format", "json").out)
    assert (one["target"], one["unbounded"]) == ("tensorrt-8.6", [])
    built = json.loads(call("build", "-q", "--format", "json").out)
    assert [run["plan"]["target"] for run in built["runs"] if "plan" in run] == [rtx()]
    assert len(built["runs"]) == 2


def test_a_configuration_that_is_named_has_to_list_the_model(call, project: Path) -> None:
    shutil.move(project / "trtconv.toml", project / "other.toml")
    shutil.copy(project / "unet.onnx", project / "copy.onnx")
    assert call("check", "--config", "other.toml", "unet.onnx", "-q").code == 0
    ended = call("build", "--config", "other.toml", "copy.onnx")
    assert ended.code == 2
    assert "error: other.toml does not list copy.onnx" in ended.err


def test_hints_are_kept(call, project: Path) -> None:
    (project / "trtconv.toml").write_text(CONFIG.replace("batch", "bacth"))
    ended = call("check", "-q")
    assert ended.code == 2
    assert "        hint: Did you mean batch? It has: batch (x:0), height (x:2), width (x:3)." in ended.out


def test_lacking_bounds_are_listed_with_the_key_of_the_configuration(call, project: Path) -> None:
    (project / "trtconv.toml").write_text(CONFIG.replace(", height = 64, width = 64", ""))
    ended = call("build", "-q")
    assert ended.code == 2
    assert "height at x:2, width at x:3" in ended.out
    assert 'dims = { "height" = "64:256:512", "width" = "64:256:512" }' in ended.out
    assert "--dim" not in ended.out


def test_no_configuration(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("check")
    assert ended.code == 2
    assert "Missing argument 'MODEL'" in ended.err


def test_worst_exit_code() -> None:
    assert [worst_exit_code(codes) for codes in ([], [0], [0, 1], [1, 4], [4, 2], [2, 3])] == [0, 0, 1, 4, 2, 3]


def test_jobs_are_bounded(tmp_path: Path) -> None:
    assert suitable_jobs([CheckRequest(tmp_path / "m.onnx")] * 3) in (1, 2, 3)
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.truncate(1 << 42)
    if Path("/proc/meminfo").exists():
        assert suitable_jobs([CheckRequest(tmp_path / "huge.onnx")] * 3) == 1


@pytest.mark.parametrize(
    ("target", "installed", "gpu", "jobs"),
    [
        ("tensorrt", False, False, 1),
        ("tensorrt-10", False, False, 1),
        (None, True, True, 1),
        (None, True, False, 3),
        (None, False, True, 3),
        ("rtx", True, True, 3),
    ],
)
def test_builds_that_time_kernels_come_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, installed: bool, gpu: bool, jobs: int
) -> None:
    from trtconv.core.requests.build import BuildRequest
    from trtconv.runtimes import tensorrt

    monkeypatch.setattr(tensorrt, "is_installed", lambda of: installed and of == Target("tensorrt"))
    monkeypatch.setattr(tensorrt, "card", lambda: object() if gpu else None)
    monkeypatch.setattr(batch, "_free_bytes", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    build = BuildRequest(tmp_path / "m.onnx", target=Target.parse(target or "auto"))
    check = CheckRequest(tmp_path / "m.onnx", target=Target("tensorrt"))
    assert suitable_jobs([build] * 3) == jobs
    assert suitable_jobs([check] * 3) == 3
    assert suitable_jobs([check, check, build]) == jobs


def test_crash_of_a_worker_fails_its_model_only(spawn, project: Path) -> None:
    code = """
import os, sys
from trtconv.core.requests.check import CheckRequest
from trtconv.core.target import Target
from trtconv.pipeline import batch
from trtconv.cli import main
class Deadly(CheckRequest):
    def __reduce__(self):
        return os.abort, ()
class Killer(batch.Worker):
    def run(self, request):
        return super().run(Deadly(request.model) if request.model.name == "unet.onnx" else request)
batch.Worker = Killer
sys.exit(main())
"""
    process = spawn(code, "check", "-q", "--jobs", "1", "--format", "json", cwd=project)
    out, err = process.communicate(timeout=120)
    document = json.loads(out)
    assert [run["exit_code"] for run in document["runs"]] == [1, 0], err
    assert "ended the process" in document["runs"][0]["error"]["message"]


def test_a_bug_in_a_worker_is_called_one(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "check", lambda *_: 1 / 0)
    failed = batch.run_request(CheckRequest(project / "unet.onnx"))
    assert isinstance(failed, FailedRun)
    assert (failed.exit_code, failed.kind) == (3, "ZeroDivisionError")
    assert "internal error: ZeroDivisionError" in failed.message
    assert "Traceback" in capsys.readouterr().err


def test_interruption_ends_the_workers(spawn, project: Path) -> None:
    code = """
import os, sys
from trtconv.core.requests.check import CheckRequest
from trtconv.core.target import Target
from trtconv.pipeline import batch
from trtconv.cli import main
class Sleepy(CheckRequest):
    def __reduce__(self):
        return os.system, ("echo $PPID >&2; exec sleep 321",)
class Slow(batch.Worker):
    def run(self, request):
        return super().run(Sleepy(request.model))
batch.Worker = Slow
sys.exit(main())
"""
    process = spawn(code, "check", "-q", "--jobs", "1", cwd=project)
    assert process.stderr is not None
    worker = int(process.stderr.readline())
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
