"""Proves that a network which was read back computes what its model means: piece by piece, and as a whole."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Sequence

from trtconv.core.documents.proof import Lack, Unshown
from trtconv.core.process import Process
from trtconv.core.scratch import Scratch
from trtconv.runtimes.proof import SERVE
from trtconv.runtimes.proof.ahead import Ahead
from trtconv.runtimes.proof.pieces import Pieces, PiecesResult
from trtconv.runtimes.proof.reference import Expected, Wanted, expect
from trtconv.runtimes.proof.result import ProofResult
from trtconv.runtimes.proof.whole import Meaning, Size, all_sizes, only
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork


class Prover:
    """Proves a network while others are at work: the model is run in a process of its own, piece by piece in another,
    and the network beside both.

    Args:
        read: Returns what TensorRT's parser made of the model; called at once, when that process has been started.
        meaning: What it should compute.
        sizes: At which sizes, the most telling first.
        limit: How many seconds the model may take for all of them.
        seed: Of the inputs.
        one_is_enough: The sizes are guesses, of which the first that the model takes is compared.
    """

    def __init__(
        self,
        read: Callable[[], ReadNetwork],
        meaning: Meaning,
        sizes: Sequence[Size],
        limit: float,
        *,
        seed: int = 0,
        one_is_enough: bool = False,
    ) -> None:
        self._meaning = meaning
        self._sizes = sizes
        self._one_is_enough = one_is_enough
        shapes, values = tuple(each.shapes for each in sizes), tuple(each.values for each in sizes)
        self._wanted = Wanted(meaning.path, meaning.original, shapes, seed, values, first=one_is_enough)
        self._folder = Scratch("proof")
        self._found: list[Expected] = []
        self._bug: Exception | None = None
        self._loaded: list[float] = []
        self._runner = Process(SERVE, meaning.megabytes)
        # A daemon: whoever gives up does not wait for it, and the process ends with this one.
        self._thread = threading.Thread(target=self._expect, args=(limit,), daemon=True)
        self._thread.start()
        self.network = read()
        """The network, as it was read."""
        self._ahead = Ahead(self.network, meaning.inputs, self._wanted, time.monotonic() + limit, meaning.megabytes)
        self._pieces: Pieces | None = None
        self._shown: PiecesResult | None = None
        self._beside = threading.Thread(target=self._prove_pieces, args=(time.monotonic() + limit,), daemon=True)
        self._beside.start()

    def _prove_pieces(self, deadline: float) -> None:
        if self._one_is_enough and len(self._sizes) > 1:
            # Which of the guessed sizes the model takes is known once it has run.
            self._thread.join()
        # A small model has run so soon that its process is free; another would take longer to start.
        self._thread.join(_FREE_SECONDS)
        runner = None if self._thread.is_alive() else self._runner
        meaning = self._meaning
        number = next((i for i, each in enumerate(self._found) if not each.why), 0)
        try:
            self._pieces = Pieces(
                self.network,
                meaning.parsed,
                meaning.edited,
                self._sizes[number].shapes,
                meaning.batch,
                deadline,
                meaning.megabytes,
                runner,
            )
            self._shown = self._pieces.run()
        except Exception as error:  # Nobody hears a thread: `finish` tells.
            self._bug = error

    def _expect(self, limit: float) -> None:
        try:
            expect(self._runner, self._wanted, self._folder.path, limit, self._found, self._loaded)
        except Exception as error:  # Nobody hears a thread: `finish` tells.
            self._bug = error

    def close(self) -> None:
        """Ends the process, and removes what it wrote."""
        if self._pieces is not None:
            self._pieces.deadline = -math.inf
        self._runner.close()
        self._ahead.stop()
        self._thread.join()
        self._beside.join()
        self._folder.remove()

    def finish(self, seconds: float, limit: float) -> ProofResult:
        """Returns what was proven.

        Args:
            seconds: How long the whole model may take from now, and how long the whole network may.
            limit: How long the pieces may take from now.
        """
        until = time.monotonic() + limit
        return _together(self._whole(seconds), self._piecewise(until))

    def _piecewise(self, until: float) -> PiecesResult:
        while self._beside.is_alive() and time.monotonic() < until:
            # In short waits, so that Ctrl-C is heard.
            self._beside.join(_POLL_SECONDS)
        if self._pieces is not None:
            self._pieces.deadline = -math.inf
        self._beside.join(_GRACE_SECONDS)
        if self._bug is not None:
            raise self._bug
        late = Unshown(Lack.TIME, "all pieces", "there was no time left for them")
        return self._shown or PiecesResult(missing=(late,))

    def _whole(self, seconds: float) -> ProofResult:
        asked = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < self._until(asked, seconds):
            # In short waits, so that Ctrl-C is heard.
            self._thread.join(_POLL_SECONDS)
        if self._bug is not None:
            raise self._bug
        deadline = time.monotonic() + seconds
        found, sizes, wanted = list(self._found), self._sizes, self._wanted
        if not found:
            return ProofResult("network", why=f"the model itself took longer than {time.monotonic() - asked:.0f} s")
        if self._one_is_enough:
            number = next((i for i, each in enumerate(found) if not each.why), 0)
            sizes, found, wanted = sizes[number : number + 1], found[number : number + 1], only(wanted, number)
        return all_sizes(self.network, self._meaning, sizes, found, wanted, deadline, self._ahead)

    def _until(self, asked: float, seconds: float) -> float:
        """Returns when to stop waiting: the time counts from when the model is loaded, which takes as long as it does
        on a busy machine."""
        return max([asked, *self._loaded]) + seconds if self._loaded else asked + seconds + _START_SECONDS


def _together(whole: ProofResult, pieces: PiecesResult) -> ProofResult:
    """Returns what the whole and the pieces show together.

    Where every piece is proven, what the whole could not show is shown: that it could not is of no interest.
    """
    proof = dataclasses.replace(whole, pieces=(pieces.proven, pieces.of))
    if proof.agrees is False:
        return dataclasses.replace(proof, missing=pieces.missing)
    if pieces.divergence is not None:
        return dataclasses.replace(proof, agrees=False, divergence=pieces.divergence, missing=pieces.missing)
    complete = bool(pieces.of) and not pieces.missing
    if complete:
        return dataclasses.replace(proof, agrees=True)
    unshown = () if whole.agrees else (Unshown(Lack.SIZE, "the whole network", whole.why),)
    return dataclasses.replace(proof, missing=(*pieces.missing, *unshown))


_POLL_SECONDS = 0.1
_FREE_SECONDS = 0.5
"""How long pieces wait for the process that runs the whole model."""
_GRACE_SECONDS = 5.0
_START_SECONDS = 30.0
