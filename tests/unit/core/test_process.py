"""Functions called in a process of their own: what they return, tell and raise, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trtconv.core.errors import BuildFailed, InputError
from trtconv.core.process import Lost, Tell, WorkerBug, call

HERE = Path(__file__).stem


def doubled(argument: Any, tell: Tell) -> Any:
    sys.stdout.write("this goes to nobody\n")
    os.write(1, b"nor does this\n")
    tell({"event": "half", "pid": os.getpid()})
    return argument * 2


def refusing(argument: Any, tell: Tell) -> Any:
    raise BuildFailed("no", "do otherwise")


class Special(InputError):
    pass


def specially(argument: Any, tell: Tell) -> Any:
    raise Special("special")


def buggy(argument: Any, tell: Tell) -> Any:
    return {}["missing"]


def dying(argument: Any, tell: Tell) -> Any:
    tell({"event": "last words"})
    os.write(2, b"native code says goodbye\n")
    os.kill(os.getpid(), argument)
    time.sleep(60)


def sleeping(argument: Any, tell: Tell) -> Any:
    tell({"event": "pid", "pid": os.getpid()})
    time.sleep(argument)


def talking(argument: Any, tell: Tell) -> Any:
    until = time.monotonic() + argument
    while time.monotonic() < until:
        tell({"event": "word"})
        time.sleep(0.01)


def starting(argument: Any, tell: Tell) -> Any:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    tell({"event": "pid", "pid": child.pid})
    time.sleep(argument)


def test_it_returns_and_tells() -> None:
    heard: list[dict[str, Any]] = []
    assert call(f"{HERE}:doubled", [1, "a"], 30, heard.append) == [1, "a", 1, "a"]
    assert [each["event"] for each in heard] == ["half"]
    assert heard[0]["pid"] != os.getpid()


def test_it_raises_what_the_function_raises() -> None:
    with pytest.raises(BuildFailed, match="no") as caught:
        call(f"{HERE}:refusing", None, 30, print)
    assert caught.value.hint == "do otherwise"
    with pytest.raises(InputError, match="special"):
        call(f"{HERE}:specially", None, 30, print)


def test_a_bug_comes_with_its_traceback() -> None:
    with pytest.raises(WorkerBug, match=r"in buggy(.|\n)*KeyError: 'missing'"):
        call(f"{HERE}:buggy", None, 30, print)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_is_told_with_what_was_said(number: int) -> None:
    heard: list[dict[str, Any]] = []
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:dying", int(number), 30, heard.append)
    assert caught.value.why == f"signal {int(number)}"
    assert "native code says goodbye" in caught.value.said
    assert not caught.value.late
    assert heard == [{"event": "last words"}]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody has waited for is gone too.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_it_ends_when_its_time_is_up() -> None:
    heard: list[dict[str, Any]] = []
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:sleeping", 600, 1.0, heard.append)
    assert caught.value.late
    assert caught.value.why == "it took longer than 1 s"
    assert not alive(heard[0]["pid"])


def test_it_ends_when_its_time_is_up_whatever_it_tells() -> None:
    started = time.monotonic()
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:talking", 30, 1.0, lambda event: None)
    assert caught.value.late
    assert time.monotonic() - started < 15


def test_what_it_started_ends_with_it() -> None:
    heard: list[dict[str, Any]] = []
    with pytest.raises(Lost):
        call(f"{HERE}:starting", 600, 1.5, heard.append)
    until = time.monotonic() + 20
    while alive(heard[0]["pid"]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(heard[0]["pid"])


def test_it_ends_when_the_caller_is_interrupted() -> None:
    heard: list[dict[str, Any]] = []

    def interrupt(event: dict[str, Any]) -> None:
        heard.append(event)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        call(f"{HERE}:sleeping", 600, 60, interrupt)
    assert not alive(heard[0]["pid"])


def test_it_ends_when_the_caller_is_killed() -> None:
    tell = "lambda e: print(e['pid'], flush=True)"
    code = f"from trtconv.core.process import call; call('{HERE}:sleeping', 600, 60, {tell})"
    caller = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert caller.stdout is not None
    pid = int(caller.stdout.readline())
    assert alive(pid)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    until = time.monotonic() + 20
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)
