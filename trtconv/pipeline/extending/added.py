"""The passes that users add, which run before those of trtconv."""

from __future__ import annotations

from trtconv.core.documents.build import BuildPlan
from trtconv.passes import Pass


def added_passes(plan: BuildPlan) -> tuple[Pass, ...]:
    """Returns the passes of a plan that are the user's: rules of rewriting, each shown to be right.

    Raises:
        InputError: A rule is wrong.
    """
    if not plan.rewrite_rules:
        return ()
    # Loaded only here: most builds have none.
    from trtconv.pipeline.extending.equality import shown

    return shown(plan.rewrite_rules)
