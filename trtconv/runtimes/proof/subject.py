"""What is to be proven of a network: what it should be, and what the passes that changed it promise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trtconv.core.frozen import frozen
from trtconv.graph.fitting import reloaded
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import known_dtype_name
from trtconv.graph.views import quantizes

if TYPE_CHECKING:
    from trtconv.runtimes.proof.rewritten import Claim


@frozen
class Promise:
    """What the passes that edited a model say of the result; without any, that nothing was edited.

    Args:
        safeties: How each of them keeps the numbers; see `passes.base.Pass.safety`.
        requantizes: Whether one of them quantises anew.
        frees_sizes: Whether the model accepts sizes at which it failed before.
        on_request: Whether one of them ran only because it was asked for.
    """

    safeties: frozenset[str] = frozenset()
    requantizes: bool = False
    frees_sizes: bool = False
    on_request: bool = False

    @property
    def means_the_file(self) -> bool:
        """Whether the model as it is in its file still says what is right, and not the edited one."""
        return not (self.frees_sizes or self.on_request)


@frozen
class ProofSubject:
    """What is to be proven.

    Args:
        promise: What the passes say of their edits.
        rewritten: The model as the parser was given it, or as it was before a cast.
        parsed: The model as the parser was given it.
        precision: What the graph was cast to; "as-is" where it was not.
        sample: Inputs, by name, whose values fit the types that it was cast to; None: random ones do.
    """

    promise: Promise
    rewritten: OnnxModel
    parsed: OnnxModel
    precision: str = "as-is"
    sample: Mapping[str, Any] | None = None

    @property
    def parsed_as_is(self) -> bool:
        """Whether the parser was given the file's own nodes."""
        return not (self.promise.safeties or self.parsed.interface) and self.precision == "as-is"

    @property
    def original(self) -> bytes | None:
        """The model that says what is right; None where that is the file."""
        if not self.promise.means_the_file:
            return self.rewritten.serialize()
        return reloaded(self.rewritten).serialize() if self.rewritten.interface else None

    @property
    def claimed(self) -> tuple[OnnxModel, Claim] | None:
        """What the passes made, and what they claim of it; None where they were asked for something else."""
        from trtconv.runtimes.proof.rewritten import Claim

        if not self.promise.means_the_file:
            return None
        exact = self.promise.safeties <= {"exact"}
        return self.rewritten, Claim(exact, allowed_error(self.rewritten, self.promise))


def allowed_error(model: OnnxModel, promise: Promise) -> float:
    """Returns the relative error beyond which a rewrite is none; infinite where numbers were asked to change.

    Args:
        model: The model, before or after.
        promise: What the passes that made edits say.
    """
    from trtconv.runtimes.compare import TOLERANCES
    from trtconv.runtimes.onnxruntime import tolerance

    # Another order of float sums, which is all that an exact pass makes, moves a value that is then quantised by a step
    # here and there, as passes within tolerance do.
    within = TOLERANCES["requantized" if promise.requantizes else "int8"].relative
    safe = {"exact": tolerance(model), "within tolerance": within}
    return max((safe.get(safety, math.inf) for safety in promise.safeties), default=0.0)


def precision_of(model: OnnxModel, precision: str) -> str:
    """Returns whose tolerances hold for a network that is run in float32: the coarsest type that is in it.

    Args:
        model: The model as it was parsed.
        precision: What it was cast to.
    """
    from trtconv.runtimes.compare import TOLERANCES
    from trtconv.runtimes.onnxruntime import element_types

    # A Cast in a float32 network makes what follows as coarse as if it had been exported so.
    types = element_types(model) | {known_dtype_name(code) for code in set(model.main.types.values())}
    candidates = {"float32"} | ({precision} & TOLERANCES.keys())
    candidates |= {key for name, key in (("bfloat16", "bf16"), ("float16", "fp16")) if name in types}
    candidates |= {"int8"} if quantizes(model) else set()
    return max(candidates, key=lambda key: TOLERANCES[key].relative)
