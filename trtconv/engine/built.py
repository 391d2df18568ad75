"""The model as `trtconv build` hands it to TensorRT, made again from the plan in a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trtconv.model import OnnxModel
from trtconv.passes import PASSES, run_passes
from trtconv.plan import Target
from trtconv.precision import apply_precision
from trtconv.runtime import Capabilities

_STRONGLY_TYPED = Capabilities(*[False] * len(dataclasses.fields(Capabilities)))
"""A runtime without precision flags: for it the graph itself is cast, which ONNX Runtime can run too."""


def as_built(model: OnnxModel, plan: Mapping[str, Any], *, cast: bool = True) -> OnnxModel:
    """Rewrites a model as a build did.

    Args:
        model: The original; left as it is.
        plan: The plan of a report's JSON; empty for what `build` does without flags.
        cast: Cast the graph where the plan asks for a precision, also where the builder's flags did it.

    Raises:
        EnvironmentMissing: The precision cannot be had in the graph.
    """
    rewritten = OnnxModel.load(model.path)
    target = Target.parse(str(plan.get("target", "rtx"))) or Target("rtx")
    # TensorRT's layers are told apart by these names.
    rewritten.name_nodes("ConvTranspose")
    if plan.get("rewrite", True):
        passes = [each for each in PASSES if not each.on_request or plan.get("requantize")]
        run_passes(rewritten, passes, target)
    if cast:
        apply_precision(rewritten, str(plan.get("precision", "as-is")), _STRONGLY_TYPED)
    return rewritten
