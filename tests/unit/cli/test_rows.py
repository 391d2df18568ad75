"""The rows of a farm: what failed, what is at work, how much is left; drawn over those before."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from support.cli import build_report
from trtconv.cli import rows
from trtconv.cli.rows import Rows
from trtconv.core.documents.check import FailedRun
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target

REQUESTS = [BuildRequest(Path("models", f"m{index}.onnx"), target=Target("rtx")) for index in range(20)]


def failed(index: int, code: int = 1, message: str = "no such node") -> FailedRun:
    return FailedRun(str(REQUESTS[index].model), "rtx", "BuildFailed", message, "", code)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(rows.time, "monotonic", lambda: now[0])
    return now


def test_failures_come_first_then_what_runs_longest_then_the_counts(clock: list[float]) -> None:
    shown = Rows(REQUESTS, io.StringIO(), terminal=True)
    for index in range(12):
        clock[0] += 1
        shown.begun(index, f"w{index}")
    # It tells nothing about how long the others take.
    shown.ended(19, failed(19))
    clock[0] += 8
    shown.ended(0, failed(0))
    shown.ended(1, failed(1, 4, "nobody has it\nand more"))
    lines = shown.lines()
    assert lines[0] == "FAILED  m19.onnx for rtx: no such node"
    assert lines[1:3] == [
        "FAILED  m0.onnx for rtx on w0: no such node",
        "cannot  m1.onnx for rtx on w1: nobody has it and more",
    ]
    assert [line.split()[2] for line in lines[3:-1]] == [f"m{index}.onnx" for index in range(2, 12)]
    assert lines[3].split() == ["17", "s", "m2.onnx", "for", "rtx", "on", "w2"]
    # 20 s for two: 17 are left.
    assert lines[-1] == "[  20.0 s] 3 of 20 done, 3 failed, 10 at work, 7 waiting, about 170 s left"


def test_what_waits_again_is_not_at_work(clock: list[float]) -> None:
    shown = Rows(REQUESTS, io.StringIO(), terminal=True)
    shown.begun(3, "w")
    assert ", 1 at work, 19 waiting" in shown.lines()[-1]
    shown.waits(3)
    assert shown.lines() == ["[   0.0 s] 0 of 20 done, 0 failed, 0 at work, 20 waiting"]


def test_what_nobody_can_do_takes_no_time_until_somebody_comes(clock: list[float]) -> None:
    shown = Rows(REQUESTS, io.StringIO(), terminal=True)
    shown.begun(0, "w")
    for index in range(10, 20):
        shown.unplaced(index)
    clock[0] += 10
    shown.ended(0, failed(0))
    said = "[  10.0 s] 1 of 20 done, 1 failed, 0 at work, 9 waiting, 10 that nobody there can do, about 90 s left"
    assert shown.lines()[-1] == said
    shown.ended(10, failed(10, 4))
    assert "2 of 20 done, 2 failed, 0 at work, 9 waiting, 9 that nobody" in shown.lines()[-1]
    for index in range(11, 20):
        shown.waits(index)
    assert "0 at work, 18 waiting, about" in shown.lines()[-1]


def test_the_last_failures_are_shown_and_all_are_counted() -> None:
    shown = Rows(REQUESTS, io.StringIO(), terminal=True)
    for index in range(9):
        shown.ended(index, failed(index))
    lines = shown.lines()
    assert [line.split()[1] for line in lines[:-1]] == [f"m{index}.onnx" for index in range(4, 9)]
    assert "9 of 20 done, 9 failed" in lines[-1]


def test_rows_are_drawn_over_those_before() -> None:
    stream = io.StringIO()
    shown = Rows(REQUESTS, stream, terminal=True)
    shown.begun(0, "a" * 200)
    shown.show()
    first = stream.getvalue()
    assert [len(line) <= 79 for line in first.splitlines()] == [True, True]
    shown.show()
    assert stream.getvalue()[len(first) :].startswith("\x1b[2F\x1b[J")
    shown.clear()
    assert stream.getvalue().endswith("\x1b[2F\x1b[J")


def test_elsewhere_each_job_is_a_line_that_no_name_can_break(clock: list[float]) -> None:
    stream = io.StringIO()
    shown = Rows(REQUESTS, stream, terminal=False)
    shown.begun(0, "w\x1b[2J")
    shown.ended(0, failed(0, message="a\x1b[31mb"))
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("[   0.0 s] 1 of 20: FAILED  m0.onnx for rtx on w") and "\x1b" not in line


@pytest.mark.parametrize(("kept", "said"), [(True, "ok  m0.onnx for rtx: up to date"), (False, "ok  m0.onnx for rtx")])
def test_what_was_there_already_is_told_from_what_was_built(clock: list[float], kept: bool, said: str) -> None:
    stream = io.StringIO()
    Rows(REQUESTS, stream, terminal=False).ended(0, build_report(up_to_date=kept))
    assert stream.getvalue() == f"[   0.0 s] 1 of 20: {said}\n"


def test_whoever_closes_stderr_does_not_stop_the_work() -> None:
    stream = io.StringIO()
    shown = Rows(REQUESTS, stream, terminal=False)
    stream.close()
    shown.ended(0, failed(0))
    shown.show()
    assert "1 of 20 done" in shown.lines()[-1]
