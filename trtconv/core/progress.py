"""How the library tells a caller where it is: a protocol, and an implementation that says nothing."""

from __future__ import annotations

import contextlib
from typing import Protocol

from trtconv.core.errors import InputError
from trtconv.core.typed import wording


class Progress(Protocol):
    """Somebody who wants to know how the work goes. Methods must return at once and never raise."""

    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Wraps one stage of the work.

        Args:
            name: "load", "rewrite", "rules", "parse", "audit", "build" or "write".
        """

    def phase(self, name: str, step: int, steps: int) -> None:
        """Hears of a phase inside the build, where the runtime reports any; called from any thread.

        Args:
            name: TensorRT's own name for the phase.
            step: Steps done.
            steps: Steps in all, 0 where unknown.
        """


def require_progress(call: str, progress: object) -> None:
    """Raises InputError where what a function of the Python API is given as `progress` is none."""
    methods = (getattr(progress, name, None) for name in ("stage", "phase"))
    if progress is not None and (isinstance(progress, type) or not all(map(callable, methods))):
        raise InputError(
            f"progress of {call} takes an object with the methods stage and phase, and was given {wording(progress)}",
            "docs/python.md shows one; trtconv.NullProgress() says nothing.",
        )


class NullProgress:
    """Says nothing: the library's default."""

    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Does nothing around a stage."""
        return contextlib.nullcontext()

    def phase(self, name: str, step: int, steps: int) -> None:
        """Ignores a phase."""
