"""What `share` is asked."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.files import with_ending
from trtconv.core.frozen import frozen
from trtconv.core.requests.reduce import ReduceRequest


@frozen
class ShareRequest(ReduceRequest):
    """A call of `trtconv share`: the same as one of `trtconv reduce`."""

    @property
    def page(self) -> Path:
        """Where the page goes: beside the part."""
        return with_ending(self.output, ".share.md")
