"""Proves that a network which was read back computes what its model means: piece by piece, and as a whole."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trtconv.core import heap
from trtconv.core.background import Background
from trtconv.core.dims import elements_of
from trtconv.core.documents.proof import Lack, PieceCounts, Unshown
from trtconv.core.errors import InputError
from trtconv.core.process import Process, start_early
from trtconv.graph.extract import shapes_with
from trtconv.runtimes.proof import SERVE, cost, cut
from trtconv.runtimes.proof.ends import are_made, ends_that_differ
from trtconv.runtimes.proof.feeds import Shape
from trtconv.runtimes.proof.meaning import Meaning
from trtconv.runtimes.proof.pieces import Pieces
from trtconv.runtimes.proof.reference import feeds_of
from trtconv.runtimes.proof.result import Divergence, PiecesResult, ProofResult, unread
from trtconv.runtimes.proof.terms.defined import Definitions
from trtconv.runtimes.proof.weighing import Weighing
from trtconv.runtimes.proof.whole import Size, assertion
from trtconv.runtimes.proof.whole_run import WholeRun, goal_of
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import NotProven, OutOfTime, ReadNetwork


class Prover:
    """Proves a network while others are at work: piece by piece, and as a whole where that is not too much.

    Args:
        network: What TensorRT's parser made of the model.
        meaning: What it should compute.
        sizes: At which sizes, the most telling first.
        limit: How many seconds the model may take for all of them.
        thorough: Run the whole however much it is.
        seed: Of the inputs.
        changes: What passes changed; None: nothing.
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
        changes: Weighing | None = None,
    ) -> None:
        self._changes = changes
        self._network = network
        self._meaning = meaning
        self._sizes = sizes
        self._thorough = thorough
        self._start = functools.partial(WholeRun, network, meaning, limit=limit, seed=seed)
        self._whole: WholeRun | None = None
        self._large = True
        """Whether the whole is not run at the first size, unless a piece is not shown."""
        self._makes_ends = True
        self._decided = threading.Event()
        """Set once it is known whether the whole is run."""
        self._pieces: Pieces | None = None
        self._runner: Process | None = None
        self._closed = False
        self._result: PiecesResult | None = None
        self._thread = Background(functools.partial(self._prove_pieces, time.monotonic() + limit))

    def _prove_pieces(self, deadline: float) -> None:
        meaning = self._meaning
        try:
            seams = cut.Seams(self._network, meaning.parsed)
            pieces = list(self._in_time(seams.pieces(), deadline))
            left = pieces if self._thorough else self._undefined(seams, self._in_time(pieces, deadline))
            if left:
                # It loads ONNX Runtime while they are cut.
                start_early(SERVE)
            targets = {seams.numbers[piece.target] for piece in pieces}
            self._makes_ends = are_made(self._network, meaning.parsed, targets)
            if self._thorough or left or not self._makes_ends or not self._means_the_file():
                self._begin_whole()
            self._decided.set()
            size = self._sizes[0]
            if size.group and self._whole is not None and not meaning.typical:
                size = next(iter(self._whole.valid_sizes(besides=False)), size)
            # Cut and described while the model is run.
            self._pieces = Pieces(
                self._network,
                meaning.parsed,
                seams,
                self._in_time(left, deadline) if left else (),
                meaning.edited,
                meaning.typical or size.shapes,
                meaning.batch,
                deadline,
                meaning.megabytes,
                self._other_shapes,
            )
            free = None if self._whole is None else self._whole.free_runner()
            self._runner = free or Process(SERVE, meaning.megabytes)
            # Closed meanwhile: `close` had nothing to end.
            if self._closed:
                self._runner.close()
                self._pieces.stop()
            self._run_pieces(len(pieces) - len(left))
        except OutOfTime:
            # There is no result then.
            pass
        except InputError as error:
            # Weights lie in it.
            self._result = PiecesResult(missing=(unread("all pieces", error),))
        finally:
            self._decided.set()
            if self._network.keep_alive is None:
                # A builder in another process takes most at its end, and nothing more is done here till then.
                heap.trim()

    def _run_pieces(self, defined: int) -> None:
        """Runs what is left of the pieces, beside so many that are shown by their definition."""
        assert self._pieces is not None and self._runner is not None
        if self._changes is not None:
            self._changes.compare(self._runner)
        result = self._pieces.run(self._runner)
        self._result = dataclasses.replace(
            result, proven=result.proven + defined, of=result.of + defined, defined=defined
        )
        if self._whole is not None:
            self._whole.run_ahead()
        elif self._changes is not None and _is_complete(self._result) and self._makes_ends and not self._asserts():
            self._changes.give_back()

    def _in_time(self, pieces: Iterable[cut.Piece], deadline: float) -> Iterator[cut.Piece]:
        """Yields pieces as long as there is time, and somebody waits; what each of them holds may be all of a model.

        Raises:
            OutOfTime: There is none, or they hold too much.
        """
        places = 0
        for piece in pieces:
            places += len(piece.nodes) + len(piece.layers)
            if self._closed or time.monotonic() > deadline or places > _MAX_PLACES:
                raise OutOfTime(_LATE.reason)
            yield piece

    def _means_the_file(self) -> bool:
        """Whether the model that the parser was given is the file, or is shown by its definition to mean the same."""
        if self._meaning.edited is None:
            return True
        return self._meaning.same_numbers and self._changes is not None and self._changes.is_defined()

    def _undefined(self, seams: cut.Seams, pieces: Iterable[cut.Piece]) -> list[cut.Piece]:
        """Returns the pieces that are not shown by their definition."""
        definitions = Definitions(self._network, self._meaning.parsed, seams.numbers)
        return [piece for piece in pieces if not definitions.show(piece)]

    def _begin_whole(self) -> None:
        """Runs the whole where that is not too much."""
        sizes = self._sizes
        small = sizes if self._thorough else _affordable(self._network, self._meaning, sizes)
        self._large = len(sizes) > 0 and sizes[0] not in small
        self._whole = self._start(sizes=small) if small and not self._closed else None

    def close(self) -> None:
        """Ends the processes, and removes what they wrote."""
        self._closed = True
        self._decided.wait()
        if self._pieces is not None:
            self._pieces.stop()
        if self._runner is not None:
            self._runner.close()
        if self._whole is not None:
            self._whole.close()
        self._thread.wait()

    def finish(self, seconds: float, limit: float) -> ProofResult:
        """Returns what was proven.

        Args:
            seconds: How long the whole model may take from now, and how long the whole network may.
            limit: How long the pieces may take from now.
        """
        until = time.monotonic() + limit
        while not self._decided.wait(_POLL_SECONDS) and time.monotonic() < until:
            # In short waits, so that Ctrl-C is heard.
            pass
        # Asked once: what is decided later is not waited for.
        is_decided = self._decided.is_set()
        other = next(ends_that_differ(self._network, self._meaning.parsed), None) or self._broken()
        if other is not None:
            return ProofResult(agrees=False, divergence=other)
        if not is_decided:
            return _together(ProofResult(why=_LATE.reason), PiecesResult(missing=(_LATE,)))
        whole = None if self._whole is None else self._whole.finish(seconds)
        pieces = self._piecewise(until)
        agrees = whole is None or whole.agrees is not False
        is_left = pieces.divergence is None and (pieces.missing or not self._makes_ends)
        if self._large and agrees and is_left and time.monotonic() < until:
            if self._whole is not None:
                self._whole.close()
            self._whole = self._start(sizes=self._sizes)
            whole = self._whole.finish(until - time.monotonic())
        return _together(whole or ProofResult(why="the whole was not run"), pieces, self._makes_ends)

    def _broken(self) -> Divergence | None:
        """Returns an assertion that does not hold at the first size, where the whole is not run there."""
        if not self._large or not self._asserts():
            return None
        feeds = feeds_of(goal_of(self._meaning, self._sizes, 0), 0, self._meaning.inputs)
        until = time.monotonic() + _ASSERTING_SECONDS
        # What takes longer hangs on values, and is asked where the whole is small.
        with contextlib.suppress(NotProven):
            layer = Run(self._network, feeds, deadline=until, megabytes=self._meaning.megabytes).broken()
            return None if layer is None else assertion(self._network, layer, self._sizes[0])
        return None

    def _asserts(self) -> bool:
        """Whether the network asserts something, so that `_broken` runs a part of it."""
        return any(layer.kind == "ASSERTION" for layer in self._network.layers)

    def _other_shapes(self) -> list[Mapping[str, Shape]]:
        """Returns input shapes, besides those that count, that the model is known to take."""
        pieces = self._pieces
        if self._whole is None or pieces is None:
            return []
        sizes = self._whole.valid_sizes(besides=True, goes_on=lambda: time.monotonic() < pieces.deadline)
        return [size.shapes for size in sizes]

    def _piecewise(self, until: float) -> PiecesResult:
        self._thread.wait_while(lambda: time.monotonic() < until)
        if not self._thread.is_done and self._pieces is not None:
            self._pieces.stop()
        self._thread.wait(_GRACE_SECONDS)
        if self._thread.is_done:
            self._thread.result()
        return self._result or PiecesResult(missing=(_LATE,))


