"""The masks of nn.Transformer, which looks at their values to learn whether they are causal: only to be faster.

torch.export refuses that look, and the meta device has no values to look at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch.nn.modules import transformer


@contextlib.contextmanager
def masks_unseen() -> Iterator[None]:
    """While active, a mask is applied as it is, unless the caller has said that it is causal."""
    with mock.patch.object(transformer, "_detect_is_causal_mask", _as_said):
        yield


def _as_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Stands in for `torch.nn.modules.transformer._detect_is_causal_mask`."""
    return is_causal is True
