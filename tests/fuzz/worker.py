"""Runs commands as told on stdin; one line of JSON out for each. A process of its own, because it may die.

Everything heavy is imported once, here. Commands run in a fork of this process, one after the other in the same fork
until one kills it: a fork costs milliseconds where a start of Python costs half a second. What a fork dies of, or
hangs in, is run again as a user would run it, isolated, in a fork that does nothing else: that is what counts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

HANG_SECONDS = 20.0
"""On a machine that does nothing else; more where others want its processors too."""
SECONDS_INSIDE = 10.0
"""After so long a command is started again by itself, with what watches over it."""
COMMANDS_A_FORK = 400
GROWTH_BYTES = 3 << 30
"""Address space that a fork may take beyond what it begins with."""
KEPT_BYTES = 1 << 17
_POLL_SECONDS = 0.1
_EXPORTER = "trtconv.exporter"


def main() -> None:
    """Serves until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    _import_everything()
    inside: Fork | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer = None
        if not request.get("whole"):
            inside = inside or Fork()
            answer = inside.run(request)
            if answer is None or inside.served >= COMMANDS_A_FORK:
                inside.close()
                inside = None
        if answer is None:
            answer = _run_whole(request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if inside is not None:
        inside.close()


def _import_everything() -> None:
    import onnxruntime
    import tensorrt_rtx

    import trtconv

    assert onnxruntime and tensorrt_rtx
    for module in pkgutil.walk_packages(trtconv.__path__, "trtconv."):
        if not module.name.startswith(_EXPORTER) and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    from support.contracts import check_idempotence

    check_idempotence()


class Fork:
    """A fork that runs one command after the other."""

    def __init__(self) -> None:
        self.served = 0
        ask, self._ask = os.pipe()
        self._hear, tell = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._ask)
            os.close(self._hear)
            _serve(ask, tell)
        os.close(ask)
        os.close(tell)

    def run(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Runs a command; None where the fork died of it, or takes too long."""
        self.served += 1
        os.write(self._ask, json.dumps(request).encode() + b"\n")
        data = b""
        deadline = time.monotonic() + SECONDS_INSIDE
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._hear], [], [], left)[0]:
                return None
            part = os.read(self._hear, 1 << 16)
            if not part:
                return None
            data += part
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """Ends the fork, and what it started."""
        _kill_session(self._pid)
        os.waitpid(self._pid, 0)
        os.close(self._ask)
        os.close(self._hear)


def _serve(ask: int, tell: int) -> NoReturn:
    """Is the fork: runs what it is told to."""
    os.setsid()
    out, err = _take_streams()
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + GROWTH_BYTES, resource.RLIM_INFINITY))
    from trtconv.cli import main as trtconv

    with os.fdopen(ask) as requests:
        for line in requests:
            request = json.loads(line)
            _enter(request)
            for stream in (out, err):
                os.ftruncate(stream, 0)
            before, started = _peak_megabytes(), time.monotonic()
            code = trtconv(_arguments(request))
            spent = time.monotonic() - started
            answer = _answer(code, out, err, spent, _peak_megabytes() - before)
            os.write(tell, json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _take_streams() -> tuple[int, int]:
    """Puts files in memory in the place of stdout and stderr."""
    streams = []
    for number in (1, 2):
        stream = os.memfd_create(f"stream{number}", 0)
        streams.append(os.open(f"/proc/self/fd/{stream}", os.O_RDWR | os.O_APPEND))
        os.dup2(streams[-1], number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    return streams[0], streams[1]


def _enter(request: dict[str, Any]) -> None:
    os.chdir(request["folder"])
    temporary = str(Path(request["folder"]) / request.get("temporary", "."))
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    os.environ.update(request.get("environment", {}))


def _arguments(request: dict[str, Any]) -> list[str]:
    return [os.fsdecode(argument.encode("utf-8", "surrogateescape")) for argument in request["args"]]


def _answer(code: int, out: int, err: int, seconds: float, megabytes: float) -> dict[str, Any]:
    texts = {}
    for name, stream in (("stdout", out), ("stderr", err)):
        size = os.fstat(stream).st_size
        texts[name] = os.pread(stream, KEPT_BYTES if name == "stderr" else size, 0).decode(errors="surrogateescape")
    return {"code": code, "seconds": seconds, "megabytes": megabytes, **texts}


def _run_whole(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a command as the console entry does, in a fork that does nothing else."""
    streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
    started = time.monotonic()
    pid = os.fork()
    if not pid:
        os.setsid()
        for number, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream.fileno(), number)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        _enter(request)
        sys.argv = ["trtconv", *_arguments(request)]
        from trtconv.cli import run

        run()
    most, hung = 0.0, False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        most = max(most, _session_megabytes(pid))
        if time.monotonic() - started > request.get("seconds", HANG_SECONDS) * _crowd():
            hung = True
            _kill_session(pid)
            status = os.waitpid(pid, 0)[1]
            break
        time.sleep(_POLL_SECONDS / 4)
    _wait_for_session(pid)
    seconds = time.monotonic() - started
    answer = _answer(os.waitstatus_to_exitcode(status), streams[0].fileno(), streams[1].fileno(), seconds, most)
    for stream in streams:
        stream.close()
    return {**answer, "hung": hung, "whole": True}


def _crowd() -> float:
    """Returns how many processes there are for each processor, 1 to 10."""
    return min(10.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def _session(leader: int) -> list[int]:
    """Returns the processes of a session."""
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry))
    return found


def _session_megabytes(leader: int) -> float:
    """Returns the memory that the processes of a session have for themselves."""
    total = 0
    for pid in _session(leader):
        with contextlib.suppress(OSError, IndexError):
            resident, shared = Path("/proc", str(pid), "statm").read_text().split()[1:3]
            total += int(resident) - int(shared)
    return total * resource.getpagesize() / (1 << 20)


def _wait_for_session(leader: int) -> None:
    """Waits a moment for those that end by themselves."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and _session(leader):
        time.sleep(_POLL_SECONDS)
    _kill_session(leader)


def _kill_session(leader: int) -> None:
    for pid in {leader, *_session(leader)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _peak_megabytes() -> float:
    """Peak resident memory so far: what it grows by is what a command took beyond all before it."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


if __name__ == "__main__":
    main()
