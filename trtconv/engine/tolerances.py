"""How far what verify compares may be off."""

from __future__ import annotations

import dataclasses
import math

from trtconv.core.documents.verify import Tolerance
from trtconv.core.errors import InputError
from trtconv.core.requests.engine import VerifyRequest
from trtconv.engine.opening import EngineFile
from trtconv.engine.rebuilding import Recipe
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import quantizes
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.onnxruntime import element_types


def precision_of(model: OnnxModel, subject: EngineFile | None, *, on_gpu: bool) -> str:
    """Returns whose tolerances hold: the coarsest of what was asked for and of what is in the model."""
    types = element_types(model)
    choice = Recipe.of(None if subject is None else subject.report).types
    precisions = {choice.precision, *choice.nodes.values()} & set(TOLERANCES)
    precisions |= {key for name, key in (("bfloat16", "bf16"), ("float16", "fp16")) if name in types}
    precisions |= {"int8"} if quantizes(model) else set()
    precisions |= {"float32" if not on_gpu or subject is None or subject.options.tf32 is False else "tf32"}
    # Of equals the one that was asked for.
    return max(precisions, key=lambda key: (TOLERANCES[key].relative, key != "tf32"))


def tolerance_of(request: VerifyRequest, precision: str) -> Tolerance:
    """Returns how far outputs may be off: as the user says, else as the precision has it.

    Raises:
        InputError: What the user says is not finite.
    """
    limits = {name: value for name, value in dataclasses.asdict(request.limits).items() if value is not None}
    for name, value in limits.items():
        if not math.isfinite(value):
            raise InputError(f"the limit {name} is {value}", "Give a finite number: beyond NaN is nothing.")
    return dataclasses.replace(TOLERANCES[precision], **limits)
