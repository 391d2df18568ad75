"""Requests and slots in a time of their own: what is served when, beside a simulation of queues."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.engine.serving.measuring import latency, offered
from trtconv.engine.serving.scheduling import Arrival, Steady, Trace, Workload, play

TICK = 5e-5


class Clock:
    """A clock that goes on a little whenever it is read, and that sleep sets forward."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept = 0.0

    def __call__(self) -> float:
        self.time += TICK
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds
        self.slept += seconds


class FakeSlot:
    """Takes as long as its sizes say."""

    def __init__(self, clock: Clock, takes: Sequence[float]) -> None:
        self._clock, self._takes = clock, takes
        self.until: float | None = None

    def start(self, size: int) -> None:
        assert self.until is None, "it runs one request at a time"
        self.until = self._clock.time + self._takes[size]

    def has_ended(self) -> bool:
        assert self.until is not None
        if self._clock() < self.until:
            return False
        self.until = None
        return True


def slots(clock: Clock, count: int, *takes: float) -> list[FakeSlot]:
    return [FakeSlot(clock, takes) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_steady_requests_keep_every_slot_busy(count: int) -> None:
    clock = Clock()
    load = Workload(slots(clock, count, 0.01), Steady(1.0))
    play([load], clock, clock.sleep)
    assert len(load.served.ended) == pytest.approx(100 * count, rel=0.08)
    assert 1.0 <= max(load.served.ended) < 1.02
    assert np.asarray(load.served.ended) - load.served.arrived == pytest.approx(0.01, rel=0.05)
    assert list(load.served.arrived) == list(load.served.started)
    assert clock.slept == 0


def test_one_request_is_served_however_short_it_is() -> None:
    clock = Clock()
    load = Workload(slots(clock, 3, 0.5), Steady(0))
    play([load], clock, clock.sleep)
    assert len(load.served.ended) == 1


def test_the_background_goes_on_as_long_as_the_others_and_ends_with_them() -> None:
    clock = Clock()
    trace = Workload(slots(clock, 1, 0.01), Trace([Arrival(0.5, 0), Arrival(0.0, 0)]))
    beside = Workload(slots(clock, 2, 0.02), Steady(float("inf")), background=True)
    play([trace, beside], clock, clock.sleep)
    assert list(trace.served.arrived) == [0.0, 0.5]
    assert len(beside.served.ended) == pytest.approx(2 * 0.51 / 0.02, abs=3)
    assert 0.5 < max(beside.served.ended) < 0.54


def test_long_waits_are_slept_through_and_not_overslept() -> None:
    clock = Clock()
    load = Workload(slots(clock, 1, 0.01), Trace([Arrival(2.0, 0)]))
    play([load], clock, clock.sleep)
    assert clock.slept == pytest.approx(2.0, abs=0.01)
    assert load.served.started[0] == pytest.approx(2.0, abs=1e-3)


def simulated(arrivals: Sequence[Arrival], count: int, takes: Sequence[float]) -> list[float]:
    """Returns when each request ends, in the order of arrival: first come first served by several servers."""
    free = [0.0] * count
    ends = []
    for arrival in sorted(arrivals):
        end = max(arrival.at, heapq.heappop(free)) + takes[arrival.size]
        heapq.heappush(free, end)
        ends.append(end)
    return ends


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_requests_wait_as_in_a_queue(came: list[tuple[int, int]], count: int) -> None:
    arrivals = [Arrival(at / 1000, size) for at, size in came]
    takes = (0.003, 0.0101, 0.0307)
    clock = Clock()
    load = Workload(slots(clock, count, *takes), Trace(arrivals))
    play([load], clock, clock.sleep)
    served = load.served
    assert len(served.ended) == len(arrivals)
    assert sorted(served.arrived) == sorted(each.at for each in arrivals)
    assert sorted(served.ended) == pytest.approx(sorted(simulated(arrivals, count, takes)), abs=5e-3)
    for size, begin, end in zip(served.sizes, served.started, served.ended, strict=True):
        assert end - begin == pytest.approx(takes[size], abs=4e-3)
    assert all(begin >= at for at, begin in zip(served.arrived, served.started, strict=True))


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=300))
def test_percentiles_are_those_of_the_nearest_rank(times: list[float]) -> None:
    found = latency(np.array(times))
    for share, us in ((0.5, found.p50_us), (0.9, found.p90_us), (0.95, found.p95_us), (0.99, found.p99_us)):
        exact = np.percentile(times, 100 * share, method="inverted_cdf")
        assert us == pytest.approx(float(exact) * 1e6, abs=0.01)
    assert found.max_us == pytest.approx(max(times) * 1e6, abs=0.01)
    assert found.mean_us == pytest.approx(float(np.mean(times)) * 1e6, abs=0.01)


def test_how_many_came_a_second() -> None:
    assert offered([Arrival(2.0, 0), Arrival(1.0, 0), Arrival(0.0, 0)]) == 1.5
    assert offered([Arrival(0.0, 0)]) is None
