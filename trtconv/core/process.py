"""Functions called in a process of their own, with limits of time and memory.

Engines and models are somebody else's: native code that reads them may crash, hang, or take all memory there is. It may
take neither the caller with it, nor keep it waiting for ever.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import queue
import signal as signals
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from trtconv.core import budget, errors, foreign
from trtconv.core.decode import decoded
from trtconv.core.errors import TrtconvError
from trtconv.core.forking import Fork, can_fork
from trtconv.core.scratch import temporary_folder
from trtconv.core.serving import LENGTH_BYTES, CallResult, Ending, end_group, load, serve
from trtconv.core.serving import Tell as Tell

Watch = Callable[[int], None]
"""Is called a few times a second with the number of the process; what it raises ends the process, and the call."""

Cause = Literal["time", "memory", "file", "crash"]
"""Why a process ended before it was done: it took too long, wanted too much memory, a file was cut short while it read
that, or it broke down."""

_TAIL = 1500
_POLL_SECONDS = 0.05
# What C and C++ libraries, and the loader of libraries, say where memory is refused.
_WANT_OF_MEMORY = ("bad_alloc", "annot allocate memory", "ut of memory", "failed to map segment", "MemoryError")


class Lost(Exception):
    """The process ended, or was ended, before it was done.

    Args:
        why: "it took longer than 60 s", "it ran out of memory", "signal 11", "status 1".
        cause: The kind of it.
        stderr: The end of what it wrote to stderr.
        signal: Number of the signal that ended it; 0: none did.
    """

    def __init__(self, why: str, cause: Cause = "crash", stderr: str = "", signal: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.cause = cause
        self.stderr = stderr
        self.signal = signal


class WorkerBug(Exception):
    """The function raised what it should not; the message is its traceback."""

    @property
    def summary(self) -> str:
        """The last line of the traceback: the exception alone."""
        return str(self).strip().rpartition("\n")[2]


_START = """
import os, sys
{path}
# ONNX Runtime would write a file of its own where temporary files go.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# NumPy's matrix library takes 40 MB a core as it is imported, which alone is beyond the limit on a large machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import importlib.util
spec = importlib.util.spec_from_file_location("trtconv", {init!r}, submodule_search_locations=[{package!r}])
sys.modules["trtconv"] = trtconv = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trtconv)
getattr(importlib.import_module({module!r}), {function!r})()
"""


def python(entry: str, interpreter: Path | None = None) -> list[str]:
    """Returns the command of a Python that calls a function of trtconv; every child process is started with it.

    Modules come from where this process has them installed, and from nowhere else: not from the working directory or
    the running script's folder, which may be a stranger's checkout. Python itself puts neither on `sys.path` (`-I`),
    and trtconv is loaded by its place, so that the folder which it lies in need not be there.

    Args:
        entry: "module:function", a module of trtconv; the function takes nothing.
        interpreter: Another Python, which has modules of its own, but this very trtconv; None: this one.
    """
    module, _, function = entry.partition(":")
    package = Path(__file__).resolve().parents[1]
    init = str(package / "__init__.py")
    path = f"sys.path[:] = {trusted_path()!r}" if interpreter is None else ""
    code = _START.format(path=path, init=init, package=str(package), module=module, function=function)
    flags = ["-B"] if sys.dont_write_bytecode else []
    return [
        str(interpreter or sys.executable),
        "-I",
        *flags,
        *(["-X", "utf8"] if sys.flags.utf8_mode else []),
        "-c",
        code,
    ]


def trusted_path() -> list[str]:
    """Returns `sys.path` without the folders that Python puts there for what it was asked to run."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    foreign = {Path(main).resolve().parent} if main else set()
    # The working directory may be gone.
    with contextlib.suppress(OSError):
        foreign.add(Path.cwd().resolve())
    installed = [Path(root).resolve() for root in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}]

    def is_trusted(entry: str) -> bool:
        if not Path(entry).is_absolute():
            return False
        folder = Path(entry).resolve()
        return folder not in foreign or any(folder.is_relative_to(root) for root in installed)

    return [entry for entry in sys.path if is_trusted(entry)]


