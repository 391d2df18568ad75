"""The size lattice: which sizes of its dynamic dimensions a network accepts, and which node says so.

Shapes alone are computed: no weights are read and nothing is inferred. A network's shapes are a program of small
integer operations (`program`); it is run once for all candidate sizes (`trial`, with `number` and `tensor` for the
values), and what the nodes ask for along the way is put together into an answer (`solve`, `result`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trtconv.core.dims import dynamic_dims
from trtconv.core.expressions import free_names
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice.number import Num
from trtconv.shapes.lattice.program import Program, Revision
from trtconv.shapes.lattice.result import DimLattice, Imposed, SizeLattice
from trtconv.shapes.lattice.solve import Spans, solve
from trtconv.shapes.lattice.tables import Runner, first_faults
from trtconv.shapes.lattice.tensor import Tensor
from trtconv.shapes.lattice.trial import Check, Trial


class Sizes:
    """The sizes of one model.

    Args:
        model: The model; must not change while this object is in use.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.runner = Runner(Program(model), model.inputs)
        self.names = free_names(list(dynamic_dims(model.inputs)))

    def lattice(
        self, spans: Spans, base: Mapping[str, int] | None = None, also: Mapping[str, Collection[int]] | None = None
    ) -> SizeLattice:
        """Finds the accepted sizes.

        Args:
            spans: Every free dimension and the range that is asked about.
            base: Sizes to start from, such as those to optimize for.
            also: Further sizes that the answer must be right about, however long the range is.
        """
        return solve(self.runner, {name: spans[name] for name in self.names}, base, also)

    def run(self, points: Sequence[Mapping[str, int]], *, keep: bool = False, revise: Revision | None = None) -> Trial:
        """Runs combinations of sizes; `first_faults` tells of each the first condition that it does not meet.

        Args:
            points: Sizes of every free dimension.
            keep: Keep every tensor in the result.
            revise: As for `Program.run`.
        """
        columns = {name: np.array([point[name] for point in points], np.int64) for name in self.names}
        bits = {name: bit for bit, name in enumerate(self.names)}
        return self.runner.points(columns, bits, rows=len(points), keep=keep, revise=revise)


def sizes_of(model: OnnxModel) -> Sizes:
    """Returns the sizes of a model, read once for whoever asks as long as it does not change."""
    derived = model.whole.derived
    if "sizes" not in derived:
        derived["sizes"] = Sizes(model)
    sizes: Sizes = derived["sizes"]
    return sizes


__all__ = [
    "Check",
    "DimLattice",
    "Imposed",
    "Num",
    "SizeLattice",
    "Sizes",
    "Spans",
    "Tensor",
    "Trial",
    "first_faults",
    "sizes_of",
]
