"""What a file must be before anything looks at it: not too much of anything, and nothing that ends in a crash later."""

from __future__ import annotations

from pathlib import Path

import onnx

from trtconv.core import budget
from trtconv.core.budget import Budget
from trtconv.core.errors import InputError
from trtconv.core.hashing import Hashing
from trtconv.graph import checker
from trtconv.graph.census import take_census
from trtconv.graph.dim_names import forget_meaningless
from trtconv.graph.functions import inlined_nodes
from trtconv.graph.nodes import Columns

UNREADABLE_HINT = "Export the model again, or copy the file again: it may be truncated or a Git LFS pointer."
_INVALID_HINT = "Mend what it names, or export the model again; where the file was cut short, copy it again."
_MOST_REMEMBERED = 4
_admitted: tuple[tuple[bytes, Budget], ...] = ()
"""SHA-256 of what was admitted last, and the budget that it was held to. A file is read again for each proof."""


def admit(proto: onnx.ModelProto, hashing: Hashing | None, path: Path) -> Columns:
    """Holds a model to the budget and to what all that follows relies on; returns the nodes of its main graph.

    Args:
        proto: The model, as it was parsed; names of dimensions that mean nothing are cleared.
        hashing: The hash of its bytes, which are not looked at twice; None: they are.
        path: Its file.

    Raises:
        BudgetExceeded: It asks for too much.
        InputError: Nothing can be made of it.
    """
    global _admitted
    key = None if hashing is None else (hashing.result().digest(), budget.current())
    if key is not None and key in _admitted:
        forget_meaningless(proto.graph)
        return Columns(proto.graph.node)
    take_census(proto)
    forget_meaningless(proto.graph)
    examined = checker.examine(proto)
    if isinstance(examined, str):
        raise InputError(f"{path} is not a valid ONNX model: {examined}", _INVALID_HINT)
    nodes, place = inlined_nodes(proto)
    budget.spend("nodes", nodes, "with its functions inlined it", place)
    if key is not None:
        _admitted = (*_admitted[1 - _MOST_REMEMBERED :], key)
    return examined
