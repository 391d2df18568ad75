"""torch.cond in eager PyTorch, which compiles what it is given, and cannot while modes of ours look on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from trtconv.exporter.patches import patch, replaced


@patch("control_flow")
@contextlib.contextmanager
def control_flow_chosen() -> Iterator[None]:
    """While active, torch.cond runs the side that its condition chooses, in eager PyTorch.

    Where there are no values to choose by, it runs the first: both have results of the same shapes.
    """
    with replaced(torch, "cond", _cond):
        yield


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """Stands in for `torch.cond`; no read of values by Python: torch.export follows both sides."""
    if isinstance(pred, torch.Tensor):
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            is_true = True if pred.is_meta or hasattr(pred, "fake_mode") else bool(pred)
    else:
        is_true = bool(pred)
    return (true_fn if is_true else false_fn)(*operands)
