"""JSON documents: strict, ASCII, one way to write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trtconv.core.encode import strict


def render(document: Mapping[str, Any]) -> str:
    """Writes a document as strict JSON.

    Args:
        document: Plain values, as every `to_json` returns. NaN and infinities, which JSON does not have, become the
            strings "nan", "inf" and "-inf".

    Returns:
        Indented ASCII text without a last newline; keys in the order given.
    """
    try:
        text = json.dumps(document, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(strict(document), indent=2, allow_nan=False)
    return safe(text)


def safe(text: str) -> str:
    """Writes two number signs, which some logs take for the start of a command, so that JSON alone reads them."""
    return text.replace("##", "#\\u0023")
