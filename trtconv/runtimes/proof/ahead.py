"""The network run before it is asked for, at the first size before the model has been: the builder, and the model,
take as long meanwhile."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.background import Background
from trtconv.core.dims import InputSpec
from trtconv.core.frozen import frozen
from trtconv.runtimes.proof.reference import Wanted, feeds_of
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.prepared import Prepared
from trtconv.runtimes.tensorrt.readback.records import OutOfTime, ReadLayer, ReadNetwork

_GRACE_SECONDS = 5.0
"""How long the layer that is at work at the deadline may take yet."""

Arrays = Mapping[str, NDArray[Any]]


@frozen
class NetworkRun:
    """A run of a network, its outputs, and the first of its assertions that does not hold."""

    run: Run
    outputs: Arrays
    broken: ReadLayer | None

    @classmethod
    def of(cls, run: Run) -> NetworkRun:
        """Runs a network; raises as `Run.outputs`."""
        broken = run.broken()
        return cls(run, run.outputs(), broken)


class Ahead:
    """Runs of the network, the first in a thread, with the inputs that the model is going to be given.

    Args:
        network: The network.
        inputs: The model's inputs.
        goal: What the model is run for.
        deadline: When the run is given up, on the clock of `time.monotonic`, unless `ran` says otherwise.
        megabytes: How much memory it may take.
    """

    def __init__(
        self, network: ReadNetwork, inputs: Sequence[InputSpec], goal: Wanted, deadline: float, megabytes: float
    ) -> None:
        self._prepared: Prepared | None = None
        self._deadline = deadline
        self._megabytes = megabytes
        self._network = network
        self._run: Run | None = None
        self._is_asked = False
        self._runs: list[tuple[Arrays, NetworkRun]] = []
        self._lock = threading.Lock()
        self._thread = Background(lambda: self._work(inputs, goal))

    def _work(self, inputs: Sequence[InputSpec], goal: Wanted) -> None:
        # Whatever goes wrong here goes wrong again, and is told, where the proof runs the network itself.
        with contextlib.suppress(Exception):
            feeds = feeds_of(goal, 0, inputs)
            self._prepared = Prepared(self._network)
            self._runs.append((feeds, self._run_now(feeds)))

    def _run_now(self, feeds: Arrays) -> NetworkRun:
        run = Run(self._network, feeds, deadline=self._deadline, megabytes=self._megabytes, prepared=self._prepared)
        self._run = run
        run.deadline = self._deadline
        return NetworkRun.of(run)

    def also(self, feeds: Arrays) -> None:
        """Runs the network on other inputs as well, in the thread that calls, unless somebody waits for results: who
        does runs it himself."""
        self._thread.wait()
        # As above.
        with self._lock, contextlib.suppress(Exception):
            if not self._is_asked and self._of(feeds) is None:
                self._runs.append((feeds, self._run_now(feeds)))

    def _of(self, feeds: Arrays) -> NetworkRun | None:
        for fed, ran in self._runs:
            if fed.keys() == feeds.keys() and all(np.array_equal(fed[name], feeds[name]) for name in feeds):
                return ran
        return None

    def stop(self) -> None:
        """Gives the run up; it ends with its next layer."""
        self._end_at(-math.inf)

    def _end_at(self, deadline: float) -> None:
        self._deadline = deadline
        if self._run is not None:
            self._run.deadline = deadline

    def ran(self, feeds: Arrays, deadline: float) -> NetworkRun:
        """Returns the run with some inputs: waits for it where it is under way, and runs it where it is not.

        Args:
            feeds: The inputs that the model was given.
            deadline: When the run is given up.

        Raises:
            OutOfTime: It is in a layer that does not end.
            NotProven: As `Run.outputs`.
        """
        self._is_asked = True
        self._end_at(deadline)
        last = deadline + _GRACE_SECONDS
        self._thread.wait_while(lambda: time.monotonic() <= last)
        if not self._thread.is_done or not self._lock.acquire(timeout=max(0.0, last - time.monotonic())):
            raise OutOfTime("one layer took longer than there was time for")
        try:
            return self._of(feeds) or self._run_now(feeds)
        finally:
            self._lock.release()
