"""What `--tune` chose, and how to read it back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.best_of import typical
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class Tuned:
    """What `--tune` chose for a transposed convolution.

    Args:
        node: Its name.
        layer: Its sizes and type, in words.
        form: The form that it takes.
        usual: The form that it would take without.
        us: Microseconds of each form; None where TensorRT does not build it.
        known: Whether all that was measured by an earlier build.
        spread: How far apart two builds of one form were, the slower over the faster: a smaller gain is chance.
        alone: The form that was faster where the layer was timed alone, and not in the network; empty where there is
            none.
    """

    node: str
    layer: str
    form: str
    usual: str
    us: Mapping[str, float | None]
    known: bool = False
    spread: float = 1.0
    alone: str = ""

    @property
    def as_usual(self) -> Tuned:
        """The same with the usual form, since the network is faster with that, or fails in the other."""
        return self if self.form == self.usual else dataclasses.replace(self, form=self.usual, alone=self.form)

    def __str__(self) -> str:
        now, before = self.us.get(self.form), self.us.get(self.usual)
        if self.alone:
            return (
                f"tuned {self.node} ({self.layer}): {self.form}; {self.alone} is faster alone, and not in the network"
            )
        if now is None or before is None:
            return f"tuned {self.node} ({self.layer}): none of its forms could be timed"
        gain = f"{before:.1f} -> {now:.1f} us" if self.form != self.usual else f"{now:.1f} us, none is faster"
        gain += f" by more than two builds of one form are apart ({self.spread:.2f})" if self._is_close else ""
        return f"tuned {self.node} ({self.layer}): {self.form}, {gain}{' (measured before)' if self.known else ''}"

    @property
    def _is_close(self) -> bool:
        """Whether another form was faster, and by too little."""
        timed = [us for us in self.us.values() if us is not None]
        return self.form == self.usual and self.us[self.form] != min(timed)


@frozen
class TunedNetwork:
    """A whole network in the forms that were the fastest alone, and in the usual ones, timed in turns.

    Args:
        tuned: Microseconds of an inference with each optimization profile; empty where its engine did not run.
        usual: The same with the usual forms.
    """

    tuned: tuple[float, ...]
    usual: tuple[float, ...]

    @property
    def is_faster(self) -> bool:
        """Whether the forms that were the fastest alone are so in the network; what cannot be timed is not slower."""
        return typical(self.tuned) <= typical(self.usual)

    def __str__(self) -> str:
        took = [" / ".join(f"{us:.1f}" for us in times) or "not timed" for times in (self.tuned, self.usual)]
        forms = "those of --tune" if self.is_faster else "the usual ones"
        return f"the network takes {took[0]} us in the forms of --tune, {took[1]} us in the usual ones: kept {forms}"


@frozen
class TimedLayer:
    """A layer, and what it was timed on.

    Args:
        gpu: Name of the GPU; None stands for the only one that is known.
        family: That TensorRT's.
        version: Its full version.
        precision: What the builder was told.
        options: How it worked.
        layer: The layer, as `LayerAlone.key` says it.
    """

    gpu: str | None
    family: str
    version: str
    precision: str
    options: BuilderOptions
    layer: Mapping[str, object]


@frozen
class TimedForms(Document, keys="for=layer us refused spread"):
    """What was measured of a layer.

    Args:
        layer: The layer.
        us: Form to the microseconds of one inference.
        refused: Forms that TensorRT does not take, or in which it computes something else.
        spread: How far apart two builds of one form were; a trtconv that did not measure it held 3 % for chance.
    """

    layer: TimedLayer
    us: Mapping[str, float]
    refused: tuple[str, ...]
    spread: float = 1.03
