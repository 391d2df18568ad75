"""What the command line tests share: a call of `main`, in this process or another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trtconv
from support.cli import Ended, FakePipeline
from support.paths import ROOT
from trtconv.cli import main


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    fake = FakePipeline()
    for module in ("pipeline", "pipeline.building", "pipeline.checking", "pipeline.rewriting"):
        monkeypatch.setitem(sys.modules, f"trtconv.{module}", fake)
    monkeypatch.setattr(trtconv, "pipeline", fake, raising=False)
    return fake


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Ended]]:
    """Calls `main` in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(*args: str) -> Ended:
        code = main(args)
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python code in a process of its own, with the project importable; ends what still runs after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str, *args: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        processes.append(subprocess.Popen([sys.executable, "-c", code, *args], env=environment, **options))
        return processes[-1]

    yield start
    for process in processes:
        with process:  # Closes its pipes, waits for it.
            process.kill()
