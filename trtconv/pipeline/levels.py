"""The level of the builder at which the many profiles of `--split auto` take no longer than is worth it."""

from __future__ import annotations

import dataclasses

from trtconv.core.documents.build import BuildPlan
from trtconv.runtimes.tensorrt import Capabilities

MANY_PROFILES = 3
"""So many of `--split auto` are built at a lower optimization level: TensorRT looks for kernels for each anew."""
_QUICKER_LEVEL, _USUAL_LEVEL = 2, 3
"""A U-Net's four profiles take 2.5 times as long as one at it and 4.9 times at the usual level 3, and run as fast
(TensorRT 8.6; docs/sizes.md)."""


def affordable(plan: BuildPlan, capabilities: Capabilities) -> BuildPlan:
    """Returns a plan whose profiles do not take several times as long as one, where `--split auto` made them.

    A level that was asked for stays, and so does TensorRT-RTX's, which looks for no kernels while it builds.
    """
    is_fixed = plan.options.optimization_level is not None or not capabilities.timing_cache
    if is_fixed or plan.split != "auto" or len(plan.profiles) < MANY_PROFILES:
        return plan
    return dataclasses.replace(plan, options=dataclasses.replace(plan.options, optimization_level=_QUICKER_LEVEL))


def told_level(plan: BuildPlan, capabilities: Capabilities) -> tuple[str, ...]:
    """Returns what is to be said of the level that `affordable` chooses, if it does."""
    if affordable(plan, capabilities) is plan:
        return ()
    return (
        f"the {len(plan.profiles)} profiles are built at optimization level {_QUICKER_LEVEL}: in about half the usual "
        f"time, and as fast where it was measured; --optimization-level {_USUAL_LEVEL} looks further",
    )
