"""The weights of a parsed network held to the file, bit for bit, while an engine is built."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtconv.core import codes
from trtconv.core.documents.proof import WeightCounts
from trtconv.core.errors import TrtconvError
from trtconv.core.findings import Finding, Location
from trtconv.graph.model import OnnxModel

if TYPE_CHECKING:
    from trtconv.runtimes.proof.origin import Derivation
    from trtconv.runtimes.proof.weights import Account, Weighed
    from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_FIX = "Please report this model, with the version of TensorRT. --prove none builds it all the same."
_FIX_OF_PASSES = "Please report this model; --no-rewrite, or --skip with each pass in turn, leaves the passes out."


class Weighing:
    """Compares weights in a thread of its own.

    Args:
        network: What TensorRT's parser made; builder and parser must live until `finish`.
        given: The model that it was given; must not change meanwhile.
    """

    def __init__(self, network: ReadNetwork, given: OnnxModel) -> None:
        self._network = network
        self._given = given
        self._origins: dict[str, Derivation] = {}
        self._weighed: Weighed | None = None
        self._bug: Exception | None = None
        self.why = ""
        """Why nothing was compared; empty where it was."""
        # The limits on what a model may ask for are this thread's.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._work), daemon=True)
        self._thread.start()

    def _work(self) -> None:
        from trtconv.runtimes.proof.origin import origins
        from trtconv.runtimes.proof.weights import weigh

        try:
            file = OnnxModel.load(self._given.path)
            self._origins = origins(file, self._given)
            self._weighed = weigh(self._network, self._given, self._origins)
        except TrtconvError as error:
            # The file was read before, but whoever asked may have taken it away.
            self.why = f"the file could not be read again ({error})"
        except Exception as error:  # Nobody hears a thread: `finish` tells.
            self._bug = error

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


def _finding(account: Account) -> Finding:
    weight, place = account.weight, account.place
    sources = " or ".join(map(repr, account.sources))
    message = (
        f"what TensorRT parsed differs at the {weight.attribute} of layer {weight.layer.name!r} ({weight.layer.kind}): "
        f"its {weight.values.size} values are not those of {sources} in the model"
    )
    return codes.NETWORK_DIFFERS.finding(message, place=place, fix=_FIX)
