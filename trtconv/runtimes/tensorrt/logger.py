"""TensorRT's log, captured.

TensorRT keeps one logger a process: the first that it is given; it ignores the others. So each runtime has one, and
`Log.session` gives every parse and build a record of its own.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trtconv.runtimes.tensorrt.messages import Record, distinct

_followers: list[Callable[[str, str], None]] = []


def follow_log(follower: Callable[[str, str], None]) -> None:
    """Has a function called with severity and text of everything that TensorRT logs from here on, but VERBOSE.

    Messages are kept with the call into TensorRT that they belong to, in memory, which is lost where TensorRT ends the
    process. The follower is called from any thread, must return at once and must not raise.
    """
    _followers.append(follower)


def follow(log: Iterable[tuple[str, str]]) -> None:
    """Tells those who follow the log of what TensorRT logged in another process: severities and texts."""
    for severity, text in log:
        for follower in _followers:
            follower(severity, text)


class Session:
    """What was logged, and what was raised, during one call into TensorRT."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Keeps the first exception that a callback raised: it must not pass through C++."""
        self.failure = self.failure or error

    def raise_failure(self) -> None:
        """Raises what a callback raised, such as KeyboardInterrupt, in the thread that called TensorRT."""
        if self.failure is not None:
            raise self.failure

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages of severity WARNING and above, in order."""
        return tuple(r.text for r in self.records if r.is_error or r.severity == "WARNING")


class Log:
    """The one logger of a runtime."""

    def __init__(self, trt: Any) -> None:
        self._lock = threading.RLock()
        self._session = Session()
        self._trt = trt
        self.logger = _make_logger(trt, self)

    @functools.cached_property
    def quiet(self) -> Any:
        """For the parser: its VERBOSE messages, ten a node, take longer to hand to Python than parsing takes.

        What the parser refuses it lists as errors too.
        """
        return self._trt.Logger(self._trt.Logger.INTERNAL_ERROR)

    def add(self, severity: str, text: str) -> None:
        """Takes a message; called from any thread."""
        session = self._session
        try:
            session.records.append(Record(severity, text))
            for follower in _followers:
                follower(severity, text)
        except BaseException as error:  # Ctrl-C may arrive here: the main thread runs Python only in callbacks.
            session.fail(error)

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """Starts a new record. One call into TensorRT at a time: messages do not say which call they belong to.

        Raises:
            BaseException: What a callback raised meanwhile, KeyboardInterrupt above all.
        """
        with self._lock:
            outer, session = self._session, Session()
            self._session = session
            try:
                with _interrupts_kept(session):
                    yield session
            finally:
                self._session = outer
        session.raise_failure()


@contextlib.contextmanager
def _interrupts_kept(session: Session) -> Iterator[None]:
    """Turns Ctrl-C into a failure of the session.

    While TensorRT works, Python runs only inside its callbacks; a KeyboardInterrupt raised on the way into one is
    caught by TensorRT, printed and forgotten. A handler that somebody else has set is left alone.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: session.fail(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _make_logger(trt: Any, log: Log) -> Any:
    """Makes the ILogger; a class made here, since its base exists only where TensorRT is installed."""

    names: dict[int, str] = {}

    class CapturingLogger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            # pybind11 wants its own initializer called by name.
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            # To ask each message for the name of its severity takes longer than all the rest.
            name = names.get(severity.value)
            if name is None:
                name = names[severity.value] = severity.name
            if name != "VERBOSE":
                log.add(name, msg)

    return CapturingLogger()


def logged_errors(session: Any) -> str:
    """Returns the errors of a log session, each once."""
    return "\n".join(distinct(r.text for r in session.records if r.is_error)) or "it does not say why"
