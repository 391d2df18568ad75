"""What is asked of a build, or a check, and would be without effect."""

from __future__ import annotations

from trtconv.core.errors import InputError
from trtconv.core.requests.build import BuildRequest, BuildSettings
from trtconv.core.requests.check import CheckRequest


def refuse_conflicts(request: BuildRequest) -> None:
    """Refuses settings that others make meaningless: one that is ignored is worse than an error.

    Raises:
        InputError: There is one; the message names both.
    """
    refuse_idle_passes(request)
    measured = {"data": request.data is not None, "tolerance": request.tolerance != BuildSettings.tolerance}
    for name, asked in measured.items():
        if asked and request.precision != "auto":
            raise InputError(
                f"{name} goes with precision auto here, and it is {request.precision}",
                "Leave it out, or run trtconv quantize first.",
            )
    if request.preprocess is not None and request.data is None:
        raise InputError("preprocess goes with data, and there is none", "Add --data, or leave out --preprocess.")


def refuse_idle_passes(request: BuildRequest | CheckRequest) -> None:
    """Refuses settings of passes that do not run; raises as `refuse_conflicts` does."""
    tune = isinstance(request, BuildRequest) and request.tune
    for flag, asked in (("--tune", tune), ("--requantize", request.requantize)):
        if asked and not request.rewrite:
            raise InputError(
                f"{flag} is about what the rewrite does, and --no-rewrite leaves it out", f"Leave out {flag}, or that."
            )
