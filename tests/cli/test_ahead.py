"""The child that is forked before the arguments are read: what it is given, and what becomes of it otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="nothing is forked ahead"
)

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,8,8] y)
    <float[1,1,2,2] w = {1,2,3,4}> { y = ConvTranspose <strides=[2,2]> (x, w) }"""
TELL = """
import os, sys
from trtconv.cli.process import ahead, child
forked, fork, hand_over = [], child.fork, ahead.hand_over
def told():
    made = fork()
    if made is not None:
        forked.append(made.pid)
        print("forked", made.pid, "click" in sys.modules, file=sys.stderr, flush=True)
    return made
child.fork = told
{more}
from trtconv.cli.process.boundary import run
run()
"""
"""The console entry, telling of each child."""
AT_WORK = """
from trtconv.cli.process import working
begin = working.at_work
def at_work(*args, **options):
    print("at work", os.getpid(), "click" in sys.modules, file=sys.stderr, flush=True)
    return begin(*args, **options)
working.at_work = at_work
"""
GONE = """
def gone(errand):
    os.kill(forked[0], 9)
    os.waitid(os.P_PID, forked[0], os.WEXITED | os.WNOWAIT)
    return hand_over(errand)
ahead.hand_over = gone
"""
WAIT = """
import signal, time
from trtconv.cli.commands import many
def wait(*_):
    print("waits", file=sys.stderr, flush=True)
    time.sleep(60)
many.configured = wait
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(spawn: Any, tmp_path: Path) -> Run:
    """Starts a command on m.onnx, with some code before it."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")

    def begin(*args: str, more: str = "") -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = spawn(TELL.replace("{more}", more), *args, cwd=tmp_path)
        return process

    return begin


def told(err: str, word: str) -> list[list[str]]:
    return [line.removeprefix(word).split() for line in err.splitlines() if line.startswith(word)]


@pytest.mark.parametrize("command", [("build", "m.onnx", "-o", "m.engine"), ("check", "m.onnx")])
def test_a_child_that_knows_no_click_does_the_work(run: Run, command: tuple[str, ...]) -> None:
    process = run(*command, more=AT_WORK)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out
    ((child, loaded),) = told(err, "forked")
    assert loaded == "False"
    assert told(err, "at work") == [[child, "False"]]


@pytest.mark.parametrize(
    "command",
    [
        ("build", "m.onnx", "--help"),
        ("build", "m.onnx", "--partition"),
        ("build", "--on", "tls://farm:1", "m.onnx"),
        ("rewrite", "m.onnx", "-o", "n.onnx"),
        ("check", "m.onnx", "other.onnx"),
        ("check",),
    ],
)
def test_nothing_is_forked_ahead_of_other_calls(run: Run, command: tuple[str, ...]) -> None:
    process = run(*command)
    _, err = process.communicate(timeout=120)
    assert [loaded for _, loaded in told(err, "forked")] in ([], ["True"])


@pytest.mark.parametrize("command", [("build", "m.onnx", "--bogus"), ("check", "m.onnx", "--dim", "n")])
def test_a_child_without_work_ends_with_the_command(run: Run, command: tuple[str, ...]) -> None:
    process = run(*command)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "error: " in err
    for child, _ in told(err, "forked"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(child), 0)


def test_a_child_that_is_gone_is_replaced(run: Run) -> None:
    process = run("build", "m.onnx", "-o", "m.engine", more=GONE + AT_WORK)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "m.engine" in out
    # Whoever works then is watched, too.
    first, second = (number for number, _ in told(err, "forked"))
    assert [worker for worker, _ in told(err, "at work")] == [second] != [first]


def test_work_that_is_not_handed_over_is_done_in_a_child_made_for_that(run: Run) -> None:
    process = run("build", "m.onnx", "--precision", "int8", "--data=nothing")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "nothing" in err
    first, second = told(err, "forked")
    assert (first[1], second[1]) == ("False", "True")
    with pytest.raises(ProcessLookupError):
        os.kill(int(first[0]), 0)


@pytest.mark.parametrize("command", ["build", "check"])
def test_several_targets_are_not_handed_over(run: Run, tmp_path: Path, command: str) -> None:
    text = '[[models]]\npath = "m.onnx"\ntargets = ["rtx", "tensorrt-8.6"]\n'
    (tmp_path / "trtconv.toml").write_text(text, encoding="utf-8")
    process = run(command, "m.onnx", "-q")
    _, err = process.communicate(timeout=120)
    first, second = told(err, "forked")
    assert (first[1], second[1]) == ("False", "True"), err
    with pytest.raises(ProcessLookupError):
        os.kill(int(first[0]), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_before_the_work_ends_both(run: Run, number: int) -> None:
    process = run("build", "m.onnx", more=WAIT)
    assert process.stderr is not None
    lines = []
    while not lines or lines[-1] != "waits\n":
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    process.send_signal(number)
    assert process.wait(timeout=20) == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    ((child, _),) = told("".join(lines), "forked")
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
