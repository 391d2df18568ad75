"""Bounds of dimensions that an export wrote into a model, so that nobody has to give them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trtconv.core.dims import Range, dynamic_dims
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel

DIMS_KEY = "trtconv.dims"
"""Model metadata: dimension name to what an export found out about it, in JSON."""


def stored_bounds(model: OnnxModel) -> dict[str, Range]:
    """Returns dimension name to the bounds that were asked for at export; empty for a model of another origin."""
    text = next((prop.value for prop in model.proto.metadata_props if prop.key == DIMS_KEY), "")
    if not text:
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    bounds = {name: _range(document[name]) for name in dynamic_dims(model.inputs) if name in document}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _range(record: Any) -> Range | None:
    sizes = record.get("bounds") if isinstance(record, Mapping) else None
    if not isinstance(sizes, list) or [type(size) for size in sizes] != [int, int, int]:
        return None
    try:
        return Range(*sizes)
    except InputError:
        return None
