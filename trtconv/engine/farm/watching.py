"""Whoever looks on while a farm builds."""

from __future__ import annotations


class JobWatch:
    """Whoever shows what jobs do; this one does not. Methods return at once and never raise."""

    def begun(self, index: int, worker: str) -> None:
        """Hears that a worker is at the job of a request."""

    def waits(self, index: int) -> None:
        """Hears that it waits, for a worker or to be sent again."""

    def unplaced(self, index: int) -> None:
        """Hears that nobody there can do it; somebody may come."""
