"""Where NVIDIA's plugins do not compute what their pages say, though nothing is reported.

Source: each was built and run on an H100 with TensorRT 8.6.0, beside its reference, and was off
(bench/results/gpu-plugins-8.6.json); the reasons are in NVIDIA/TensorRT, releases 8.6 to 11.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope

_TILE = 64
Fault = tuple[str, Severity] | None


def fault(scope: Scope, index: int, target: Target) -> Fault:
    """Returns what a node of a standard plugin has that the plugin computes wrongly, and how sure that is."""
    check = _CHECKS.get(scope.columns.ops[index])
    return check(scope, index, target) if check else None


def _sequence(scope: Scope, index: int, target: Target) -> Fault:
    length = _size(scope, index, 1)
    if length is None or not length % _TILE:
        return None
    message = f"the plugin works in tiles of {_TILE} positions, and reads and writes beyond a sequence of {length}"
    return f"{message}: pad it to a multiple of {_TILE}", Severity.ERROR


def _images(scope: Scope, index: int, target: Target) -> Fault:
    images = _size(scope, index, 0)
    if images is None or images == 1:
        return None
    message = f"the plugin has memory for one image, and is given {images}: EfficientNMS_Explicit_TF_TRT takes several"
    return message, Severity.ERROR


def _classes(scope: Scope, index: int, target: Target) -> Fault:
    if not target.before(9) or not _attribute(scope, index, "class_agnostic"):
        return None
    message = "TensorRT 8.6.0 passes class_agnostic over: boxes of different classes do not suppress one another"
    return message, Severity.WARNING


def _candidates(scope: Scope, index: int, target: Target) -> Fault:
    if not target.before(9):
        return None
    boxes, most = _size(scope, index, 1), _attribute(scope, index, "topK")
    best, classes = _attribute(scope, index, "keepTopK"), _attribute(scope, index, "numClasses")
    if boxes is not None and most is not None and most > boxes:
        message = f"topK is {most}, and there are {boxes} boxes: TensorRT 8.6.0 reads on in those of the next class"
        return message, Severity.WARNING
    if best is not None and most is not None and classes is not None and best > most * classes:
        message = f"keepTopK is {best}, and there are {most} candidates of {classes} classes: what is beyond is garbage"
        return message, Severity.WARNING
    return None


def _several(scope: Scope, index: int, target: Target) -> Fault:
    op = scope.columns.ops[index]
    if target.before(9) and scope.columns.ops.count(op) > 1:
        message = f"of several {op} in one network TensorRT 8.6.0 computes some wrongly, though each alone is right"
        return f"{message}: BatchedNMSDynamic_TRT is right", Severity.ERROR
    return _candidates(scope, index, target)


def _size(scope: Scope, index: int, axis: int) -> int | None:
    """Returns the size of the first input along an axis, where it is known."""
    inputs = scope.columns.inputs[index]
    shape = scope.shape(inputs[0]) if inputs else None
    return shape[axis] if shape is not None and axis < len(shape) else None


def _attribute(scope: Scope, index: int, name: str) -> int | None:
    value = attribute(scope.columns.nodes[index], name)
    return value if isinstance(value, int) else None


_CHECKS: Mapping[str, Callable[[Scope, int, Target], Any]] = {
    "DisentangledAttention_TRT": _sequence,
    "EfficientNMS_Implicit_TF_TRT": _images,
    "EfficientNMS_TRT": _classes,
    "BatchedNMS_TRT": _several,
    "BatchedNMSDynamic_TRT": _candidates,
}
