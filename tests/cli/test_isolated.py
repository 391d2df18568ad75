"""The process that works may die: what is then said, kept, removed and left alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from support.paths import ROOT, TESTS
from trtconv.cli.process import reproduction
from trtconv.core.files import remove_parts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are isolated on Linux")

# A pipeline that dies as it is told, behind the console entry.
FAKE = """
import contextlib, ctypes, os, signal, sys, threading, time, types
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background shell starts us with SIGINT ignored.
if "UNHEARD" in os.environ:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
fake = types.ModuleType("trtconv.pipeline")
import trtconv
fake.__path__ = [os.path.join(trtconv.__path__[0], "pipeline")]
sys.modules.update(dict.fromkeys(("trtconv.pipeline", "trtconv.pipeline.building", "trtconv.pipeline.checking"), fake))

def build(request, progress):
    from trtconv.core.files import atomic_stream
    with contextlib.ExitStack() as stack:
        stack.enter_context(progress.stage("build"))
        if hasattr(request, "engine_path"):
            file = stack.enter_context(atomic_stream(request.engine_path))
            file.write(b"half of an engine")
            file.flush()
        progress.phase("Choosing tactics", 1, 3)
        os.write(2, b"native last words\\n")
        os.write(1, b"native noise\\n")
        print(os.getpid(), file=sys.stderr, flush=True)
        exec(os.environ["DEATH"], globals())
    from support.cli import build_report
    return build_report() if hasattr(request, "engine_path") else None

