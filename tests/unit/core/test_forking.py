"""Forked processes: as ones that were started anew, with what their parent has imported."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from trtconv.core import process
from trtconv.core.forking import Fork, can_fork, die_with
from trtconv.core.process import Lost, Process, Tell, start_early

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone"),
    # Threads of other tests may run yet.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
HERE = Path(__file__).stem
SEEN: list[int] = []
ASKED = ContextVar("ASKED", default="nobody")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has tests fork whatever threads those before them have left."""
    monkeypatch.setattr(process, "can_fork", lambda: True)


@pytest.fixture
def forked() -> Iterator[Callable[[Callable[[], None]], str]]:
    """Runs a function in a forked process; returns what it wrote to stdout, once it has ended with 0."""
    forks: list[Fork] = []

    def run(work: Callable[[], None]) -> str:
        fork = Fork(work, list(sys.path), None)
        forks.append(fork)
        fork.stdin.close()
        said = fork.stdout.read().decode()
        assert fork.wait() == 0
        return said

    yield run
    for fork in forks:
        fork.stdout.close()


def say(*values: object) -> None:
    """Writes values to stdout, unbuffered."""
    os.write(1, (" ".join(map(str, values)) + "\n").encode())


def seen(argument: object, tell: Tell) -> object:
    """Tells of the process that calls it; what it adds to a list stays there."""
    SEEN.append(os.getpid())
    return [list(SEEN), os.getpid(), os.getppid(), os.getsid(0)]


def prepare() -> None:
    SEEN.append(0)


def dying(argument: int, tell: Tell) -> None:
    os.write(2, b"last words\n")
    os.kill(os.getpid(), argument)
    time.sleep(60)


def test_it_has_what_its_parent_has_and_keeps_its_own() -> None:
    SEEN[:] = [1]
    start_early(f"{HERE}:seen", fork=True)
    with Process(f"{HERE}:seen") as runner:
        held, pid, parent, session = runner.call(None, 60)
    assert held == [1, 0, pid], "it has what was there when it was forked"
    assert SEEN == [1]
    assert parent == os.getpid()
    assert session == pid != os.getsid(0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGBUS])
def test_what_ends_it_is_told_and_the_next_call_has_another(number: int) -> None:
    task = f"{HERE}:dying"
    start_early(task, fork=True)
    with Process(task) as runner:
        for _ in range(2):
            with pytest.raises(Lost) as lost:
                runner.call(int(number), 60)
            assert lost.value.signal == number
            assert lost.value.stderr == "last words"


