"""A function called in a process of its own, with a time limit.

Engines are native code that somebody else may have made, and ONNX Runtime is ended by some models: neither may take
the caller with it, or keep it waiting for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from trtconv.core import errors
from trtconv.core.errors import TrtconvError

Tell = Callable[[dict[str, Any]], None]
"""Tells the caller of something that happened, as plain JSON values."""

_LENGTH_BYTES = 8
_TAIL = 1500
_POLL_SECONDS = 0.2


class Lost(Exception):
    """The process ended, or was ended, before it was done.

    Args:
        why: "took longer than 60 s", "signal 11", "status 1".
        said: The end of what it wrote to stderr.
        late: Whether it was ended because its time was up.
    """

    def __init__(self, why: str, said: str = "", late: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.said = said
        self.late = late


class WorkerBug(Exception):
    """The function raised what it should not; the message is its traceback."""


_START = """
import sys
sys.path[:] = {path!r}
import importlib.util
spec = importlib.util.spec_from_file_location("trtconv", {init!r}, submodule_search_locations=[{package!r}])
sys.modules["trtconv"] = trtconv = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trtconv)
getattr(importlib.import_module({module!r}), {function!r})()
"""


def python(entry: str) -> list[str]:
    """Returns the command of a Python that calls a function of trtconv; every child process is started with it.

    Modules come from where this process has them installed, and from nowhere else: not from the working directory or
    the running script's folder, which may be a stranger's checkout. Python itself puts neither on `sys.path` (`-I`),
    and trtconv is loaded by its place, so that the folder which it lies in need not be there.

    Args:
        entry: "module:function", a module of trtconv; the function takes nothing.
    """
    module, _, function = entry.partition(":")
    package = Path(__file__).resolve().parents[1]
    init = str(package / "__init__.py")
    code = _START.format(path=_trusted_path(), init=init, package=str(package), module=module, function=function)
    flags = ["-B"] if sys.dont_write_bytecode else []
    return [sys.executable, "-I", *flags, *(["-X", "utf8"] if sys.flags.utf8_mode else []), "-c", code]


def _trusted_path() -> list[str]:
    """Returns `sys.path` without the folders that Python puts there for what it was asked to run."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    foreign = {Path.cwd().resolve(), *([Path(main).resolve().parent] if main else [])}
    installed = [Path(root).resolve() for root in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}]

    def is_trusted(entry: str) -> bool:
        if not Path(entry).is_absolute():
            return False
        folder = Path(entry).resolve()
        return folder not in foreign or any(folder.is_relative_to(root) for root in installed)

    return [entry for entry in sys.path if is_trusted(entry)]


def call(task: str, argument: object, seconds: float, tell: Tell) -> Any:
    """Calls a function in a process of its own.

    Args:
        task: "module:function"; the function takes the argument and a `Tell`, and returns plain JSON values.
        argument: Anything that can be pickled.
        seconds: How long it may take.
        tell: Hears what the function tells, in this thread.

    Returns:
        What the function returns.

    Raises:
        TrtconvError: What the function raised.
        Lost: The process crashed, or took too long.
        WorkerBug: The function raised anything else.
    """
    data = pickle.dumps((task, argument))
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryFile() as said:
        # A session of its own, so that what it starts ends with it.
        process = subprocess.Popen(
            python("trtconv.core.process:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                # Left open: its end tells the process that nobody waits for it any more.
                process.stdin.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
                process.stdin.flush()
            return _listen(process, process.stdout, deadline, seconds, tell)
        except Lost as lost:
            raise Lost(lost.why, _tail(said), lost.late) from None
        finally:
            _end(process.pid, "SIGKILL")
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(OSError):
                process.stdin.close()


def _listen(process: subprocess.Popen[bytes], pipe: IO[bytes], deadline: float, seconds: float, tell: Tell) -> Any:
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        with contextlib.suppress(ValueError, OSError):
            for line in pipe:
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    while True:
        # Also where the process talks without a pause.
        if time.monotonic() > deadline:
            raise Lost(f"it took longer than {seconds:g} s", late=True)
        try:
            # In short waits, so that Ctrl-C is heard.
            line = lines.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
        if not line:
            code = process.wait()
            raise Lost(f"signal {-code}" if code < 0 else f"status {code}")
        event = json.loads(line)
        if event["event"] == "result":
            return event["value"]
        if event["event"] == "error":
            raise _rebuilt(event)
        tell(event)


def _rebuilt(event: dict[str, Any]) -> Exception:
    if event["type"] is None:
        return WorkerBug(event["message"])
    known: type[TrtconvError] = getattr(errors, event["type"])
    return known(event["message"], event["hint"])


def _tail(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _TAIL))
    return said.read().decode(errors="replace").strip()


def serve() -> None:
    """Is the other process: takes a call from stdin, and writes what happens to stdout, one JSON document a line."""
    # Ctrl-C goes to the whole group of processes; the caller decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print goes to stderr, not between the lines.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    size = int.from_bytes(sys.stdin.buffer.read(_LENGTH_BYTES), "big")
    task, argument = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_end_with_caller, daemon=True).start()

    def tell(event: dict[str, Any]) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    tell(_outcome(task, argument, tell))


def _outcome(task: str, argument: object, tell: Tell) -> dict[str, Any]:
    import importlib

    module, _, function = task.partition(":")
    try:
        return {"event": "result", "value": getattr(importlib.import_module(module), function)(argument, tell)}
    except TrtconvError as error:
        name = type(error).__name__
        # A subclass of its own is told as what it is one of.
        known = name if hasattr(errors, name) else type(error).__mro__[1].__name__
        return {"event": "error", "type": known, "message": error.message, "hint": error.hint}
    except MemoryError:
        return {
            "event": "error",
            "type": "EnvironmentMissing",
            "message": "out of memory",
            "hint": "Use smaller sizes.",
        }
    except Exception:
        import traceback

        return {"event": "error", "type": None, "message": traceback.format_exc(), "hint": ""}


def _end_with_caller() -> None:
    """Ends this process when the caller is gone."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    _end(os.getpid(), "SIGTERM")
    os.kill(os.getpid(), signal.SIGTERM)


def _end(leader: int, name: str) -> None:
    """Ends a process and those that it started; does nothing where there are no groups of processes (Windows)."""
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(leader, getattr(signal, name))
