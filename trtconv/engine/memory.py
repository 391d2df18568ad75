"""Which sizes do not fit into the memory of this machine, told before it is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtconv.engine.cases import Case
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes

_BYTES = 4
"""Of an element: most networks compute in float32 on ONNX Runtime."""
_HELD = 3
"""How often the largest tensor is held at least: by the model, by what is compared with it, and while it is read."""

_GROUP_FILES = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
"""Limit and use of memory of a Linux control group, of version 2 and version 1."""


def too_large(model: OnnxModel, cases: Sequence[Case], available: int | None) -> dict[int, str]:
    """Returns the positions of cases that cannot fit into memory, and why.

    Args:
        model: The model.
        cases: What is to be run.
        available: Bytes of memory that are free; None: not known, all is tried.
    """
    if available is None:
        return {}
    needed = _HELD * largest_tensor_bytes(model, cases)
    return {
        index: f"its largest tensor takes {int(needed[index]) // _HELD} bytes, and {available} bytes of memory are free"
        for index in np.flatnonzero(needed > available).tolist()
    }


def largest_tensor_bytes(model: OnnxModel, cases: Sequence[Case]) -> NDArray[np.float64]:
    """Returns for each case the bytes of the largest tensor of the network, as far as its shapes are known."""
    sizes = Sizes(model)
    points = [_point(model, case) for case in cases]
    largest = np.array([max(_elements(shape) for shape in (*case.shapes.values(), ())) for case in cases], np.float64)
    if all(set(sizes.names) <= set(point) for point in points):
        for tensor in sizes.run(points, keep=True).tensors.values():
            if tensor.is_known:
                largest = np.maximum(largest, tensor.elements)
    return largest * _BYTES


def _point(model: OnnxModel, case: Case) -> Mapping[str, int]:
    return {
        dim: size
        for spec in model.inputs
        for dim, size in zip(spec.dims, case.shapes[spec.name], strict=True)
        if isinstance(dim, str)
    }


def _elements(shape: Sequence[int]) -> float:
    return float(np.prod(np.array(shape, np.float64)))


def available_bytes(meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Returns the bytes of memory that can be had without swapping; None where the system does not say.

    Args:
        meminfo: What Linux says of the machine.
        group: The control group of a container, whose limit may be lower.
    """
    lines = [line.split() for line in _lines(meminfo) if line.startswith("MemAvailable:")]
    limits = [int(lines[0][1]) * 1024] if lines else []
    for limit, used in _GROUP_FILES:
        ends = [_lines(group / limit), _lines(group / used)]
        if all(end and end[0].isdecimal() for end in ends):  # without a limit, memory.max says "max"
            limits.append(max(0, int(ends[0][0]) - int(ends[1][0])))
    return min(limits, default=None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
