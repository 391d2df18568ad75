"""Requests that come, wait for a free slot, run and end: one thread starts and watches them all.

Nothing here knows of engines or GPUs. Times are seconds from the start.
"""

from __future__ import annotations

import array
import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

_REST_S, _SPARE_S = 1e-3, 5e-4
"""A wait that is longer than the first is slept through, but for the second, in which the system may oversleep."""


class Arrival(NamedTuple):
    """A request.

    Args:
        at: When it came.
        size: Index of its size.
    """

    at: float
    size: int


class RequestSlot(Protocol):
    """What runs one request at a time."""

    def start(self, size: int) -> None:
        """Starts to run a request of a size, and returns."""

    def has_ended(self) -> bool:
        """Whether the request that was started has ended."""


class Requests(Protocol):
    """Where requests come from."""

    def take(self, now: float) -> Arrival | None:
        """Returns the next request that has come by now; None where there is none yet, or none any more."""

    def next_at(self, now: float) -> float | None:
        """Returns when the next one comes, or came; None where none comes any more."""

    def stop(self) -> None:
        """Lets no more come."""


class Steady:
    """Requests of one size, of which the next is always there.

    Args:
        seconds: How long; the first one comes whatever it says.
        size: Index of their size.
    """

    def __init__(self, seconds: float, size: int = 0) -> None:
        self._until, self._size, self._has_begun = seconds, size, False

    def take(self, now: float) -> Arrival | None:
        """See `Requests`."""
        if self.next_at(now) is None:
            return None
        self._has_begun = True
        return Arrival(now, self._size)

    def next_at(self, now: float) -> float | None:
        """See `Requests`."""
        return now if now < self._until or not self._has_begun else None

    def stop(self) -> None:
        """See `Requests`."""
        self._until, self._has_begun = 0.0, True


class Trace:
    """Requests that come when a recording says, whether the one before has ended or not.

    Args:
        arrivals: What came; sorted here.
    """

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._arrivals = sorted(arrivals)
        self._next = 0

    def take(self, now: float) -> Arrival | None:
        """See `Requests`."""
        at = self.next_at(now)
        if at is None or at > now:
            return None
        self._next += 1
        return self._arrivals[self._next - 1]

    def next_at(self, now: float) -> float | None:
        """See `Requests`."""
        return self._arrivals[self._next].at if self._next < len(self._arrivals) else None

    def stop(self) -> None:
        """See `Requests`."""
        self._next = len(self._arrivals)


class ServedRequests:
    """The requests that have ended, in columns: there may be millions."""

    def __init__(self) -> None:
        self.sizes = array.array("q")
        self.arrived, self.started, self.ended = (array.array("d") for _ in range(3))

    def add(self, arrival: Arrival, started: float, ended: float) -> None:
        """Takes one that has ended."""
        self.sizes.append(arrival.size)
        self.arrived.append(arrival.at)
        self.started.append(started)
        self.ended.append(ended)


class Workload:
    """Requests, and the slots that serve them, first come first served.

    Args:
        slots: What runs them.
        requests: Where they come from.
        background: Whether it goes on only as long as others have requests.
    """

    def __init__(self, slots: Sequence[RequestSlot], requests: Requests, *, background: bool = False) -> None:
        self.requests, self.background = requests, background
        self.served = ServedRequests()
        self._idle = list(reversed(slots))
        self._running: list[tuple[RequestSlot, Arrival, float]] = []

    @property
    def busy(self) -> bool:
        """Whether a request runs."""
        return bool(self._running)

    def step(self, now: Callable[[], float]) -> None:
        """Takes the results of requests that have ended, and starts those that have come."""
        for entry in list(self._running):
            slot, arrival, started = entry
            if slot.has_ended():
                self.served.add(arrival, started, now())
                self._running.remove(entry)
                self._idle.append(slot)
        while self._idle:
            started = now()
            arrived = self.requests.take(started)
            if arrived is None:
                return
            slot = self._idle.pop()
            slot.start(arrived.size)
            self._running.append((slot, arrived, started))


def play(
    workloads: Sequence[Workload],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Serves all requests of several workloads at the same time.

    Args:
        workloads: At least one that is none of the background.
        clock: Tells the time in seconds.
        sleep: Waits for so many seconds.
    """
    begin = clock()

    def now() -> float:
        return clock() - begin

    leading = [workload for workload in workloads if not workload.background]
    with _no_garbage_collection():
        while any(workload.busy for workload in workloads) or any(_comes(workload, now()) for workload in leading):
            for workload in workloads:
                workload.step(now)
            if not any(_comes(workload, now()) or workload.busy for workload in leading):
                for workload in workloads:
                    workload.requests.stop()
            _rest(workloads, now(), sleep)


def _comes(workload: Workload, now: float) -> bool:
    return workload.requests.next_at(now) is not None


def _rest(workloads: Sequence[Workload], now: float, sleep: Callable[[float], None]) -> None:
    """Sleeps until shortly before the next request, where nothing runs that could end before."""
    coming = [at for workload in workloads if (at := workload.requests.next_at(now)) is not None]
    if coming and not any(workload.busy for workload in workloads) and min(coming) - now > _REST_S:
        sleep(min(coming) - now - _SPARE_S)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Its pauses, of milliseconds where there are many objects, would be in the latencies."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
