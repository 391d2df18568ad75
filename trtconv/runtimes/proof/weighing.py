"""Network and passes held to the file while an engine is built: weights bit for bit, changed nodes piece by piece."""

from __future__ import annotations

import contextvars
import gc
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtconv.core import codes
from trtconv.core.documents.proof import Lack, Unshown, WeightCounts
from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.findings import Finding, Location
from trtconv.graph.fitting import reloaded
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.result import unread

if TYPE_CHECKING:
    from trtconv.core.process import Process
    from trtconv.runtimes.proof.origin import Derivation
    from trtconv.runtimes.proof.rewritten import Claim, Differences, Kept
    from trtconv.runtimes.proof.weights import Account, Weighed
    from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_SECONDS = 10.0
"""How long the pieces that passes changed may take."""
_LARGE_BYTES = 1 << 23
_FIX = "Please report this model, with the version of TensorRT. --prove none builds it all the same."
_FIX_OF_PASSES = "Please report this model; --no-rewrite, or --skip with each pass in turn, leaves the passes out."


class Weighing:
    """Compares weights in a thread of its own, and what passes changed where somebody has a process for that.

    Args:
        network: What TensorRT's parser made; builder and parser must live until `finish`.
        model: The model that it was given; must not change meanwhile.
        rewritten: That model as it was before a cast, if it is to mean what the file means, and what is claimed of it.
    """

    def __init__(self, network: ReadNetwork, model: OnnxModel, rewritten: tuple[OnnxModel, Claim] | None) -> None:
        self._network = network
        self._model = model
        self._rewritten = rewritten
        self._pieces: Kept | None = None
        self._file: OnnxModel | None = None
        self._differences: Differences | None = None
        self._read = threading.Event()
        self._origins: dict[str, Derivation] = {}
        self._weighed: Weighed | None = None
        self._bug: Exception | None = None
        self._unread: Unshown | None = None
        # The limits on what a model may ask for are this thread's.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._work), daemon=True)
        self._thread.start()

    def _work(self) -> None:
        from trtconv.runtimes.proof.origin import origins
        from trtconv.runtimes.proof.weights import weigh

        try:
            file = reloaded(self._model, light=True)
            if self._rewritten is not None:
                self._file = file
            self._read.set()
            self._origins = origins(file, self._model)
            self._weighed = weigh(self._network, self._model, self._origins)
            del file
            self._collect()
        except TrtconvError as error:
            self._unread = unread("weights", error)
        except Exception as error:  # Nobody hears a thread: `finish` tells.
            self._bug = error
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
        differences = self._look()
        return differences is not None and differences.is_defined()

    def compare(self, runner: Process) -> None:
        """Compares what passes changed with the file.

        Args:
            runner: A process of `proof.SERVE`.
        """
        from trtconv.runtimes.proof.rewritten import compared_pieces

        try:
            differences, self._differences = self._look(), None
            if differences is None or self._rewritten is None:
                return
            self._pieces = compared_pieces(differences, self._rewritten[1], runner, _SECONDS)
            del differences
            self._collect()
        except InputError as error:
            self._unread = unread("what passes changed", error)
        except Exception as error:  # As above.
            self._bug = error

    def _collect(self) -> None:
        """Gives back what was read: graphs and what is known of them refer to each other, and the builder takes most
        at its end. To look through many nodes takes longer than few weights are worth."""
        if self._model.nbytes > _LARGE_BYTES:
            gc.collect()

    def give_back(self) -> None:
        """Gives back the memory of the network's weights, once they are weighed; nobody may ask for them any more."""
        from trtconv.runtimes.proof.weights import forget

        self._thread.join()
        forget(self._network)

    def close(self) -> None:
        """Waits for what is still at work."""
        self._thread.join()

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
        self._thread.join()
        if self._bug is not None:
            raise self._bug
        if self._weighed is None:
            return None, ()
        return self._weighed.counts, (*self._changed(), *map(_finding, self._weighed.different))

    def _changed(self) -> Iterator[Finding]:
        from trtconv.runtimes.proof.origin import Derivation

        for name, origin in self._origins.items():
            if origin is Derivation.CHANGED:
                message = f"the passes changed weight {name!r}: it has other values than in the file"
                yield codes.NETWORK_DIFFERS.finding(message, place=Location(tensor=name), fix=_FIX_OF_PASSES)
        if self._pieces is not None and self._pieces.changed is not None:
            tensor, error = self._pieces.changed.tensor, self._pieces.changed.error
            far = (
                "has another shape or type" if math.isinf(error) else f"is off by {error:.2g} of its largest magnitude"
            )
            message = f"the passes changed tensor {tensor!r}: computed from what is before it, it {far}"
            yield codes.NETWORK_DIFFERS.finding(message, place=Location(tensor=tensor), fix=_FIX_OF_PASSES)


def _finding(account: Account) -> Finding:
    weight, place = account.weight, account.place
    sources = " or ".join(map(repr, account.sources))
    message = (
        f"what TensorRT parsed differs at the {weight.attribute} of layer {weight.layer.name!r} ({weight.layer.kind}): "
        f"its {weight.values.size} values are not those of {sources} in the model"
    )
    return codes.NETWORK_DIFFERS.finding(message, place=place, fix=_FIX)
