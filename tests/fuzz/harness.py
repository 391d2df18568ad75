"""Hands broken models to check, rewrite and build in worker processes, and says what went wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HANG_SECONDS = 30.0
GROWTH_MEGABYTES = 1500.0
FINE = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class Fault:
    """What must never happen.

    Args:
        case: The case's name: says how to make it again.
        command: The command line.
        what: "crash (signal 11)", "hang", "traceback" and so on.
        stderr: What the command said.
    """

    case: str
    command: tuple[str, ...]
    what: str
    stderr: str

    def __str__(self) -> str:
        return f"{self.case}: {self.what}: trtconv {' '.join(self.command)}\n{self.stderr[-3000:]}"


class Worker:
    """A process that runs commands; started again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, case: str, *command: str) -> Fault | None:
        """Runs one command; returns what is wrong with how it ended, or None."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(command).encode() + b"\n")
        process.stdin.flush()
        answer = self._answer(process)
        if answer is None:
            hung = process.poll() is None
            self.close()
            code = process.returncode
            what = f"hang: no answer in {HANG_SECONDS:.0f} s" if hung else f"crash: the process ended with {code}"
            return Fault(case, command, what, "")
        return _judge(case, command, answer)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": ""}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        return self._process

    def _answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
        """Waits for a line; None where the process died or takes too long."""
        assert process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(HANG_SECONDS):
                    return None
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    process.wait()
                    return None
                line += part
        answer: dict[str, Any] = json.loads(line)
        return answer


def _judge(case: str, command: tuple[str, ...], answer: dict[str, Any]) -> Fault | None:
    said = str(answer["stderr"])
    too_large = answer["code"] == 4 and "out of memory" in said
    if answer["code"] not in FINE and not too_large:
        return Fault(case, command, f"exit code {answer['code']}", said)
    if "Traceback (most recent call last)" in said:
        return Fault(case, command, "traceback", said)
    if answer["megabytes"] > GROWTH_MEGABYTES:
        return Fault(case, command, f"memory grew by {answer['megabytes']:.0f} MB", said)
    return None


def commands(model: Path, dims: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns what every case goes through."""
    bounds = tuple(part for dim in dims for part in ("--dim", dim))
    out = model.parent / "out"
    return [
        ("check", str(model), *bounds, "--target", "rtx", "-q", "--format", "sarif"),
        ("check", str(model), *bounds, "--target", "tensorrt-8.6", "-q"),
        ("rewrite", str(model), "-o", str(out / "r.onnx"), "--target", "rtx", "-q"),
        ("build", str(model), *bounds, "-o", str(out / "e.engine"), "--target", "rtx", "-q", "--force"),
    ]
