"""The parent of an isolated command: it waits, passes signals on, and cleans up after a child that was killed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from trtconv.cli.process import signals, status
from trtconv.cli.process.child import Forked
from trtconv.core.errors import BuildFailed, cut_short
from trtconv.core.rations import Ration
from trtconv.core.text import BAR, clean, guarded

LOG_LINES = 500
GRACE_SECONDS = 0.7
"""How long a child that was asked to end may take over it; one in a native call hears of nothing."""
_WAIT_SECONDS = 0.03
"""In this time native code may take some fifty megabytes; the limit of memory must not come late."""
_CHUNK = 1 << 16
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


class ProcessEnded(BuildFailed):
    """TensorRT, or somebody else, ended the process that worked."""


def _text(message: str) -> str:
    """Returns what `status.announce` was given; what else comes through the pipe is taken as it is."""
    try:
        return str(json.loads(message))
    except ValueError:
        return message


@dataclasses.dataclass
class Child:
    """The process that works, as its parent knows it.

    Args:
        forked: Its number, and the pipes from it.
        stage: Where it was last.
        phase: Where in that.
        outputs: Files that it said it would write.
        log: The end of what TensorRT and other native code said.
        answered: Whether it has begun to write its result.
        exit_code: Its exit status, once it has nothing left to do but to end.
    """

    forked: Forked
    stage: str = ""
    phase: str = ""
    outputs: list[Path] = dataclasses.field(default_factory=list)
    log: deque[str] = dataclasses.field(default_factory=lambda: deque(maxlen=LOG_LINES))
    answered: bool = False
    exit_code: int | None = None

    def hear(self, line: str) -> None:
        """Takes one line of what the child tells."""
        kind, _, message = line.partition(" ")
        text = _text(message)
        if kind == status.STAGE:
            self.stage, self.phase = text, ""
        elif kind == status.PHASE:
            self.phase = text
        elif kind == status.OUTPUT:
            self.outputs.append(Path(text))
        elif kind == status.RESULT:
            self.answered = True
        elif kind == status.DONE:
            self.exit_code = int(text)
        else:
            # What TensorRT logged, or the trace that faulthandler writes of a crash.
            self.log.extend(text.split("\n") if kind == status.LOG else [line])

    @property
    def place(self) -> str:
        """Where it was, in words."""
        stage = self.stage or "start"
        return f"{stage} ({self.phase})" if self.phase else stage


def watch(forked: Forked, mask: set[int], arguments: list[str], params: dict[str, Any]) -> int:
    """Waits for the child's end.

    Args:
        forked: The process.
        mask: The signals that are blocked once this function handles the others.
        arguments: Of the command line.
        params: The same as click read them.

    Returns:
        Its exit status.

    Raises:
        ProcessEnded: Something killed it.
        InputError: A file was cut short under it, or ends ONNX's own checker too.
        KeyboardInterrupt: SIGINT came, and the child could not end by itself.
        Terminated: The same for SIGTERM.
    """
    child, kills = Child(forked), _out_of_memory_kills()
    models = params.get("models") or [params.get("model") or params.get("file") or ""]
    with _signals_passed_on(child) as interrupts:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        ended = _listen(child, interrupts, Ration(child.forked.pid, models))
    if interrupts:
        # What the child had started may still be writing.
        _clean_up(child)
    if child.exit_code is not None:
        return child.exit_code
    if os.WIFEXITED(ended):
        return os.WEXITSTATUS(ended)
    _clean_up(child)
    if child.answered:
        return BuildFailed.exit_code
    if interrupts:
        signals.raise_as_received(interrupts[0])
    from trtconv.cli.process import reproduction
    from trtconv.cli.process.blame import blamed

    number = os.WTERMSIG(ended)
    if number == signal.SIGBUS:
        raise cut_short(child.place)
    if number in _CRASHES and (failure := blamed(arguments, crashed=True)) is not None:
        raise failure
    starved = number == signal.SIGKILL and _out_of_memory_kills() > kills
    what = _cause(number, starved)
    where = reproduction.save(f"{what} during {child.place}", list(child.log), arguments, params)
    raise ProcessEnded(f"the process that works with TensorRT was ended during {child.place}: {what}", where)


def _cause(number: int, starved: bool) -> str:
    if starved:
        return "the machine ran out of memory (SIGKILL)"
    if number == signal.SIGKILL:
        return "killed (SIGKILL); by hand, or for want of memory"
    try:
        name = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{signal.strsignal(number) or 'signal'} ({name.name})".lower().replace(name.name.lower(), name.name)


@contextlib.contextmanager
def _signals_passed_on(child: Child) -> Iterator[list[int]]:
    """Hands SIGINT and SIGTERM to the child, and stops and continues with it; yields those that came.

    Once one came, or the child has told its result, further ones find nothing left to end.
    """
    interrupts: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.forked.pid, number)

    def stop(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.forked.pid, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(child.forked.pid, signal.SIGCONT)

    handlers = {signal.SIGTERM: forward, signal.SIGTSTP: stop}
    # Started in the background by a shell that has SIGINT ignored, it stays so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        handlers[signal.SIGINT] = forward
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield interrupts
    finally:
        if interrupts or child.answered:
            signals.ignore()
            before.pop(signal.SIGINT, None)
            before.pop(signal.SIGTERM)
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(child: Child, interrupts: list[int], ration: Ration) -> int:
    """Takes what the child says until it ends. Returns its status as `os.waitpid` gives it; 0 where it
    has told that itself."""
    status_lines = _Lines(child.forked.status, child.hear)
    output = _Lines(child.forked.stderr, child.log.append, echo=True)
    readers = {reader.pipe: reader for reader in (status_lines, output)}
    deadline = None
    ended: int | None = None
    # To give back all the memory that TensorRT took is nothing to wait for.
    while ended is None and child.exit_code is None:
        for pipe in select.select(list(readers), [], [], _WAIT_SECONDS)[0]:
            if not readers[pipe].read():
                del readers[pipe]
        pid, code = os.waitpid(child.forked.pid, os.WNOHANG if readers else 0)
        ended = code if pid else None
        breach = ration.breach(child.stage) if ended is None else None
        if breach is not None:
            _clean_up(child)
            os.waitpid(child.forked.pid, 0)
            raise breach
        if interrupts and ended is None:
            deadline = deadline or time.monotonic() + GRACE_SECONDS
            if time.monotonic() > deadline:
                os.kill(child.forked.pid, signal.SIGKILL)
    # What was written last may still be in the pipes; processes of the child's may hold them open.
    for pipe, reader in readers.items():
        while select.select([pipe], [], [], 0)[0] and reader.read():
            pass
    for reader in (status_lines, output):
        reader.close()
    return ended or 0


class _Lines:
    """Reads a pipe by lines.

    Args:
        pipe: The descriptor.
        take: Is given each line.
        echo: Whether what comes is shown on stderr too.
    """

    def __init__(self, pipe: int, take: Callable[[str], None], *, echo: bool = False) -> None:
        self.pipe = pipe
        self._take = take
        self._echo = echo
        self._rest = b""

    def read(self) -> bool:
        """Takes what is there; False at the end."""
        data = os.read(self.pipe, _CHUNK)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(line)
        return bool(data)

    def close(self) -> None:
        """Takes the last line and closes the pipe."""
        if self._rest:
            self._hear(self._rest)
        os.close(self.pipe)

    def _hear(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._take(text)
        if self._echo:
            with contextlib.suppress(OSError):
                os.write(2, f"{BAR}{guarded(clean(text))}\n".encode(errors="backslashreplace"))


def _clean_up(child: Child) -> None:
    """Ends what a child that was killed had started, and removes what it had half written."""
    from trtconv.core.files import remove_parts
    from trtconv.core.scratch import remove_scratch

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.forked.pid, signal.SIGKILL)
    remove_parts(child.forked.pid, child.outputs)
    remove_scratch(child.forked.pid)


def _out_of_memory_kills() -> int:
    """Returns how often the system killed a process of this container or machine for want of memory."""
    for path in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(path).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
