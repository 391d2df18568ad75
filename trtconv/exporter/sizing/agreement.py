"""The sizes that a file takes, as the size lattice of `trtconv sizes` sees them, against those of the module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trtconv.core.documents.export import SizeRule
from trtconv.exporter.sizing.sizes import REACH
from trtconv.exporter.sizing.trials import Trials
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.lattice.result import DimLattice

_NAMED = 4
_TRIED = 16
Lattices = Mapping[str, DimLattice]


def graph_lattice(path: Path, rules: Sequence[SizeRule]) -> Lattices:
    """Returns which sizes a graph takes, by dimension; empty where that cannot be told.

    Args:
        path: The ONNX file.
        rules: What trying the module has shown: the bounds to look at.
    """
    if not rules:
        return {}
    try:
        return (
            Sizes(OnnxModel.load(path))
            .lattice({rule.name: _span(rule) for rule in rules}, {rule.name: rule.example for rule in rules})
            .dims
        )
    except Exception:  # a second opinion that cannot be had is no reason to fail
        return {}


def _span(rule: SizeRule) -> tuple[int, int]:
    low = rule.asked.min if rule.asked else rule.min
    high = rule.asked.max if rule.asked else rule.max or rule.example + REACH
    return low, high


def takes_all(lattices: Lattices, sizes: Mapping[str, int]) -> bool:
    """Whether a graph takes every one of some sizes, as far as it is known."""
    return all(name not in lattices or _takes(lattices[name], size) for name, size in sizes.items())


def _takes(lattice: DimLattice, size: int) -> bool:
    # Of a long range only some sizes may have been looked at.
    return lattice.valid is None or size in lattice.valid or (lattice.looked is not None and size not in lattice.looked)


def first_lost(lattices: Lattices, rules: Sequence[SizeRule], example: Mapping[str, int]) -> dict[str, int] | None:
    """Returns the first sizes that PyTorch takes and the graph does not, None where there are none."""
    for rule in rules:
        if rule.name in lattices and not rule.tied:
            low, high = _span(rule)
            ours = rule.valid or rule.sizes(max(rule.min, low), min(rule.max or high, high))
            losses = [n for n in ours if not _takes(lattices[rule.name], n)]
            if losses:
                return {**example, rule.name: losses[0]}
    return None


def beyond_pytorch(lattices: Lattices, rules: Sequence[SizeRule], trials: Trials) -> tuple[str, ...]:
    """Says, of dimensions that are alike in one sentence, which sizes the graph takes and PyTorch refuses."""
    groups: dict[str, list[str]] = {}
    for rule in rules:
        if rule.name not in lattices or rule.tied:
            continue
        low, high = _span(rule)
        theirs = lattices[rule.name].valid or range(low, high + 1)
        # A step that the user gave is no word of PyTorch's.
        candidates = (n for n in theirs if trials.axes.on_steps({rule.name: n}))
        more = [n for n in candidates if low <= n <= high and not rule.takes(n)][:_TRIED]
        refused = [n for n in more if not trials.ok({rule.name: n})]
        if refused:
            groups.setdefault(_listed(refused), []).append(rule.name)
    return tuple(
        f"{' and '.join(names)} {sizes}: the file takes these too, PyTorch refuses them; keep to the rule"
        for sizes, names in groups.items()
    )


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:_NAMED])) + (" ..." if len(sizes) > _NAMED else "")