fake.build = fake.check = build
from trtconv.cli import run
run()
"""
OLD = b"ftrt" + bytes(8)
"""An engine, by its first bytes."""
WAIT = "time.sleep(60)"
STUCK = "ctypes.PyDLL(None).sleep(60)"  # Native code that keeps Python from running at all.
MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,8,8] y)
    <float[1,1,2,2] w = {1,2,3,4}> { y = ConvTranspose <strides=[2,2]> (x, w) }"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(spawn: Any, tmp_path: Path) -> Start:
    """Starts a command whose child dies in this way; what it leaves goes into tmp_path/tmp."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    (tmp_path / "tmp").mkdir()

    def begin(death: str, *args: str, command: str = "build", **more: str) -> subprocess.Popen[str]:
        env = {**more, "DEATH": death, "TMPDIR": str(tmp_path / "tmp"), "PYTHONFAULTHANDLER": ""}
        env["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(TESTS)))
        process: subprocess.Popen[str] = spawn(FAKE, command, str(tmp_path / "m.onnx"), *args, env=env)
        return process

    return begin


def child_of(process: subprocess.Popen[str]) -> int:
    """Waits until the child works; returns its number."""
    assert process.stderr is not None
    while not (line := process.stderr.readline()).strip().isdigit():
        assert line, "it ended before it worked"
    return int(line)


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def reproduction_in(folder: Path) -> Path:
    (found,) = (folder / "tmp").iterdir()
    return found


@pytest.mark.parametrize(
    ("death", "name"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("os.abort()", "SIGABRT"),
        ("ctypes.string_at(0)", "SIGSEGV"),
    ],
)
@pytest.mark.parametrize("command", ["build", "check"])
def test_a_death_is_told_and_leaves_a_reproduction(
    start: Start, tmp_path: Path, death: str, name: str, command: str
) -> None:
    process = start(death, "--format", "json", command=command)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    document = json.loads(out)
    assert (document["exit_code"], document["error"]["type"]) == (1, "ProcessEnded")
    assert "build (Choosing tactics)" in document["error"]["message"]
    assert name in document["error"]["message"]
    assert "native last words" in err
    assert name in err
    folder = reproduction_in(tmp_path)
    assert str(folder) in document["error"]["hint"]
    assert left(tmp_path) - {f"tmp/{folder.name}/{kept}" for kept in left(folder)} == {"m.onnx"}
    assert {"log.txt", "command.txt", "versions.json", "rerun.sh", "model.onnx", "rewritten.onnx"} <= left(folder)
    log = (folder / "log.txt").read_text()
    assert all(said in log.splitlines() for said in ("native last words", "native noise"))
    assert ("Fatal Python error" in log) == (name != "SIGKILL")
    assert (folder / "model.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    assert json.loads((folder / "passes.json").read_text())["edits"] == []
    assert "onnx" in json.loads((folder / "versions.json").read_text())["packages"]
    assert f"{command} {tmp_path}/m.onnx --format json" in (folder / "command.txt").read_text()


def test_a_death_is_heard_where_whoever_started_it_ignores_those_of_children(start: Start, tmp_path: Path) -> None:
    process = start("os.kill(os.getpid(), signal.SIGKILL)", UNHEARD="1")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "SIGKILL" in err and "internal error" not in err
    assert (reproduction_in(tmp_path) / "log.txt").is_file()


def test_data_that_is_cut_short_is_told_as_that(start: Start, tmp_path: Path) -> None:
    cut = (
        f"os.write(at := os.open('{tmp_path}/w.bin', os.O_RDWR | os.O_CREAT), bytes(8192)), "
        "(held := __import__('mmap').mmap(at, 8192)), os.ftruncate(at, 0), held[5000]"
    )
    process = start(cut, "--format", "json")
    out, _ = process.communicate(timeout=120)
    document = json.loads(out)
    assert (process.returncode, document["exit_code"], document["error"]["type"]) == (2, 2, "InputError")
    assert "build (Choosing tactics): a file was cut short" in document["error"]["message"]
    assert left(tmp_path) == {"m.onnx", "w.bin"}


def test_killed_from_outside_leaves_the_old_engine(start: Start, tmp_path: Path) -> None:
    (tmp_path / "m.engine").write_bytes(OLD)
    process = start(WAIT)
    os.kill(child_of(process), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "by hand, or for want of memory" in err
    assert (tmp_path / "m.engine").read_bytes() == OLD
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("death", [WAIT, STUCK])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_signal_ends_the_child_too(
    start: Start, tmp_path: Path, number: signal.Signals, death: str, output_format: str
) -> None:
    process = start(death, "--format", output_format)
    child = child_of(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err.count("interrupted" if number == signal.SIGINT else "terminated") == 1
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert left(tmp_path) == {"m.onnx"}
    if output_format == "json":
        assert json.loads(out)["exit_code"] == 128 + number
    else:
        assert out == ""


def test_a_parent_that_is_killed_takes_its_child_along(start: Start, tmp_path: Path) -> None:
    process = start(WAIT)
    child = child_of(process)
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 20
    while left(tmp_path) != {"m.onnx"} and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left(tmp_path) == {"m.onnx"}
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(child, 0)
            time.sleep(0.05)


def test_out_of_memory_in_python_is_no_crash(start: Start, tmp_path: Path) -> None:
    process = start("raise MemoryError")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "out of memory" in err
    assert left(tmp_path) == {"m.onnx"}


def test_a_death_after_the_result_adds_no_second_document(start: Start, tmp_path: Path) -> None:
    death = (
        "import trtconv.cli.process.outcome as o; write = o.write_result;"
        "o.write_result = lambda *args: (write(*args), os.kill(os.getpid(), 9))"
    )
    process = start(death, "--format", "json")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["exit_code"] == 0
    assert not list((tmp_path / "tmp").iterdir())


def test_a_stopped_job_stops_its_child(start: Start) -> None:
    process = start(WAIT)
    child = child_of(process)

    def state() -> str:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]

    def becomes(wanted: str) -> bool:
        deadline = time.monotonic() + 20
        while state() != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        return state() == wanted

    process.send_signal(signal.SIGTSTP)
    assert becomes("T")
    process.send_signal(signal.SIGCONT)
    assert becomes("S")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143


def test_a_crash_leaves_a_command_that_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), model)
    arguments = ["build", str(model), "-o", "e.engine", "--report=r.json", "--target", "rtx", "--dim", "a b=1"]
    hint = reproduction.save("dead", ["line"], arguments, {"model": str(model), "target": "rtx"})
    (folder,) = tmp_path.glob("trtconv-crash-*")
    assert str(folder) in hint
    rerun = (folder / "rerun.sh").read_text()
    assert "trtconv build model.onnx --target rtx --dim 'a b=1' --force -o again.engine" in rerun


def test_what_a_configuration_says_of_the_model_is_repeated_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    (tmp_path / "trtconv.toml").write_text(
        '[[models]]\npath = "m.onnx"\ntargets = ["rtx"]\ndims = { "a b" = "1:2:3" }\n'
    )
    monkeypatch.chdir(tmp_path)
    for arguments, added in (
        (["build", "m.onnx"], "--force -o again.engine --dim 'a b=1:2:3' --target rtx"),
        (["build", "m.onnx", "--dim=a b=1"], "'--dim=a b=1' --force -o again.engine --target rtx"),
        (["check", "m.onnx", "--target", "rtx", "--config", "trtconv.toml"], "--target rtx --dim 'a b=1:2:3'"),
    ):
        config = "trtconv.toml" if "--config" in arguments else None
        reproduction.save("dead", [], arguments, {"model": "m.onnx", "target": "rtx", "config": config})
        (folder,) = tmp_path.glob("trtconv-crash-*")
        assert (folder / "rerun.sh").read_text().strip().endswith(f"trtconv {arguments[0]} model.onnx {added}")
        shutil.rmtree(folder)


def test_a_large_model_is_written_down_and_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(reproduction, "COPIED_BYTES", 10)
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), model)
    reproduction.save("dead", [], ["check", str(model)], {"models": (str(model),), "target": "auto"})
    (folder,) = tmp_path.glob("trtconv-crash-*")
    assert not (folder / "model.onnx").exists()
    (known,) = json.loads((folder / "model.json").read_text())
    assert known["path"] == str(model)
    assert re.fullmatch(r"[0-9a-f]{64}", known["sha256"])
    assert f"trtconv check {model}" in (folder / "rerun.sh").read_text()


def test_where_nothing_can_be_written_the_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert "last words" in reproduction.save("dead", ["last words"], ["build", "m"], {"model": "m"})


def test_only_the_dead_process_temporaries_are_removed(tmp_path: Path) -> None:
    ours, other = tmp_path / ".m.engine.7.abc.part", tmp_path / ".m.engine.77.abc.part"
    for path in (ours, other):
        path.write_bytes(b"half")
    remove_parts(7, [tmp_path / "m.engine"])
    assert left(tmp_path) == {other.name}
