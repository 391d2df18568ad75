"""The whole network beside the whole model: the model is run in a process of its own, the network meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from trtconv.core.background import Background
from trtconv.core.process import Process
from trtconv.core.scratch import Scratch
from trtconv.runtimes.proof import SERVE, roles
from trtconv.runtimes.proof.ahead import Ahead
from trtconv.runtimes.proof.meaning import Meaning
from trtconv.runtimes.proof.reference import Expected, Wanted, expect
from trtconv.runtimes.proof.result import ProofResult
from trtconv.runtimes.proof.whole import Size, all_sizes, choose
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork


class WholeRun:
    """The whole network beside the whole model: the model is run in a process of its own, the network meanwhile.

    Args:
        network: The network.
        meaning: What it should compute.
        sizes: At which sizes, the most telling first.
        limit: How many seconds the model may take for all of them.
        seed: Of the inputs.
    """

    def __init__(self, network: ReadNetwork, meaning: Meaning, sizes: Sequence[Size], limit: float, seed: int) -> None:
        self._network = network
        self._meaning = meaning
        self._sizes = sizes
        self._goal = goal_of(meaning, sizes, seed)
        self._folder = Scratch("proof")
        self._runs: list[Expected] = []
        self._loaded: list[float] = []
        self._runner = Process(SERVE, meaning.megabytes)
        self._lock = threading.Lock()
        self._idle, self._wanted_on = False, True
        self._thread = Background(lambda: self._expect(limit))
        self._ahead = Ahead(network, meaning.inputs, self._goal, time.monotonic() + limit, meaning.megabytes)

    def _expect(self, limit: float) -> None:
        try:
            expect(self._runner, self._goal, self._folder.path, limit, self._runs, self._loaded)
        finally:
            with self._lock:
                self._idle = True
                if not self._wanted_on:
                    self._runner.close()

    def valid_sizes(self, besides: bool, goes_on: Callable[[], bool] = lambda: True) -> list[Size]:
        """Waits for the model as long as that is wanted, and returns the sizes that it takes, those that count or those
        besides."""
        self._thread.wait_while(goes_on)
        sizes = (self._sizes[run.number] for run in self._runs if not run.why)
        return [size for size in sizes if size.besides == besides]

    def free_runner(self) -> Process | None:
        """Returns the process where it is soon idle, as it is with a small model: another takes longer to start. Where
        it is not, it ends with its work."""
        self._thread.wait(_FREE_SECONDS)
        with self._lock:
            self._wanted_on = self._idle
            return self._runner if self._idle else None

    def run_ahead(self) -> None:
        """Runs the network on what else the model was run on, where that is known already."""
        if self._thread.is_done:
            for expected in choose(self._sizes, self._runs)[:_MOST_AHEAD]:
                if not expected.why:
                    self._ahead.also(expected.feeds)

    def close(self) -> None:
        """Ends the process, and removes what it wrote."""
        self._runner.close()
        self._ahead.stop()
        self._thread.wait()
        self._folder.remove()

    def finish(self, seconds: float) -> ProofResult:
        """Returns what was shown; `seconds` is how long the model may take from now, and then the network."""
        start = time.monotonic()
        self._thread.wait_while(lambda: time.monotonic() < self._until(start, seconds))
        if self._thread.is_done:
            self._thread.result()
        deadline = time.monotonic() + seconds
        runs = list(self._runs)
        if not runs:
            return ProofResult(why=f"the model itself took longer than {time.monotonic() - start:.0f} s")
        return all_sizes(self._network, self._meaning, self._sizes, runs, self._goal, deadline, self._ahead)

    def _until(self, start: float, seconds: float) -> float:
        """Returns when to stop waiting: the time counts from when the model is loaded, which takes as long as it does
        on a busy machine."""
        return max([start, *self._loaded]) + seconds if self._loaded else start + seconds + _START_SECONDS


def goal_of(meaning: Meaning, sizes: Sequence[Size], seed: int) -> Wanted:
    """Returns what the model is run for.

    Args:
        meaning: The model.
        sizes: Where it is run.
        seed: Of the inputs.
    """
    return Wanted(
        meaning.path,
        meaning.original,
        tuple(size.shapes for size in sizes),
        seed,
        tuple(size.values for size in sizes),
        spans=roles.integers_of(meaning.parsed, [size.shapes for size in sizes]),
        groups=tuple(size.group or str(number) for number, size in enumerate(sizes)),
        magnitudes=tuple(size.magnitude for size in sizes),
    )


_MOST_AHEAD = 2
"""What the network returns at these sizes is held until it is compared."""
_FREE_SECONDS = 5.0
_START_SECONDS = 30.0
