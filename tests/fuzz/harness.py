"""Runs commands in worker processes, and says what went wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import selectors
import subprocess
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300.0
"""How long the worker may be silent; it ends what takes too long itself."""
MOST_MEGABYTES = 2000.0
FINE = (0, 1, 2, 4)
POISON = "FORGED"
"""What every hostile name has at the start of whatever it would make a line of."""
_COMMAND = re.compile(r"::(error|warning|notice) (file|title)=[^:]*::")
_ANYWHERE = re.compile(r"##\[|##vso\[")
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


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
        said = f"{self.case}: {self.what}: trtconv {' '.join(map(repr, self.command))}\n{self.stderr[-3000:]}"
        return said.encode("utf-8", "backslashreplace").decode()


class Worker:
    """A process that runs commands; started again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, case: str, *command: str, folder: Path | None = None, whole: bool = False) -> Fault | None:
        """Runs one command; returns the worst of what is wrong with how it ended, or None.

        Args:
            case: What the fault is told under.
            *command: Its arguments.
            folder: Where it runs.
            whole: Whether it runs as a user would run it, isolated; else so only where it dies or hangs.
        """
        answer = self.answer(command, folder or ROOT, whole)
        if answer is None:
            return Fault(case, command, "the worker itself died", "")
        return next(iter(judge(case, command, answer)), None)

    def answer(self, command: Iterable[str], folder: Path, whole: bool = False, **extra: Any) -> dict[str, Any] | None:
        """Runs one command; returns code, stdout, stderr, seconds, megabytes and so on."""
        process = self._process or self._start()
        assert process.stdin is not None
        request = {"args": list(command), "folder": str(folder), "whole": whole, **extra}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = self._heard(process)
        if answer is None:
            self.close()
        return answer

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
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
            "PYTHONFAULTHANDLER": "",
            "NO_COLOR": "1",
        }
        environment.pop("GITHUB_ACTIONS", None)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        return self._process

    def _heard(self, process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
        """Waits for a line; None where the process died or takes too long."""
        assert process.stdout is not None
        parts = []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not parts or not parts[-1].endswith(b"\n"):
                if not selector.select(PATIENCE_SECONDS):
                    return None
                part = os.read(process.stdout.fileno(), 1 << 20)
                if not part:
                    process.wait()
                    return None
                parts.append(part)
        answer: dict[str, Any] = json.loads(b"".join(parts))
        return answer


def judge(case: str, command: tuple[str, ...], answer: dict[str, Any]) -> list[Fault]:
    """Returns what is wrong with how a command ended."""
    return [Fault(case, command, what, str(answer["stderr"])) for what in _faults(command, answer)]


def _faults(command: tuple[str, ...], answer: dict[str, Any]) -> Iterable[str]:
    if answer.get("hung"):
        yield f"hang: no end after {answer['seconds']:.0f} s"
        return
    if answer["code"] not in FINE:
        yield f"exit code {answer['code']}" if answer["code"] >= 0 else f"crash (signal {-answer['code']})"
    if "Traceback (most recent call last)" in answer["stderr"]:
        yield "traceback"
    if answer["megabytes"] > MOST_MEGABYTES:
        yield f"{answer['megabytes']:.0f} MB of memory"
    # Several models are told of together, on stdout; plan has a line for each.
    if answer["code"] in (2, 4) and command[:1] != ("plan",) and "hint" not in answer["stderr"] + answer["stdout"]:
        yield "no hint"
    form = format_of(command)
    for stream in ("stdout", "stderr"):
        yield from text_faults(answer[stream], stream, commands=form == "github" and stream == "stdout")
    said = document_fault(form, command, answer["stdout"], answer["code"])
    if said:
        yield said


def text_faults(text: str, stream: str, commands: bool = False) -> Iterable[str]:
    """Yields what must not be in a command's output.

    Args:
        text: The output.
        stream: Its name.
        commands: Whether lines may be annotations of GitHub's.
    """
    hidden = {c for c in set(text) - {"\n"} if not c.isascii() or not c.isprintable()}
    for character in sorted(c for c in hidden if unicodedata.category(c) in _HIDDEN):
        yield f"raw {character!r} on {stream}"
    for line in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text):
        told = line.strip()
        if told.startswith(POISON):
            yield f"a forged line on {stream}: {told[:80]!r}"
        if told.startswith("::") and not (commands and line.startswith("::") and _COMMAND.match(told)):
            yield f"a workflow command on {stream}: {told[:80]!r}"
        if _ANYWHERE.search(line):
            yield f"a logging command on {stream}: {told[:80]!r}"


def format_of(command: tuple[str, ...]) -> str:
    """Returns the value of --format."""
    return command[command.index("--format") + 1] if "--format" in command[:-1] else "text"


def document_fault(form: str, command: tuple[str, ...], stdout: str, code: int) -> str:
    """Returns why stdout is not the document that was asked for, or ''."""
    try:
        if form in ("json", "sarif") and (stdout or form == "json") and "--help" not in command:
            document = json.loads(stdout)
            if form == "json" and document.get("exit_code", code) != code:
                return f"the document says exit code {document['exit_code']}, not {code}"
        elif form == "junit" and stdout:
            ElementTree.fromstring(stdout)
    except (ValueError, ElementTree.ParseError) as error:
        return f"stdout is no {form}: {error}"
    return ""


def commands(model: Path, dims: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns what every case of `broken` goes through."""
    bounds = tuple(part for dim in dims for part in ("--dim", dim))
    out = model.parent / "out"
    return [
        ("check", str(model), *bounds, "--target", "rtx", "-q", "--format", "sarif"),
        ("check", str(model), *bounds, "--target", "tensorrt-8.6", "-q"),
        ("rewrite", str(model), "-o", str(out / "r.onnx"), "--target", "rtx", "-q"),
        ("build", str(model), *bounds, "-o", str(out / "e.engine"), "--target", "rtx", "-q", "--force"),
    ]