def _affordable(network: ReadNetwork, meaning: Meaning, sizes: Sequence[Size]) -> list[Size]:
    """Returns the sizes at which a run of the whole is not too much."""
    if not sizes:
        return []
    first = cost.products(network, shapes_with(meaning.parsed, sizes[0].shapes))
    elements = _elements(sizes[0])
    share = {True: _BESIDES, False: 1.0}
    return [size for size in sizes if first * _elements(size) / elements <= MOST_PRODUCTS * share[size.besides]]


def _elements(size: Size) -> int:
    return max(1, elements_of(size.shapes))


def _together(whole: ProofResult, pieces: PiecesResult, makes_ends: bool = True) -> ProofResult:
    """Returns what the whole and the pieces show together.

    Where every piece is proven, and they make all ends, what the whole could not show is shown: that it could not is of
    no interest.
    """
    proof = dataclasses.replace(whole, pieces=PieceCounts(pieces.proven, pieces.of, pieces.defined))
    if proof.agrees is False:
        return dataclasses.replace(proof, missing=pieces.missing)
    if pieces.divergence is not None:
        return dataclasses.replace(proof, agrees=False, divergence=pieces.divergence, missing=pieces.missing)
    if _is_complete(pieces) and makes_ends:
        return dataclasses.replace(proof, agrees=True)
    unshown = () if whole.agrees else (Unshown(Lack.SIZE, "the whole network", whole.why),)
    return dataclasses.replace(proof, missing=(*pieces.missing, *unshown))


def _is_complete(pieces: PiecesResult) -> bool:
    return bool(pieces.of) and pieces.divergence is None and not pieces.missing


MOST_PRODUCTS = 2e10
"""What a run of the whole may cost in a quick proof, in products: about a second, model and network, on two cores."""
_BESIDES = 0.1
"""Share of that at sizes besides those that count."""
_LATE = Unshown(Lack.TIME, "all pieces", "there was no time left for them")
_MAX_PLACES = 3 * 10**6
"""Positions of nodes and layers in all pieces together."""
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 5.0
_ASSERTING_SECONDS = 2.0