def call(task: str, argument: object, seconds: float, tell: Tell | None = None, megabytes: float | None = None) -> Any:
    """Calls a function in a process of its own; all but `seconds` and `argument` is as for `Process`.

    Returns:
        What the function returns.

    Raises:
        TrtconvError: What the function raised.
        Lost: The process crashed, took too long, or wanted too much memory.
        WorkerBug: The function raised anything else.
    """
    with Process(task, megabytes) as process:
        return process.call(argument, seconds, tell)


class Process(contextlib.AbstractContextManager["Process"]):
    """A process that answers calls, one after another; started with the first, and again after it was lost.

    Args:
        task: "module:function"; the function takes the argument and a `Tell`, and returns plain JSON values. Of a
            class one instance is made, and called: it may keep something from one call to the next.
        megabytes: How much memory the process may take beyond what it begins with, in MiB; None, and where the system
            has no such limit: any.
        quiet: Whether what it writes to stderr is kept for `Lost.said`, rather than passed on.
        interpreter: As for `python`.
    """

    def __init__(
        self, task: str, megabytes: float | None = None, *, quiet: bool = True, interpreter: Path | None = None
    ) -> None:
        self._task = task
        self._greeting = pickle.dumps((task, megabytes, budget.current(), foreign.current()))
        self._quiet = quiet
        self._interpreter = interpreter
        self._running: _Running | None = None
        self._lock = threading.Lock()
        self._closed = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self, argument: object, seconds: float | None = None, tell: Tell | None = None, watch: Watch | None = None
    ) -> Any:
        """Calls the function.

        Args:
            argument: Anything that can be pickled.
            seconds: How long it may take, the start of the process included; None: for ever.
            tell: Hears what the function tells, in this thread.
            watch: Looks after the process, in this thread.

        Returns:
            What the function returns.

        Raises:
            TrtconvError: What the function raised.
            Lost: The process crashed, took too long, wanted too much memory, or was closed meanwhile.
            WorkerBug: The function raised anything else.
        """
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        request = pickle.dumps(argument)
        healthy = False
        try:
            running = self._start()
            running.send(request)
            while not isinstance(event := running.hear(deadline, watch), Ending):
                if tell is not None:
                    tell(event)
            healthy = event.event != CallResult.MEMORY
            return _value(event)
        except TimeoutError:
            raise Lost(f"it took longer than {seconds:g} s", "time") from None
        finally:
            if not healthy:
                self._end()

    def close(self) -> None:
        """Ends the process and those that it started, in the middle of a call too; a further call is lost."""
        with self._lock:
            self._closed = True
        self._end()

    def _start(self) -> _Running:
        with self._lock:
            if self._closed:
                raise Lost("it was ended")
            if self._running is None:
                spare = _SPARES.pop(self._task, None) if self._quiet and self._interpreter is None else None
                self._running = spare or _Running(self._quiet, self._interpreter)
                self._running.send(self._greeting)
            return self._running

    def _end(self) -> None:
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.end()


_SPARES: dict[str, _Running] = {}
"""Processes that were started before anybody asked for them, by their tasks."""


def start_early(task: str, *, fork: bool = False) -> None:
    """Starts a process for the first `Process` of a task: it imports what the task needs while this one does the same.

    One that nobody takes ends with this process.

    Args:
        task: As for `Process`; its module may have a function `prepare`, which loads what calls will need, and one
            `share`, which loads what this process needs too, before it is forked.
        fork: Whether it may be a fork of this process, which has imported that module too then; one with threads is not
            forked.
    """
    if task not in _SPARES:
        if fork:
            getattr(load(task), "share", lambda: None)()
        running = _Running(quiet=True, fork=fork and can_fork())
        running.send(pickle.dumps(task))
        # Told before: another thread may take it at once, or have started one meanwhile.
        if _SPARES.setdefault(task, running) is not running:
            running.end()