def test_it_ends_where_it_takes_too_long_and_leaves_no_zombie() -> None:
    task = f"{HERE}:dying"
    start_early(task, fork=True)
    pid = process._SPARES[task]._process.pid
    with Process(task) as runner, pytest.raises(Lost) as lost:
        runner.call(0, 1)
    assert lost.value.cause == "time"
    assert not Path(f"/proc/{pid}").exists()


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from trtconv.core.process import Process, _SPARES, start_early
start_early("{HERE}:seen", fork=True)
print(_SPARES["{HERE}:seen"]._process.pid, type(_SPARES["{HERE}:seen"]._process).__name__, flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    pid, kind = done.stdout.split()
    assert kind == "Fork"
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_no_descriptor_of_its_parent_stays_open(forked: Callable[[Callable[[], None]], str]) -> None:
    def show() -> None:
        for each in list(Path("/proc/self/fd").iterdir()):
            if int(each.name) > 2 and each.exists():
                say(each.readlink(), os.get_inheritable(int(each.name)))

    reads, writes = os.pipe()
    with TemporaryFile() as file:
        assert file.fileno() > 2
        assert set(forked(show).splitlines()) == {"/dev/null False"}
    os.close(writes)
    assert os.read(reads, 1) == b"", "nobody else holds the pipe's other end"
    os.close(reads)


def test_a_shared_descriptor_stays_open(tmp_path: Path) -> None:
    with (tmp_path / "shared").open("w") as shared, (tmp_path / "other").open("w") as other:

        def write() -> None:
            os.write(shared.fileno(), b"written")
            os.write(other.fileno(), b"written")

        fork = Fork(write, list(sys.path), None, (shared.fileno(),))
        with fork.stdin, fork.stdout:
            assert fork.wait() == 0
    assert (tmp_path / "shared").read_text() == "written"
    assert not (tmp_path / "other").read_text()


def test_it_dies_with_its_parent(forked: Callable[[Callable[[], None]], str]) -> None:
    def parent() -> None:
        own, reads_of = os.getpid(), os.pipe()
        pid = os.fork()
        if not pid:
            die_with(own, signal.SIGKILL)
            os.write(reads_of[1], b"ready")
            time.sleep(60)
        os.read(reads_of[0], 5)
        say(pid)

    pid = int(forked(parent))
    end = time.monotonic() + 5
    path = Path(f"/proc/{pid}/stat")
    while path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_where_the_parent_is_gone_it_dies_at_once(forked: Callable[[Callable[[], None]], str]) -> None:
    def parent() -> None:
        pid = os.fork()
        if not pid:
            # Nobody's child has that parent.
            die_with(0, signal.SIGTERM)
            os._exit(0)
        say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    assert int(forked(parent)) == -signal.SIGTERM


def test_signals_do_there_what_they_do_in_a_new_process(forked: Callable[[Callable[[], None]], str]) -> None:
    def show() -> None:
        say(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN)
        say(faulthandler.is_enabled())

    before = signal.signal(signal.SIGTERM, lambda *_: None), signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert forked(show).split() == ["True", "True", "False"]
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGUSR1, before[1])


def test_what_its_parent_was_about_is_not_there(forked: Callable[[Callable[[], None]], str]) -> None:
    token = ASKED.set("somebody")
    try:
        assert forked(lambda: say(ASKED.get(), threading.active_count())).split() == ["nobody", "1"]
    finally:
        ASKED.reset(token)


def test_an_exception_ends_it_and_never_returns() -> None:
    with TemporaryFile() as said:
        fork = Fork(lambda: sys.exit(0), list(sys.path), said)
        assert fork.wait() == 1
        said.seek(0)
        assert b"SystemExit" in said.read()
    fork.kill()
    fork.stdin.close()
    fork.stdout.close()


def test_a_process_with_threads_is_not_forked() -> None:
    code = """
import threading
from trtconv.core.forking import can_fork
print(can_fork())
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(can_fork())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
    assert can_fork() is (len(list(Path("/proc/self/task").iterdir())) == 1)


def test_threads_that_allow_it_do_not_hinder_a_fork() -> None:
    code = """
import threading
from trtconv.core.forking import allow_forks, can_fork
steps = [threading.Event() for _ in range(4)]

def tick():
    with allow_forks():
        steps[0].set()
        steps[1].wait()
    steps[2].set()
    steps[3].wait()

thread = threading.Thread(target=tick, daemon=True)
thread.start()
steps[0].wait()
print(can_fork())
steps[1].set()
steps[2].wait()
print(can_fork())
# Of whoever forks that says nothing.
with allow_forks():
    print(can_fork())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_a_fork_may_end_unheard() -> None:
    code = """
import os, signal, sys
from trtconv.core.background import Apart
from trtconv.core.forking import UNHEARD, Fork
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
fork = Fork(lambda: None, sys.path, None)
print(fork.wait() == fork.wait() == UNHEARD)
# Whether all of it came nobody knows.
print(Apart(lambda: 5).result())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "None"]


def test_nothing_is_left_open_where_there_is_no_process_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise BlockingIOError("no process more")

    monkeypatch.setattr(os, "fork", none)
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(BlockingIOError):
        Fork(lambda: None, list(sys.path), None)
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
