"""What of trtconv others may build on: since which version each name is there, and which have other names now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from trtconv.core.frozen import frozen

FIRST = "0.1.0"
"""The version since which names are there that `SINCE` does not have."""
SINCE: Mapping[str, str] = dict.fromkeys(
    (
        "BuilderOptions",
        "ExportPart",
        "OutputOf",
        "RefitRequest",
        "RunRequest",
        "UpgradeRequest",
        "node",
        "refit",
        "run",
        "translation",
        "upgrade",
    ),
    "0.2.0",
)
"""Names of `import trtconv` to the version that brought them, where that is later than `FIRST`."""

WITHIN: Mapping[str, tuple[str, ...]] = {
    "trtconv.graph.editor.Field": (
        *("candidates", "constant", "dtype", "escapes", "fold", "fold_into", "keep_type", "location", "node"),
        *("number", "replace", "shape", "tensor", "values", "variable"),
    ),
    "trtconv.graph.model.OnnxModel": ("array", "fresh_name", "inputs", "nodes", "opset", "outputs", "proto", "scopes"),
    "trtconv.graph.scope.Scope": (
        *("constant", "consumers", "dtype", "graph", "initializer", "location", "producer", "shape", "uses_of"),
        "values",
    ),
    "trtconv.rules.base.ModelView": ("deconvs", "linears", "model"),
    "trtconv.shapes.lattice.registry": ("axis_of", "given", "ints_of", "like", "normal", "shape_of", "tensor"),
    "trtconv.shapes.lattice.trial": ("Node", "Opaque", "Trial"),
    "trtconv.shapes.lattice.trial.Trial": ("at_least", "equal", "fail", "require"),
}
"""What extensions are given, and may import: class or module to the names of it that stay."""


@frozen
class Renamed:
    """A name that is called otherwise now.

    Args:
        new: What it is called.
        since: The version that brought the new name.
        until: The version that takes the old one away.
    """

    new: str
    since: str
    until: str


RENAMED: Mapping[str, Renamed] = {}
"""Old names of `import trtconv`; each is there for one minor version after the new one came, and warns."""


def current_name(old: str) -> str | None:
    """Returns what an old name is called now, and warns whoever used it; None: there never was such a name."""
    renaming = RENAMED.get(old)
    if renaming is None:
        return None
    warnings.warn(
        f"trtconv.{old} is called trtconv.{renaming.new} since {renaming.since}, and goes with {renaming.until}",
        DeprecationWarning,
        stacklevel=3,
    )
    return renaming.new
