"""What arrays are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Feeds = Mapping[str, Array]
"""Values by the names of the tensors that they are for."""
