"""What users add to a call: rules of rewriting, and files of passes, rules and operators of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtconv.core.agreement import AgreedCode, CodeFile, agreed
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.parts import CodeIdentity
from trtconv.core.errors import InputError
from trtconv.core.foreign import ForeignCode
from trtconv.core.selection import Selection
from trtconv.passes import Pass

if TYPE_CHECKING:
    from trtconv.pipeline.extending.loading import Extension
    from trtconv.rules import Rule

_AGREED: dict[str, AgreedCode] = {}
"""SHA-256 of the files that calls of this process named, and agreed to, to where each lies; none is loaded here."""


def admit(files: Sequence[CodeFile], agreements: Sequence[str]) -> tuple[CodeIdentity, ...]:
    """Lets files of passes and rules be loaded by this process where a plan names them; none is loaded yet.

    Args:
        files: What the call and the configuration name.
        agreements: SHA-256 of the files that the call agrees to.

    Returns:
        The files, as a plan has them.

    Raises:
        InputError: A file is not there, or a configuration names it and the call does not agree.
    """
    if not files:
        return ()
    # Loaded only here: most calls have none.
    from trtconv.pipeline.extending.installed import located

    codes = agreed(located(files), agreements)
    _AGREED.update({code.sha256: code for code in codes})
    return tuple(CodeIdentity(code.path.name, code.sha256) for code in codes)


def code_of(request: Any) -> ForeignCode:
    """Returns the code that a request names: plugins, references, and extensions, which may have references too.

    Raises:
        InputError: As `ForeignCode.of`, and `admit`.
    """
    names = getattr(request, "extend", ())
    if not names:
        return ForeignCode.of(request)
    # Loaded only here: most calls have none.
    from trtconv.pipeline.extending.installed import located

    return ForeignCode.of(request, located(names))


def extensions(plan: BuildPlan) -> Iterator[Extension]:
    """Yields the extensions of a plan; each is run the first time that this process asks for it.

    Raises:
        InputError: One was not admitted, cannot be used, or has what another has.
    """
    names: dict[str, str] = {}
    for identity in plan.extensions:
        if identity.sha256 not in _AGREED:
            raise InputError(
                f"{identity.file} (SHA-256 {identity.sha256}) goes with it, an extension that this call does not name",
                f"Give the same file: --extend {Path(identity.file).name}.",
            )
        from trtconv.pipeline.extending.loading import load

        extension = load(_AGREED[identity.sha256])
        for name in (*(pass_.name for pass_ in extension.passes), *(rule.code for rule in extension.rules)):
            if names.setdefault(name, identity.sha256) != identity.sha256:
                raise InputError(f"two extensions have {name!r}", "Leave one out.")
        yield extension


def added_passes(plan: BuildPlan) -> tuple[Pass, ...]:
    """Returns the passes that a plan asks for: rules of rewriting, each shown to be right, extensions, substitutions.

    Raises:
        InputError: A rule is wrong, or an extension cannot be used.
    """
    passes: list[Pass] = []
    if plan.rewrite_rules:
        # Loaded only here: most builds have none.
        from trtconv.pipeline.extending.equality import passes_of

        passes += passes_of(plan.rewrite_rules)
    for extension in extensions(plan):
        passes += extension.passes
    if plan.substitute:
        from trtconv.pipeline.substituting.passes import substitutions

        passes += substitutions(plan.substitute)
    return tuple(passes)


def checks_of(plan: BuildPlan) -> tuple[Rule, ...]:
    """Returns the checks of a plan: those of trtconv, and those of extensions."""
    # Loaded only here: a build begins before it asks them.
    from trtconv.rules import CHECKS

    return (*CHECKS, *(rule for extension in extensions(plan) for rule in extension.rules))


def require_rules(selection: Selection, plan: BuildPlan) -> None:
    """Refuses to select or to ignore findings that no rule makes, neither one of trtconv nor one of an extension.

    Raises:
        InputError: It is asked for.
    """
    if not selection.select and not selection.ignore:
        return
    # Loaded only here, as above.
    from trtconv.rules import RULES

    rules = {rule.code: rule.name for rule in RULES}
    if selection.unmet(rules):
        # Loaded only here: to ask for the rules of extensions runs their code.
        selection.require({**rules, **{rule.code: rule.name for rule in checks_of(plan)}})


def require_proof(files: Sequence[CodeFile], level: str) -> None:
    """Refuses to build without a proof what somebody's own passes rewrite.

    Raises:
        InputError: It is asked for.
    """
    if files and level == "none":
        raise InputError(
            "--prove none with --extend: what passes of your own make leaves as an engine where it is proven, or not",
            "Leave out one of them.",
        )
