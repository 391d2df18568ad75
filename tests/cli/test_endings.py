"""What only a real process shows: signals, closed streams, encodings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from support.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and streams")

# A pipeline as the real one: the native build runs in a thread that cannot be stopped, the main thread waits.
FAKE = """
import signal, sys, threading, time, types
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background shell starts us with SIGINT ignored.
from trtconv.core.findings import Finding, Severity
from trtconv.core.documents.check import CheckReport, ParserVerdict
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.target import Target
fake = types.ModuleType("trtconv.pipeline")
sys.modules.update(dict.fromkeys(("trtconv.pipeline", "trtconv.pipeline.building", "trtconv.pipeline.checking"), fake))

def build(request, progress):
    with progress.stage("build"):
        thread = threading.Thread(target=time.sleep, args=(600,))
        thread.start()
        while thread.is_alive():
            thread.join(0.1)

def check(request, progress):
    message = "caf\\u00e9 \\u4e2d " + "x" * 100
    findings = [Finding("TC101", "n", message, Severity.WARNING) for _ in range(int(str(request.model)))]
    return CheckReport(FileIdentity("m\\udcff.onnx"), Target("rtx"), tuple(findings), ParserVerdict(accepted=True), 0)

fake.build, fake.check = build, check
from trtconv.cli import main
sys.exit(main())
"""


def _started(process: subprocess.Popen[str]) -> None:
    """Waits until the build runs: its first line of progress has come."""
    assert process.stderr is not None
    assert "build" in process.stderr.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_signal_ends_at_once(spawn, number: signal.Signals, output_format: str) -> None:
    process = spawn(FAKE, "build", "m.onnx", "--format", output_format)
    _started(process)
    begin = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    code = 128 + number
    assert process.returncode == code
    assert time.monotonic() - begin < 10
    assert "Traceback" not in err
    assert ("interrupted" if number == signal.SIGINT else "terminated") in err
    if output_format == "json":
        assert json.loads(out)["exit_code"] == code
    else:
        assert out == ""


def test_signal_during_an_import_waits_for_its_end(spawn, tmp_path) -> None:
    (tmp_path / "slow_import.py").write_text(
        "import sys, time\nprint('importing', file=sys.stderr, flush=True)\n"
        "try:\n    time.sleep(1)\nexcept BaseException:\n    print('TORN', file=sys.stderr)\n"
    )
    code = FAKE.replace("def build(request, progress):", "def build(request, progress):\n    import slow_import")
    path = os.pathsep.join(map(str, (ROOT, tmp_path)))
    process = spawn(code, "build", "m.onnx", env={"PYTHONPATH": path})
    assert "importing" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "TORN" not in err


def test_insisting_ends_an_import_too(spawn, tmp_path) -> None:
    (tmp_path / "slow_import.py").write_text(
        "import sys, time\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    )
    code = FAKE.replace("def build(request, progress):", "def build(request, progress):\n    import slow_import")
    path = os.pathsep.join(map(str, (ROOT, tmp_path)))
    process = spawn(code, "build", "m.onnx", env={"PYTHONPATH": path})
    assert "importing" in process.stderr.readline()
    end = time.monotonic() + 30  # The import takes a minute. More than three: on a busy machine two can arrive as one.
    while process.poll() is None and time.monotonic() < end:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert process.poll() == 130


CONSOLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background shell starts us with SIGINT ignored.
if "early" in sys.argv:
    class Interrupting:
        def find_spec(name, *others):
            if name == "click":
                os.kill(os.getpid(), signal.SIGINT)
    sys.meta_path.insert(0, Interrupting)
    sys.argv.remove("early")
from trtconv.cli import run
run()
"""
NO_FILE = ("check", "no.onnx", "-q", "--format", "json")


def test_an_early_interruption_waits_for_who_reports_it(spawn) -> None:
    out, err = spawn(CONSOLE, *NO_FILE, "early").communicate(timeout=60)
    assert json.loads(out)["exit_code"] == 130
    assert err == "interrupted\n"


def test_a_doubled_interruption_is_one(spawn) -> None:
    process = spawn(FAKE, "build", "m.onnx", "--format", "json")
    _started(process)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["exit_code"] == 130
    assert err.count("interrupted") == 1


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "02", "12", "012"])
def test_closed_descriptors_are_nobody_elses(spawn, closed: str) -> None:
    def close() -> None:
        for number in closed:
            os.close(int(number))

    process = spawn(CONSOLE, *NO_FILE, preexec_fn=close)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == "" if "1" in closed else json.loads(out)["exit_code"] == 2
    said = ["error", "hint"] * (2 if "1" in closed else 1)
    assert [line.partition(":")[0] for line in err.splitlines()] == ([] if "2" in closed else said)


def test_interruption_that_native_code_made_another_exception_of(spawn) -> None:
    code = FAKE.replace(
        "            thread.join(0.1)",
        "            try:\n                thread.join(0.1)\n"
        "            except KeyboardInterrupt:\n                raise RuntimeError('initialization failed')",
    )
    process = spawn(code, "build", "m.onnx")
    _started(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "initialization failed" not in err


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_reader_that_goes_away(spawn, output_format: str) -> None:
    process = spawn(FAKE, "check", "20000", "--format", output_format)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.parametrize("args", [("--help",), ("build", "--help"), ("--version",)])
def test_help_without_a_reader(spawn, args: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = spawn(FAKE, *args, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_closed_streams(spawn) -> None:
    process = spawn(FAKE, "check", "3", stdout=None, preexec_fn=lambda: os.close(1))
    _, err = process.communicate(timeout=60)
    # The verdict is lost, as on a full disk.
    assert process.returncode == 2
    assert "Traceback" not in err
    process = spawn(FAKE, "check", "3", stderr=None, preexec_fn=lambda: os.close(2))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "3 warnings" in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("args", [("check", "3"), ("check", "3", "--format", "json"), ("--help",)])
def test_full_disk_is_an_error(spawn, args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = spawn(FAKE, *args, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "stdout" in err
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_plain_ascii_locale(spawn, output_format: str) -> None:
    env = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    process = spawn(FAKE, "check", "1", "--format", output_format, env=env)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.isascii()
    if output_format == "json":
        assert json.loads(out)["findings"][0]["message"].startswith("caf\u00e9 \u4e2d")


def test_module_runs(spawn) -> None:
    command = [sys.executable, "-m", "trtconv", "--version"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    assert ended.stdout.startswith("trtconv ")
