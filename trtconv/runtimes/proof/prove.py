"""Proves that a network which was read back computes what its model means: piece by piece, and as a whole."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import threading
import time
from collections.abc import Sequence

from trtconv.core.documents.proof import Lack, Unshown
from trtconv.core.process import Process
from trtconv.core.scratch import Scratch
from trtconv.graph.extract import shapes_with
from trtconv.runtimes.proof import SERVE, cost, describe
from trtconv.runtimes.proof.ahead import Ahead
from trtconv.runtimes.proof.pieces import Pieces, PiecesResult
from trtconv.runtimes.proof.reference import Expected, Wanted, expect
from trtconv.runtimes.proof.result import ProofResult
from trtconv.runtimes.proof.whole import Meaning, Size, all_sizes, only
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork


class WholeRun:
    """The whole network beside the whole model: the model is run in a process of its own, the network meanwhile.

    Args:
        network: The network.
        meaning: What it should compute.
        sizes: At which sizes, the most telling first.
        limit: How many seconds the model may take for all of them.
        seed: Of the inputs.
        one_is_enough: The sizes are guesses, of which the first that the model takes is compared.
    """

    def __init__(
        self,
        network: ReadNetwork,
        meaning: Meaning,
        sizes: Sequence[Size],
        limit: float,
        seed: int,
        one_is_enough: bool,
    ) -> None:
        self._network = network
        self._meaning = meaning
        self._sizes = sizes
        self._one_is_enough = one_is_enough
        shapes, values = tuple(each.shapes for each in sizes), tuple(each.values for each in sizes)
        self._wanted = Wanted(
            meaning.path,
            meaning.original,
            shapes,
            seed,
            values,
            first=one_is_enough,
            below=describe.integers_of(meaning.parsed),
        )
        self._folder = Scratch("proof")
        self._found: list[Expected] = []
        self._bug: Exception | None = None
        self._loaded: list[float] = []
        self._runner = Process(SERVE, meaning.megabytes)
        # A daemon: whoever gives up does not wait for it, and the process ends with this one.
        self._thread = threading.Thread(target=self._expect, args=(limit,), daemon=True)
        self._thread.start()
        self._ahead = Ahead(network, meaning.inputs, self._wanted, time.monotonic() + limit, meaning.megabytes)

    def _expect(self, limit: float) -> None:
        try:
            expect(self._runner, self._wanted, self._folder.path, limit, self._found, self._loaded)
        except Exception as error:  # Nobody hears a thread: `finish` tells.
            self._bug = error

    def size(self) -> Size:
        """Waits for the model, and returns the first size that it takes."""
        self._thread.join()
        return self._sizes[next((i for i, each in enumerate(self._found) if not each.why), 0)]

    def free_runner(self) -> Process | None:
        """Returns the process where it is soon idle, as it is with a small model: another takes longer to start."""
        self._thread.join(_FREE_SECONDS)
        return None if self._thread.is_alive() else self._runner

    def close(self) -> None:
        """Ends the process, and removes what it wrote."""
        self._runner.close()
        self._ahead.stop()
        self._thread.join()
        self._folder.remove()

    def finish(self, seconds: float) -> ProofResult:
        """Returns what was shown; `seconds` is how long the model may take from now, and then the network."""
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
        return all_sizes(self._network, self._meaning, sizes, found, wanted, deadline, self._ahead)

    def _until(self, asked: float, seconds: float) -> float:
        """Returns when to stop waiting: the time counts from when the model is loaded, which takes as long as it does
        on a busy machine."""
        return max([asked, *self._loaded]) + seconds if self._loaded else asked + seconds + _START_SECONDS


class Prover:
    """Proves a network while others are at work: piece by piece, and as a whole where that is not too much.

    Args:
        network: What TensorRT's parser made of the model.
        meaning: What it should compute.
        sizes: At which sizes, the most telling first.
        limit: How many seconds the model may take for all of them.
        thorough: Run the whole however much it is.
        seed: Of the inputs.
        one_is_enough: The sizes are guesses, of which the first that the model takes is compared.
    """

    def __init__(
        self,
        network: ReadNetwork,
        meaning: Meaning,
        sizes: Sequence[Size],
        limit: float,
        *,
        thorough: bool = False,
        seed: int = 0,
        one_is_enough: bool = False,
    ) -> None:
        self._network = network
        self._meaning = meaning
        self._sizes = sizes
        self._bug: Exception | None = None
        self._start = functools.partial(WholeRun, network, meaning, sizes, limit, seed, one_is_enough)
        products = cost.products(network, shapes_with(meaning.parsed, sizes[0].shapes)) if sizes else 0.0
        self._large = not thorough and products > MOST_PRODUCTS
        self._whole = None if self._large else self._start()
        self._pieces: Pieces | None = None
        self._closed = False
        self._shown: PiecesResult | None = None
        guessed = one_is_enough and len(sizes) > 1
        # The limits on what a model may ask for are this thread's.
        context = contextvars.copy_context()
        work = functools.partial(context.run, self._prove_pieces, time.monotonic() + limit, guessed)
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def _prove_pieces(self, deadline: float, guessed: bool) -> None:
        meaning = self._meaning
        try:
            guess = guessed and self._whole is not None and not meaning.typical
            size = self._whole.size() if guess and self._whole is not None else self._sizes[0]
            self._pieces = Pieces(
                self._network,
                meaning.parsed,
                meaning.edited,
                meaning.typical or size.shapes,
                meaning.batch,
                deadline,
                meaning.megabytes,
                None if self._whole is None else self._whole.free_runner(),
            )
            # Closed while they were prepared: `close` had nothing to stop.
            if self._closed:
                self._pieces.stop()
            self._shown = self._pieces.run()
        except Exception as error:  # Nobody hears a thread: `finish` tells.
            self._bug = error

    def close(self) -> None:
        """Ends the processes, and removes what they wrote."""
        self._closed = True
        if self._pieces is not None:
            self._pieces.stop()
        if self._whole is not None:
            self._whole.close()
        self._thread.join()

    def finish(self, seconds: float, limit: float) -> ProofResult:
        """Returns what was proven.

        Args:
            seconds: How long the whole model may take from now, and how long the whole network may.
            limit: How long the pieces may take from now.
        """
        until = time.monotonic() + limit
        whole = None if self._whole is None else self._whole.finish(seconds)
        pieces = self._piecewise(until)
        if whole is None and pieces.missing and pieces.divergence is None and time.monotonic() < until:
            self._whole = self._start()
            whole = self._whole.finish(until - time.monotonic())
        return _together(whole or ProofResult("network", why="the whole is large, and its pieces are enough"), pieces)

    def _piecewise(self, until: float) -> PiecesResult:
        while self._thread.is_alive() and time.monotonic() < until:
            # In short waits, so that Ctrl-C is heard.
            self._thread.join(_POLL_SECONDS)
        if self._thread.is_alive() and self._pieces is not None:
            self._pieces.stop()
        self._thread.join(_GRACE_SECONDS)
        if self._bug is not None:
            raise self._bug
        late = Unshown(Lack.TIME, "all pieces", "there was no time left for them")
        return self._shown or PiecesResult(missing=(late,))


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


MOST_PRODUCTS = 2e10
"""What a run of the whole may multiply in a quick proof: about a second on two cores, for the model and the network."""
_POLL_SECONDS = 0.1
_FREE_SECONDS = 0.5
_GRACE_SECONDS = 5.0
_START_SECONDS = 30.0
