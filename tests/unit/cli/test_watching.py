"""The parent of a process that works: what it hears from it, what it passes on, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trtconv.core.text import BAR

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are isolated on Linux")
if sys.platform == "linux":
    import fcntl

    from trtconv.cli.process.child import Forked
    from trtconv.cli.process.watching import LOG_LINES, Child, _cause, _Lines, _listen, _signals_passed_on, watch

PATIENT: Any = SimpleNamespace(breach=lambda stage: None)
"""What a process may take that is never too much."""
WAIT = "import time; time.sleep(60)"
TELL = "import os, sys; tell = lambda text: os.write(int(sys.argv[1]), text.encode()); "
Begin = Callable[..., "Child"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts Python code as a process of its own group, whose first argument is the pipe on which it tells."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> Child:
        (status, tell), (output, show) = os.pipe(), os.pipe()
        command = [sys.executable, "-S", "-E", "-c", code, str(tell)]
        processes.append(subprocess.Popen(command, pass_fds=[tell], stderr=show, start_new_session=True))
        os.close(tell)
        os.close(show)
        return Child(Forked(processes[-1].pid, status, output))

    yield start
    for process in processes:
        process.kill()
        process.wait()


def heard(*lines: str) -> Child:
    child = Child(Forked(0, -1, -1))
    for line in lines:
        child.hear(line)
    return child


def test_a_stage_begins_without_a_phase() -> None:
    assert heard().place == "start"
    assert heard('phase "a"').place == "start (a)"
    assert heard('stage "build"', 'phase "tactics"').place == "build (tactics)"
    assert heard('stage "build"', 'phase "tactics"', 'stage "write"').place == "write"


def test_each_kind_of_message_is_kept_as_what_it_is() -> None:
    child = heard('output "/a b"', 'output "c"', 'log "one\\ntwo"', "Fatal Python error: x", "log no JSON")
    assert child.outputs == [Path("/a b"), Path("c")]
    assert list(child.log) == ["one", "two", "Fatal Python error: x", "no JSON"]
    assert (child.answered, child.exit_code) == (False, None)
    child.hear('result ""')
    child.hear('done "3"')
    assert (child.answered, child.exit_code) == (True, 3)


def test_the_end_of_the_log_is_kept() -> None:
    child = heard(*(f"line {number}" for number in range(LOG_LINES + 2)))
    assert (len(child.log), child.log[0], child.log[-1]) == (LOG_LINES, "line 2", f"line {LOG_LINES + 1}")


@pytest.mark.parametrize(
    ("number", "starved", "said"),
    [
        (signal.SIGKILL, True, "the machine ran out of memory (SIGKILL)"),
        (signal.SIGKILL, False, "killed (SIGKILL); by hand, or for want of memory"),
        (signal.SIGSEGV, False, "segmentation fault (SIGSEGV)"),
        # Of the C library's own, without a name.
        (33, False, "signal 33"),
    ],
)
def test_the_cause_names_the_signal(number: int, starved: bool, said: str) -> None:
    assert _cause(number, starved) == said


@pytest.mark.parametrize("echo", [True, False])
def test_lines_are_taken_whole_and_the_last_one_at_the_end(capfd: pytest.CaptureFixture[str], echo: bool) -> None:
    pipe, into = os.pipe()
    taken: list[str] = []
    lines = _Lines(pipe, taken.append, echo=echo)
    for written, known in ((b"a", []), (b"b\n\xffc\n d", ["ab", "\ufffdc"]), (b"e", ["ab", "\ufffdc"])):
        os.write(into, written)
        assert lines.read()
        assert taken == known
    os.close(into)
    assert not lines.read()
    lines.close()
    assert taken == ["ab", "\ufffdc", " de"]
    assert capfd.readouterr().err == (f"{BAR}ab\n{BAR}\ufffdc\n{BAR} de\n" if echo else "")
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(pipe)


def test_what_was_said_last_is_heard_though_others_hold_the_pipe(
    capfd: pytest.CaptureFixture[str], begin: Begin
) -> None:
    waiting = begin(WAIT)
    (status, tell), (output, show) = os.pipe(), os.pipe()
    # More than is read at once.
    fcntl.fcntl(show, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(show, b"x" * 200_000 + b"\nlast words\nwithout an end")
    os.write(tell, b'stage "write"\ndone "3"\n')
    child = Child(Forked(waiting.forked.pid, status, output))
    try:
        assert _listen(child, [], PATIENT) == 0
    finally:
        os.close(tell)
        os.close(show)
    assert (child.exit_code, child.stage) == (3, "write")
    assert list(child.log)[1:] == ["last words", "without an end"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (TELL + "sys.exit(0)", 0),
        (TELL + "sys.exit(7)", 7),
        (TELL + """tell('done "3"\\n'); os._exit(5)""", 3),
        (TELL + """tell('result ""\\n'); os.kill(os.getpid(), 9)""", 1),
        # It closes what it tells by, and goes on.
        (TELL + "os.close(int(sys.argv[1])); os.close(2); import time; time.sleep(0.1); os._exit(4)", 4),
    ],
)
def test_it_ends_as_the_process_does(begin: Begin, code: str, expected: int) -> None:
    child = begin(code)
    assert watch(child.forked, set(), [], {}) == expected


@pytest.mark.parametrize(("number", "end"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)])
def test_a_signal_is_passed_on(begin: Begin, number: int, end: int) -> None:
    child = begin(
        f"import signal; signal.signal({number}, signal.SIG_DFL); " + TELL + "tell('stage \"up\"\\n'); " + WAIT
    )
    with _signals_passed_on(child) as interrupts:
        assert os.read(child.forked.status, 100)
        os.kill(os.getpid(), number)
        _, status = os.waitpid(child.forked.pid, 0)
        assert interrupts == [number]
    assert os.WTERMSIG(status) == end
    # Further ones find nothing left to end.
    assert {signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)} == {signal.SIG_IGN}


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("sigint", [signal.default_int_handler, signal.SIG_IGN])
def test_handlers_are_as_before_where_none_came(answered: bool, sigint: Any) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)
    signal.signal(signal.SIGINT, sigint)
    before = {number: signal.getsignal(number) for number in numbers}
    child = heard(*['result ""'] * answered)
    with _signals_passed_on(child) as interrupts:
        changed = [number for number in numbers if signal.getsignal(number) != before[number]]
        assert changed == [number for number in numbers if number != signal.SIGINT or sigint is not signal.SIG_IGN]
    assert interrupts == []
    after = {number: signal.getsignal(number) for number in numbers}
    if answered:
        # Its result is out.
        before |= {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_IGN}
    assert after == before


@pytest.mark.parametrize("interrupted", [True, False])
def test_what_an_interrupted_process_had_started_ends_with_it(begin: Begin, tmp_path: Path, interrupted: bool) -> None:
    code = (
        "import os, signal, time; started = os.fork(); "
        f"open({str(tmp_path / 'started')!r}, 'w').write(str(started)) if started else time.sleep(60); "
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(5)); "
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]); "
    )
    # Other threads of the one that runs the tests block nothing: it would end by what it does not handle yet.
    handled = (
        "(int(open(f'/proc/{os.getppid()}/status').read().partition('SigCgt:')[2].split()[0], 16)"
        " >> (signal.SIGTERM - 1) & 1)"
    )
    wait = f"[time.sleep(0.01) for _ in iter(lambda: {handled}, 1)]; "
    code += f"{wait}os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)" if interrupted else "os._exit(5)"
    # Until it is decided who handles it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    assert watch(begin(code).forked, mask, [], {}) == 5
    started = Path("/proc", (tmp_path / "started").read_text(), "stat")

    def runs() -> bool:
        return started.exists() and started.read_text().rpartition(")")[2].split()[0] != "Z"

    if interrupted:
        deadline = time.monotonic() + 20
        while runs():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    else:
        assert runs()
        os.kill(int(started.parent.name), signal.SIGKILL)