class _Running:
    """One process that runs `serve`, and the pipes to it."""

    def __init__(self, quiet: bool, interpreter: Path | None = None, *, fork: bool = False) -> None:
        with contextlib.ExitStack() as undo:
            self._stderr = undo.enter_context(tempfile.TemporaryFile(dir=temporary_folder())) if quiet else None
            # A session of its own, so that what it starts ends with it, and that Ctrl-C is the caller's alone.
            self._process: Fork | subprocess.Popen[bytes] = (
                Fork(serve, trusted_path(), self._stderr)
                if fork
                else subprocess.Popen(
                    python("trtconv.core.serving:serve", interpreter),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    start_new_session=True,
                )
            )
            undo.pop_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(ValueError, OSError):
            for line in self._answers:
                self._lines.put(line)
        self._lines.put(b"")

    def send(self, data: bytes) -> None:
        """Sends a document; where the process is gone, `hear` will say so."""
        with contextlib.suppress(OSError, ValueError):
            self._requests.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
            self._requests.flush()

    def hear(self, deadline: float, watch: Watch | None) -> Mapping[str, Any] | Ending:
        """Returns what the process tells next.

        Raises:
            TimeoutError: It is too late, also where the process talks without a pause.
            Lost: The process ended.
        """
        line = None
        while line is None:
            if time.monotonic() > deadline:
                raise TimeoutError
            if watch is not None:
                watch(self._process.pid)
            # In short waits, so that Ctrl-C is heard.
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=_POLL_SECONDS)
        if not line:
            raise self._lost(self._process.wait())
        event: Mapping[str, Any] = json.loads(line)
        return decoded(Ending, event) if event["event"] in _ENDINGS else event

    def _lost(self, code: int) -> Lost:
        message = ""
        # Another thread may have ended it, and closed its files.
        with contextlib.suppress(ValueError):
            if self._stderr is not None:
                self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - _TAIL))
                message = self._stderr.read().decode(errors="replace").strip()
        if any(sign in message for sign in _WANT_OF_MEMORY):
            return Lost(_OUT_OF_MEMORY, "memory", message)
        if -code == getattr(signals, "SIGBUS", 0):
            return Lost(errors.CUT_SHORT, "file", message, signal=-code)
        return Lost(f"signal {-code}" if code < 0 else f"status {code}", "crash", message, max(0, -code))

    def end(self) -> None:
        """Ends the process and those that it started."""
        end_group(self._process.pid, "SIGKILL")
        self._process.kill()
        self._process.wait()
        for file in (self._requests, self._answers, self._stderr):
            # What is still buffered for a dead process cannot be flushed.
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()


class SystemProgram:
    """A program of the system that runs beside this process.

    Args:
        command: The program, and what it is called with.

    Raises:
        OSError: There is no such program.
    """

    def __init__(self, command: Sequence[str]) -> None:
        with contextlib.ExitStack() as undo:
            output = undo.enter_context(tempfile.TemporaryFile(dir=temporary_folder()))
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            self._output = output
            undo.pop_all()

    def status(self) -> int | None:
        """Returns its exit status; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """Returns the beginning of what it has said so far."""
        return os.pread(self._output.fileno(), _TAIL, 0).decode(errors="replace").strip()

    def close(self) -> None:
        """Ends it, where it still runs."""
        if self._process.poll() is None:
            end_group(self._process.pid, "SIGTERM")
        self._process.wait()
        self._output.close()


_OUT_OF_MEMORY = "it ran out of memory"
_ENDINGS = frozenset(outcome.value for outcome in CallResult)


def _value(ending: Ending) -> Any:
    """Returns what a function returned, or raises what became of it instead."""
    if ending.event is CallResult.RESULT:
        return ending.value
    if ending.event is CallResult.MEMORY:
        raise Lost(_OUT_OF_MEMORY, "memory")
    if ending.event is CallResult.BUG:
        raise WorkerBug(ending.message)
    kind: type[TrtconvError] = getattr(errors, ending.type)
    raise kind(ending.message, ending.hint)


def address_space() -> int | None:
    """Returns how many bytes of virtual memory this process may have (ulimit -v); None: as many as there are."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return None if limit == resource.RLIM_INFINITY else limit
    return None
