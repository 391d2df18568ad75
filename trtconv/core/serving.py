"""What runs in the other process of `core.process`: calls come from stdin, answers go to stdout."""

from __future__ import annotations

import contextlib
import enum
import importlib
import json
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trtconv.core import budget, errors, foreign
from trtconv.core.encode import Document
from trtconv.core.errors import TrtconvError
from trtconv.core.frozen import frozen

Tell = Callable[[Mapping[str, Any]], None]
"""Tells the caller of something that happened, as plain JSON values."""


class CallResult(str, enum.Enum):
    """What became of a call."""

    RESULT = "result"
    ERROR = "error"
    BUG = "bug"
    MEMORY = "memory"


@frozen
class Ending(Document):
    """What ends a call; all other events are told while it goes on.

    Args:
        event: What became of it.
        value: What the function returned, as plain JSON values.
        message: The error's message, or the traceback of a bug.
        hint: The error's hint.
        type: Name of its class in `core.errors`.
    """

    event: CallResult
    value: Any = None
    message: str = ""
    hint: str = ""
    type: str = ""


LENGTH_BYTES = 8
"""Of the length that goes before each request."""


def serve() -> None:
    """Is the other process: takes calls from stdin, and writes what happens to stdout, one JSON document a line."""
    # Ctrl-C goes to the whole group of processes; the caller decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print goes to stderr, not between the lines.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    greeting = pickle.loads(requests.get())
    if isinstance(greeting, str):
        _prepare(greeting)
        greeting = pickle.loads(requests.get())
    task, megabytes, allowed, agreed = greeting
    _give_back_what_is_freed()
    _limit_memory(megabytes)
    function: Callable[[object, Tell], Any] | None = None

    def tell(event: Mapping[str, Any]) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    def answer(request: bytes) -> Any:
        nonlocal function
        function = function or function_of(task)
        return function(pickle.loads(request), tell)

    with budget.allowed(allowed), foreign.using(agreed):
        while True:
            tell(_outcome(answer, requests.get()).to_json())


def _receive(requests: queue.SimpleQueue[bytes]) -> None:
    """Hands requests on, and ends this process when the caller is gone."""
    with contextlib.suppress(OSError):
        while length := sys.stdin.buffer.read(LENGTH_BYTES):
            requests.put(sys.stdin.buffer.read(int.from_bytes(length, "big")))
    end_group(os.getpid(), "SIGTERM")
    os.kill(os.getpid(), signal.SIGTERM)


def _give_back_what_is_freed() -> None:
    """Has large blocks of memory go back to the system when they are freed.

    The C library would keep all that are no larger than the largest that was ever freed, and weights are large.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        # Other C libraries than glibc have no such function.
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


_MMAP_THRESHOLD = -3
"""What glibc calls the limit (malloc.h)."""
_LARGE_BYTES = 1 << 20


def _limit_memory(megabytes: float | None) -> None:
    if megabytes is None:
        return
    # Windows has no such module, and macOS does not keep to the limit.
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        usage = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        most = int(usage + megabytes * (1 << 20))
        # Not the address space, of which CUDA takes more than there is memory.
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def load(task: str) -> Any:
    """Imports the module of a task; returns None where it cannot: that fails again, and is told, where it is called."""
    with contextlib.suppress(Exception):
        return importlib.import_module(task.partition(":")[0])
    return None


def _prepare(task: str) -> None:
    # As above.
    with contextlib.suppress(Exception):
        getattr(load(task), "prepare", lambda: None)()


def function_of(task: str) -> Callable[[object, Tell], Any]:
    """Returns the function of a task; of a class, an instance."""
    module, _, name = task.partition(":")
    attribute: Any = getattr(importlib.import_module(module), name)
    function: Callable[[object, Tell], Any] = attribute() if isinstance(attribute, type) else attribute
    return function


def _outcome(answer: Callable[[bytes], Any], request: bytes) -> Ending:
    try:
        return Ending(CallResult.RESULT, answer(request))
    except TrtconvError as error:
        return _failure(error)
    except MemoryError:
        return Ending(CallResult.MEMORY)
    except Exception as error:
        failure = errors.unusable_path(error) or errors.starved(error)
        if failure is not None:
            return _failure(failure)
        import traceback

        return Ending(CallResult.BUG, message=traceback.format_exc())


def _failure(error: TrtconvError) -> Ending:
    # A subclass of its own is told as what it is one of.
    kind = next(base.__name__ for base in type(error).__mro__ if hasattr(errors, base.__name__))
    return Ending(CallResult.ERROR, None, error.message, error.hint, kind)


def end_group(leader: int, name: str) -> None:
    """Ends a process and those that it started; does nothing where there are no groups of processes (Windows)."""
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(leader, getattr(signal, name))
