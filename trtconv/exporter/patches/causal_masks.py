"""The masks of nn.Transformer, which looks at their values to learn whether they are causal: only to be faster.

torch.export refuses that look, and the meta device has no values to look at.
"""

from __future__ import annotations

import contextlib
from typing import Any

from torch.nn.modules import transformer

from trtconv.exporter.patches import patch, replaced


@patch("causal_masks")
def masks_unseen() -> contextlib.AbstractContextManager[Any]:
    """While active, a mask is applied as it is, unless the caller has said that it is causal."""
    return replaced(transformer, "_detect_is_causal_mask", _as_said)


def _as_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Stands in for `torch.nn.modules.transformer._detect_is_causal_mask`."""
    return is_causal is True
