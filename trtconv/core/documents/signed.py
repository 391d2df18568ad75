"""The checksum that a report has of itself. No signature: who changes both is not noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from trtconv.core.decode import Fault

CHECKSUM = "body_sha256"
"""Key of a report under which the checksum of the others stands."""
SIGNATURE = "signature"
"""Key of a report under which a signature of that checksum may stand (core/signatures.py)."""


def checksum(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of all of a document but its checksum and its signature."""
    rest = {key: value for key, value in document.items() if key not in (CHECKSUM, SIGNATURE)}
    try:
        return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    except RecursionError as error:
        raise Fault("it has objects inside objects without end") from error
