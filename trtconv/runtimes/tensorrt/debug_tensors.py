"""Debug tensors: tensors inside a network that its engine shows while it runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from trtconv.core import codes
from trtconv.core.documents.build import BuildPlan
from trtconv.core.findings import Finding, Severity


def can_show(trt: Any) -> bool:
    """Whether a TensorRT has debug tensors."""
    return hasattr(trt.INetworkDefinition, "mark_debug")


def mark(network: Any, names: Collection[str]) -> tuple[str, ...]:
    """Marks tensors of a network, so that its engine can show them; returns the names of those that it has."""
    marks = []
    for layer in (network.get_layer(i) for i in range(network.num_layers)):
        for tensor in (layer.get_output(i) for i in range(layer.num_outputs)):
            if tensor is not None and tensor.name in names and network.mark_debug(tensor):
                marks.append(str(tensor.name))
    return tuple(marks)


def not_shown(plan: BuildPlan, tensors: tuple[str, ...]) -> tuple[Finding, ...]:
    """Says of debug tensors that the parser made nothing of; networks that are tried alone have a part of them."""
    lacking = [name for name in plan.options.debug_tensors if name not in tensors and not plan.trial]
    if not lacking:
        return ()
    message = f"the parsed network has no tensor {', '.join(map(repr, lacking))}, and the engine does not show it"
    fix = "Name a tensor next to it with --debug-tensor: constants, and what the parser leaves out, cannot be shown."
    return (codes.OPTION_MISSING.finding(message, Severity.WARNING, fix=fix),)
