"""Network and passes held to the file while an engine is built: weights bit for bit, changed nodes piece by piece."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from trtconv.core import codes
from trtconv.core.background import Apart, Background
from trtconv.core.documents.proof import Lack, Unshown, WeightCounts
from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.findings import Finding, Location
from trtconv.core.forking import can_fork
from trtconv.core.frozen import frozen
from trtconv.graph.fitting import reloaded
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.result import unread

if TYPE_CHECKING:
    from trtconv.core.process import Process
    from trtconv.runtimes.proof.origin import Derivation
    from trtconv.runtimes.proof.rewritten import Claim, Differences, Kept
    from trtconv.runtimes.proof.weights import Account
    from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_SECONDS = 10.0
"""How long the pieces that passes changed may take."""
_LARGE_BYTES = 1 << 23
_FIX = "Please report this model, with the version of TensorRT. --prove none builds it all the same."
_FIX_OF_PASSES = "Please report this model; --no-rewrite, or --skip with each pass in turn, leaves the passes out."


@frozen
class FileSide:
    """A model's file, read again, and where the model's constants come from."""

    file: OnnxModel
    origins: Mapping[str, Derivation]

    @classmethod
    def of(cls, model: OnnxModel) -> FileSide:
        """Reads the file of a model.

        Raises:
            InputError: It is gone, or another one by now.
        """
        from trtconv.runtimes.proof.origin import origins

        file = reloaded(model, light=True)
        return cls(file, origins(file, model))


@frozen
class _Comparison:
    """What came of the weights; and of what passes changed, where nothing of it is left to be run."""

    counts: WeightCounts
    findings: tuple[Finding, ...]
    is_defined: bool = False
    pieces: Kept | None = None


class Weighing:
    """Compares weights in a thread of its own, and what passes changed where somebody has a process for that.

    Args:
        network: What TensorRT's parser made; builder and parser must live until `finish`.
        model: The model that it was given; must not change meanwhile.
        rewritten: That model as it was before a cast, if it is to mean what the file means, and what is claimed of it.
        side: Returns what is known of the file; None: it is read now.
        apart: Whether a fork of this process is to do it, where that can be: nothing else needs the processors.
    """

    def __init__(
        self,
        network: ReadNetwork,
        model: OnnxModel,
        rewritten: tuple[OnnxModel, Claim] | None,
        side: Callable[[], FileSide] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self._network = network
        self._model = model
        self._rewritten = rewritten
        self._side = side or (lambda: FileSide.of(model))
        self._pieces: Kept | None = None
        self._file: OnnxModel | None = None
        self._differences: Differences | None = None
        self._read = threading.Event()
        self._comparison: _Comparison | None = None
        self._bug: Exception | None = None
        self._unread: Unshown | None = None
        self._closed = False
        self._apart = self._forked() if apart and can_fork() else None
        self._thread = Background(self._work)

    def _forked(self) -> Apart[_Comparison] | None:
        with contextlib.suppress(OSError):
            return Apart(self._weigh_all)
        return None

    def _weigh_all(self) -> _Comparison:
        comparison, differences = self._weigh(self._side()), self._look()
        if differences is None or differences.targets:
            return comparison
        return dataclasses.replace(comparison, is_defined=differences.is_defined(), pieces=differences.without_a_run)

    def _weigh(self, side: FileSide) -> _Comparison:
        from trtconv.runtimes.proof.weights import weigh

        if self._rewritten is not None:
            self._file = side.file
        self._read.set()
        weighed = weigh(self._network, self._model, side.origins)
        return _Comparison(weighed.counts, (*_changed_weights(side.origins), *map(_finding, weighed.different)))

    def _work(self) -> None:
        try:
            comparison = None if self._apart is None else self._apart.result()
            if self._closed:
                return
            side = self._side()
            if comparison is not None and comparison.pieces is None and self._rewritten is not None:
                self._file = side.file
            self._comparison = comparison or self._weigh(side)
            del side
            self._collect()
        except TrtconvError as error:
            self._unread = unread("weights", error)
        finally:
            self._read.set()

    def _look(self) -> Differences | None:
        """Returns where passes changed the file, as soon as that is read again; None where nobody asks, or it cannot
        be."""
        from trtconv.runtimes.proof.rewritten import Differences

        self._read.wait()
        file, self._file = self._file, None
        if file is not None and self._rewritten is not None:
            self._differences = Differences(file, self._rewritten[0], self._network)
        return self._differences

    def is_defined(self) -> bool:
        """Whether all that passes changed is shown by its definition, so that nothing is left for `compare`."""
        self._read.wait()
        if self._comparison is not None and self._comparison.pieces is not None:
            return self._comparison.is_defined
        differences = self._look()
        return differences is not None and differences.is_defined()

    def compare(self, runner: Process) -> None:
        """Compares what passes changed with the file.

        Args:
            runner: A process of `proof.SERVE`.
        """
        from trtconv.runtimes.proof.rewritten import compared_pieces

        try:
            self._read.wait()
            if self._comparison is not None and self._comparison.pieces is not None:
                self._pieces = self._comparison.pieces
                return
            differences, self._differences = self._look(), None
            if differences is None or self._rewritten is None:
                return
            self._pieces = compared_pieces(differences, self._rewritten[1], runner, _SECONDS)
            del differences
            self._collect()
        except InputError as error:
            self._unread = unread("what passes changed", error)
        except Exception as error:  # Whoever calls goes on: `finish` tells.
            self._bug = error

    def _collect(self) -> None:
        """Gives back what was read: graphs and what is known of them refer to each other, and the builder takes most
        at its end. To look through many nodes takes longer than few weights are worth; what is done apart, is done
        where nobody builds."""
        if self._apart is None and self._model.nbytes > _LARGE_BYTES:
            gc.collect()

    def give_back(self) -> None:
        """Gives back the memory of the network's weights, once they are weighed; nobody may ask for them any more."""
        from trtconv.runtimes.proof.weights import forget

        self._thread.wait()
        forget(self._network)

    def close(self) -> None:
        """Ends what is still at work, or waits for it."""
        self._closed = True
        if self._apart is not None:
            self._apart.close()
        self._thread.wait()

    @property
    def missing(self) -> tuple[Unshown, ...]:
        """What was not shown, once it is finished."""
        if self._unread is not None:
            return (self._unread,)
        if self._rewritten is not None and self._pieces is None:
            return (Unshown(Lack.TIME, "what passes changed", "there was no time left for it"),)
        pieces = {} if self._pieces is None else self._pieces.missing
        return tuple(Unshown(Lack.PIECE, tensor, why) for tensor, why in pieces.items())

    def finish(self) -> tuple[WeightCounts | None, tuple[Finding, ...]]:
        """Returns the counts as plain JSON values, None where there are none, and a TC402 for each difference."""
        self._thread.result()
        if self._bug is not None:
            raise self._bug
        if self._comparison is None:
            return None, ()
        return self._comparison.counts, (*self._comparison.findings, *self._changed_pieces())

    def _changed_pieces(self) -> Iterator[Finding]:
        if self._pieces is not None and self._pieces.changed is not None:
            tensor, error = self._pieces.changed.tensor, self._pieces.changed.error
            far = (
                "has another shape or type" if math.isinf(error) else f"is off by {error:.2g} of its largest magnitude"
            )
            message = f"the passes changed tensor {tensor!r}: computed from what is before it, it {far}"
            yield codes.NETWORK_DIFFERS.finding(message, place=Location(tensor=tensor), fix=_FIX_OF_PASSES)


def _changed_weights(origins: Mapping[str, Derivation]) -> Iterator[Finding]:
    from trtconv.runtimes.proof.origin import Derivation

    for name, origin in origins.items():
        if origin is Derivation.CHANGED:
            message = f"the passes changed weight {name!r}: it has other values than in the file"
            yield codes.NETWORK_DIFFERS.finding(message, place=Location(tensor=name), fix=_FIX_OF_PASSES)


def _finding(account: Account) -> Finding:
    weight, place = account.weight, account.place
    sources = " or ".join(map(repr, account.sources))
    message = (
        f"what TensorRT parsed differs at the {weight.attribute} of layer {weight.layer.name!r} ({weight.layer.kind}): "
        f"its {weight.values.size} values are not those of {sources} in the model"
    )
    return codes.NETWORK_DIFFERS.finding(message, place=place, fix=_FIX)
