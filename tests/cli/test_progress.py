"""Progress on stderr."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from trtconv.cli import progress as cli_progress
from trtconv.cli.progress import show_progress
from trtconv.core import forking
from trtconv.core.progress import NullProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def _work(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, pause: float = 0.1, **env: str) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(cli_progress, "LINE_SECONDS", 0.02)
    monkeypatch.setattr(cli_progress, "TERMINAL_SECONDS", 0.02)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with show_progress(quiet=False) as progress:
        with progress.stage("load"):
            pass
        with progress.stage("build"):
            progress.phase("tactics\x1b[2J", 2, 10)
            time.sleep(pause)
            progress.phase("serialize", 0, 0)
    return stream.getvalue()


def test_lines(monkeypatch) -> None:
    lines = _work(io.StringIO(), monkeypatch).splitlines()
    assert lines[0].endswith(" s] load")
    # On a busy machine a stage is long enough to be told twice.
    begin = next(number for number, line in enumerate(lines) if line.endswith(" s] build"))
    assert all(line.endswith(" s] load") for line in lines[:begin])
    assert any(line.endswith(" s] build: tactics\\x1b[2J (2/10)") for line in lines[begin + 1 :])
    assert "\x1b" not in "".join(lines)


def test_terminal_updates_one_line(monkeypatch) -> None:
    text = _work(Terminal(), monkeypatch, TERM="xterm")
    assert "\n" not in text
    assert "\r\x1b[K" in text
    assert "tactics\\x1b[2J (2/10)" in text
    assert text.endswith("\r\x1b[K")


def test_dumb_terminal_gets_lines(monkeypatch) -> None:
    assert "\x1b" not in _work(Terminal(), monkeypatch, TERM="dumb")


def test_closed_stderr_does_not_stop_the_work(monkeypatch) -> None:
    assert _work(Closed(), monkeypatch) == ""


def test_quiet_and_absent_stderr(monkeypatch) -> None:
    with show_progress(quiet=True) as progress:
        assert isinstance(progress, NullProgress)
    monkeypatch.setattr(sys, "stderr", None)
    with show_progress(quiet=False) as progress:
        assert isinstance(progress, NullProgress)


def test_no_thread_is_left(monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(ZeroDivisionError), show_progress(quiet=False) as progress, progress.stage("load"):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "trtconv-progress"]


def test_null_progress() -> None:
    progress = NullProgress()
    with progress.stage("load"):
        progress.phase("anything", 1, 2)


def test_time_left_is_what_the_stages_took_before(monkeypatch) -> None:
    monkeypatch.setattr(cli_progress.time, "monotonic", lambda: now[0])
    now = [0.0]
    forecast = cli_progress._Forecast({"load": 2.0, "build": 30.0, "prove": 8.0})
    forecast.enter("load")
    assert str(forecast) == ", about 40 s left"
    now[0] = 10.0
    assert str(forecast) == ", about 38 s left", "a stage that takes longer than before takes nothing off the others"
    forecast.enter("build")
    now[0] = 20.0
    assert str(forecast) == ", about 28 s left"
    forecast.enter("prove")
    now[0] = 40.0
    assert str(forecast) == ""


def test_nothing_is_said_of_time_that_is_not_known() -> None:
    forecast = cli_progress._Forecast({})
    forecast.enter("build")
    assert str(forecast) == ""


def test_rows_stay_above_the_line_that_is_updated(monkeypatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(quiet=False) as progress:
        progress.row("[1/2] ok a.onnx\x1b[2J")
    assert stream.getvalue().startswith("\r\x1b[K[1/2] ok a.onnx\\x1b[2J\n")


def test_the_ticking_does_not_hinder_forks(monkeypatch) -> None:
    ticks = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if threading.current_thread().name == "trtconv-progress":
                ticks.set()
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    monkeypatch.setattr(cli_progress, "LINE_SECONDS", 0.02)
    before = set(forking._allowing)
    with show_progress(quiet=False) as progress, progress.stage("load"):
        assert ticks.wait(10)
        (ticking,) = (thread for thread in threading.enumerate() if thread.name == "trtconv-progress")
        assert forking._allowing == before | {ticking.native_id}
    ticking.join()
    assert forking._allowing == before
