"""What is asked of a build, or a check, and would be without effect."""

from __future__ import annotations

from trtconv.core.errors import InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.idle import first_idle


def refuse_conflicts(request: BuildRequest | CheckRequest) -> None:
    """Refuses settings that others make meaningless: one that is ignored is worse than an error.

    Raises:
        InputError: There is one; the message names both.
    """
    found = first_idle(request)
    if found is not None:
        raise InputError(found.why.format(precision=getattr(request, "precision", "")), found.fix)
