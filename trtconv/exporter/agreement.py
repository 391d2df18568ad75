"""The sizes that the module takes against those that the file takes, as the size lattice of `trtconv sizes` sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtconv.core.requests.export import SizeRule
from trtconv.exporter.sizes import REACH
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.lattice.result import DimLattice

_NAMED = 4


def disagreements(path: Path, rules: Sequence[SizeRule]) -> tuple[str, ...]:
    """Compares the rules that trials found with the lattice of the exported graph.

    Args:
        path: The ONNX file.
        rules: What trying the module has shown.

    Returns:
        One sentence a dimension on which the two differ; empty where they agree or nothing can be said.
    """
    if not rules:
        return ()
    try:
        lattice = Sizes(OnnxModel.load(path)).lattice(
            {rule.name: _span(rule) for rule in rules}, {rule.name: rule.example for rule in rules}
        )
    except Exception:  # a second opinion that cannot be had is no reason to fail
        return ()
    return tuple(s for rule in rules if rule.name in lattice.dims for s in _differs(rule, lattice.dims[rule.name]))


def _span(rule: SizeRule) -> tuple[int, int]:
    low = rule.asked.min if rule.asked else rule.min
    high = rule.asked.max if rule.asked else rule.max or rule.example + REACH
    return low, high


def _differs(rule: SizeRule, found: DimLattice) -> list[str]:
    low, high = _span(rule)
    ours = set(rule.valid or rule.sizes(rule.min, min(rule.max or high, high)))
    theirs = set(range(low, high + 1) if found.valid is None else found.valid)
    # Of a long range only some sizes may have been looked at.
    missing = ours - theirs if found.looked is None else (ours - theirs) & set(found.looked)
    lost, more = sorted(missing), sorted(theirs - ours)
    said = []
    if lost:
        said.append(f"{rule.name} {_listed(lost)}: PyTorch runs there, the file does not ({found.describe()})")
    if more:
        said.append(f"{rule.name} {_listed(more)}: the graph takes these too, PyTorch does not agree; keep to the rule")
    return said


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:_NAMED])) + (" ..." if len(sizes) > _NAMED else "")
