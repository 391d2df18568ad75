"""Functions called in a process of their own: what they return, tell and raise, and how they end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trtconv.core import process as processes
from trtconv.core.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.core.process import Lost, Process, Tell, WorkerBug, call, start_early

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


def full(argument: Any, tell: Tell) -> Any:
    raise OSError(argument, os.strerror(argument))


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


def greedy(argument: Any, tell: Tell) -> Any:
    return len(bytearray(argument))


def native_greedy(argument: Any, tell: Tell) -> Any:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def threads(argument: Any, tell: Tell) -> Any:
    import numpy as np

    assert float((np.ones((300, 300)) @ np.ones((300, 300))).sum()) == 300.0**3
    return len(list(Path("/proc/self/task").iterdir()))


PREPARED: list[int] = []


def prepare() -> None:
    PREPARED.append(os.getpid())


def prepared(argument: Any, tell: Tell) -> Any:
    return [list(PREPARED), os.getpid()]


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, argument: Any, tell: Tell) -> Any:
        self.calls += 1
        if argument == "die":
            os.abort()
        if argument == "refuse":
            raise BuildFailed("no")
        return [self.calls, os.getpid()]


def starting(argument: Any, tell: Tell) -> Any:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    tell({"event": "pid", "pid": child.pid})
    time.sleep(argument)


def test_it_returns_and_tells() -> None:
    heard: list[dict[str, Any]] = []
    assert call(f"{HERE}:doubled", [1, "a"], 30, heard.append) == [1, "a", 1, "a"]
    assert [each["event"] for each in heard] == ["half"]
    assert heard[0]["pid"] != os.getpid()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not list threads")
def test_numpy_starts_no_thread_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert call(f"{HERE}:threads", None, 30) == 2, "the one that works, and the one that hears the caller"


def test_it_raises_what_the_function_raises() -> None:
    with pytest.raises(BuildFailed, match="no") as caught:
        call(f"{HERE}:refusing", None, 30, print)
    assert caught.value.hint == "do otherwise"
    with pytest.raises(InputError, match="special"):
        call(f"{HERE}:specially", None, 30, print)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_is_a_fault_of_the_machine(number: int) -> None:
    with pytest.raises(EnvironmentMissing) as error:
        call(f"{HERE}:full", number, 60)
    assert error.value.exit_code == 4


def test_a_bug_comes_with_its_traceback() -> None:
    with pytest.raises(WorkerBug, match=r"in buggy(.|\n)*KeyError: 'missing'"):
        call(f"{HERE}:buggy", None, 30, print)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_is_told_with_what_was_said(number: int) -> None:
    heard: list[dict[str, Any]] = []
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:dying", int(number), 30, heard.append)
    assert caught.value.why == f"signal {int(number)}"
    assert "native code says goodbye" in caught.value.stderr
    assert caught.value.cause == "crash"
    assert heard == [{"event": "last words"}]


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="the system has no such signal")
def test_a_file_that_was_cut_short_is_no_crash() -> None:
    with pytest.raises(Lost, match="cut short") as caught:
        call(f"{HERE}:dying", int(signal.SIGBUS), 30)
    assert (caught.value.cause, caught.value.signal) == ("file", int(signal.SIGBUS))


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
        call(f"{HERE}:sleeping", 600, 3.0, heard.append)
    assert caught.value.cause == "time"
    assert caught.value.why == "it took longer than 3 s"
    assert not alive(heard[0]["pid"])


def test_it_ends_when_its_time_is_up_whatever_it_tells() -> None:
    started = time.monotonic()
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:talking", 30, 1.0, lambda event: None)
    assert caught.value.cause == "time"
    assert time.monotonic() - started < 15


def test_what_it_started_ends_with_it() -> None:
    heard: list[dict[str, Any]] = []
    with pytest.raises(Lost):
        call(f"{HERE}:starting", 600, 4.0, heard.append)
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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to the limit")
def test_too_much_memory_is_told_apart() -> None:
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:greedy", 1 << 32, 60, megabytes=1024)
    assert (caught.value.cause, caught.value.why) == ("memory", "it ran out of memory")
    assert call(f"{HERE}:greedy", 1 << 20, 60, megabytes=1024) == 1 << 20


def test_native_code_that_gets_no_memory_is_told_apart() -> None:
    with pytest.raises(Lost) as caught:
        call(f"{HERE}:native_greedy", None, 60)
    assert caught.value.cause == "memory"
    assert "bad_alloc" in caught.value.stderr


def test_one_process_answers_many_calls_and_keeps_what_it_has() -> None:
    with Process(f"{HERE}:Counter") as process:
        first, pid = process.call(None, 30)
        with pytest.raises(BuildFailed):
            process.call("refuse")
        assert (first, process.call(None)) == (1, [3, pid])


def test_after_a_crash_another_process_answers() -> None:
    with Process(f"{HERE}:Counter") as process:
        _, pid = process.call(None, 30)
        with pytest.raises(Lost) as caught:
            process.call("die", 30)
        assert caught.value.why == f"signal {int(signal.SIGABRT)}"
        count, another = process.call(None, 30)
    assert (count, another != pid) == (1, True)
    assert not alive(another)


def test_closing_ends_a_call_in_its_middle_and_lets_none_begin() -> None:
    process = Process(f"{HERE}:sleeping")
    heard: list[dict[str, Any]] = []

    def close(event: dict[str, Any]) -> None:
        heard.append(event)
        threading.Timer(0.2, process.close).start()

    with pytest.raises(Lost):
        process.call(600, 60, close)
    with pytest.raises(Lost, match="it was ended"):
        process.call(0)
    assert not alive(heard[0]["pid"])


def test_a_process_that_is_started_early_is_ready_for_the_first_that_asks() -> None:
    task = f"{HERE}:prepared"
    start_early(task)
    start_early(task)
    with Process(task) as first, Process(task) as second:
        ready, pid = first.call(None, 60)
        assert ready == [pid]
        assert second.call(None, 60)[0] == []
        assert first.call(None, 60) == [ready, pid]


def test_two_threads_that_start_a_process_early_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task = f"{HERE}:prepared"
    ended: list[object] = []

    class Running:
        def __init__(self, quiet: bool, fork: bool) -> None:
            # As if another thread had been faster.
            processes._SPARES[task] = first

        def send(self, data: bytes) -> None:
            assert processes._SPARES[task] is not self

        def end(self) -> None:
            ended.append(self)

    first: Any = object()
    monkeypatch.setattr(processes, "_SPARES", {})
    monkeypatch.setattr(processes, "_Running", Running)
    start_early(task)
    assert processes._SPARES.pop(task) is first and len(ended) == 1


@pytest.mark.parametrize("fork", [False, True])
def test_limits_hold_in_a_process_that_is_started_early(fork: bool) -> None:
    task = f"{HERE}:greedy"
    start_early(task, fork=fork)
    with Process(task, megabytes=100) as process:
        assert process.call(1 << 20, 60) == 1 << 20
        with pytest.raises(Lost) as raised:
            process.call(1 << 28, 60)
    assert raised.value.cause == "memory"


def test_what_a_process_that_is_started_early_cannot_import_is_told_when_it_is_called() -> None:
    start_early("trtconv.core.nothing:serve")
    with Process("trtconv.core.nothing:serve") as process, pytest.raises(WorkerBug, match="nothing"):
        process.call(None, 60)
